"""The page in a real browser, from a disk and as `run --http` serves it: styled, and nothing is complained of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketapp.app.settings import Settings
from rocketapp.asyncapi.document import document_of, encoded
from rocketapp.asyncapi.page import page_of
from rocketapp.operate.app_requests import answering
from rocketapp.operate.server import OperatorServer
from tests.unit.asyncapi.everything import everything
from tests.unit.operate.browser import Browser, missing
from tests.unit.operate.test_app_requests import AppConsole
from tests.unit.operate.views import now_of, seen

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"{missing()} is not installed")


class DescribedDesk(AppConsole):
    """Of the app with everything."""

    def describe(self) -> bytes:
        return encoded(document_of(everything(), Settings())).encode()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(params=["disk", "http"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "disk":
        file = tmp_path / "asyncapi.html"
        file.write_text(page_of(document_of(everything(), Settings())))
        yield file.as_uri()
        return
    serving = OperatorServer("127.0.0.1:0", answering(DescribedDesk(now_of(seen()))))
    yield f"http://{serving.start()}/docs"
    serving.stop()


def test_it_is_styled_and_the_browser_has_nothing_to_complain_of(browser: Browser, address: str) -> None:
    browser.complaints()  # of pages before this one
    browser.open(address)
    assert "Take the money." in browser.text()
    assert browser.style(".card", "border-radius") == "12px"
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def test_a_link_leads_to_its_schema(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.click('a[href="#schema-Category"]')
    assert browser.url == f"{address}#schema-Category"
    assert "A shelf in a shop" in browser.text("#schema-Category")
