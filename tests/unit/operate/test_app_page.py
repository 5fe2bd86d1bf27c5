"""What the page shows of handlers, topics and queues."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from rocketapp.operate.app_page import bars, curves, page
from rocketapp.operate.app_state import AppState
from rocketapp.operate.health import check_health
from rocketapp.operate.history import History
from rocketapp.plugins.counts import CallKey, Counts, Histogram
from tests.unit.operate.views import now_of, queue_at, seen, snapshot_of, stall

AT = 1_800_000_000.0


def shown(now: AppState) -> str:
    return page(now, check_health(now), AT)


def text_of(html: str) -> str:
    """What a person reads, the titles of curves included."""
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_data = found.append  # type: ignore[method-assign]
    parser.feed(re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL))
    return " ".join(" ".join(found).split())


def busy(minutes: int = 15) -> AppState:
    """120 messages a minute, each for 20 ms; one attempt failed in the last step."""
    history, counts = History(), Counts()
    histogram = counts.histograms.setdefault(CallKey("orders", "shop", "app:settle"), Histogram())
    snapshot = snapshot_of(queue_at(10, unfinished=3))
    for number in range(6 * minutes + 1):
        for _ in range(20):
            histogram.add(0.02)
        snapshot = snapshot_of(queue_at(10, unfinished=3), handled=20 * number, dropped=number // (6 * minutes))
        history = history.with_sample(10.0 * number, snapshot, counts)
    return now_of(seen(snapshot=snapshot), history=history)


def test_a_handler_has_curves_of_15_minutes_whose_titles_say_the_figures() -> None:
    text = text_of(shown(busy()))
    assert "2.0 a second in the last minute, at most 2.0; 1,800 messages in 15 minutes" in text
    assert "1,800 calls in 15 minutes, half of them within" in text
    assert "1 failed attempt in 15 minutes, at most 1 in 10 s" in text
    assert "33 messages are not finished, at most 33 in 15 minutes" in text
    assert shown(busy()).count("<svg") == 4


def test_the_curves_of_a_young_app_span_its_age() -> None:
    html = shown(busy(minutes=3))
    (first, *_) = re.findall(r'class="under" d="M([\d.]+) ', html)
    assert float(first) < 10
    assert "Handlers the last 3 minutes" in text_of(html)
    assert "360 messages in 3 minutes" in text_of(html)


def test_an_app_that_has_just_started_shows_no_curve() -> None:
    html = shown(now_of(seen()))
    assert 'class="under"' not in html
    assert "no call was measured in 2 minutes" in html


def test_a_curve_is_broken_where_nothing_was_measured_and_rare_events_are_bars() -> None:
    assert curves("t", [(0.3, 1.0), (0.2, None), (0.1, 1.0)]).count("M") == 3  # the ground and two parts
    assert bars("t", [(0.3, 2.0), (0.2, 0.0), (0.1, 1.0)]).count("V") == 2


def test_the_title_of_a_curve_is_text() -> None:
    assert "<b>" not in curves("<b>", [(0.5, 1.0)])


def test_idle_queues_of_a_topic_are_one_line() -> None:
    idle = [queue_at(40, queue_id=number) for number in range(300)]
    html = shown(now_of(seen(snapshot=snapshot_of(*idle, queue_at(10, queue_id=300)))))
    assert "orders of group shop: 300 idle queues" in text_of(html)
    queues = html.partition('id="queues"')[2]
    assert queues.count("<tr") == 2  # heads, and the one that is behind
    assert html.count("<details") == 1


def test_the_age_of_the_oldest_message_is_shown_of_a_queue_its_topic_and_its_handler() -> None:
    queues = [queue_at(10, queue_id=number, oldest_ms=int(1000 * (AT - 30 - number))) for number in range(3)]
    assert text_of(shown(now_of(seen(snapshot=snapshot_of(*queues))))).count("32 s") == 3


def test_what_is_blocked_comes_first() -> None:
    queues = [queue_at(10, queue_id=number, still="pull failed" if number == 2 else "") for number in range(3)]
    html = shown(now_of(seen(stall("pull failed", 40.0, queue_id=2), snapshot=snapshot_of(*queues))))
    assert html.index("pull failed") < html.index('id="handlers"')
    rows = html.partition('id="queues"')[2]
    assert rows.index("broker-a:2") < rows.index("broker-a:0")
