from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from rocketapp import Message, RocketApp, Router, SetupError
from rocketapp.app.declare.phases import declared_of
from rocketapp.config.option import option
from rocketapp.plugin import PluginError, hookimpl
from tests.cases import cases
from tests.unit.app.given import line_of, plans


def test_two_apps_in_one_process_do_not_meet() -> None:
    one, other = RocketApp("shop"), RocketApp("shop")
    one.subscribe("orders")(lambda message: None)
    other.subscribe("orders")(lambda message: None)
    assert len(plans(one)) == len(plans(other)) == 1


def nothing() -> None: ...


async def whole(app: RocketApp) -> None: ...


def untyped(app): ...  # type: ignore[no-untyped-def]


def with_default(app: RocketApp, again: int = 2, none: str | None = None) -> None: ...


def by_name(*, app: RocketApp) -> None: ...


@cases("moment", ["on_startup", "on_shutdown"])
@cases("function", [nothing, whole, untyped, with_default, by_name])
def test_a_start_or_stop_function_takes_nothing_or_the_app(moment: str, function: Callable[..., Any]) -> None:
    assert getattr(RocketApp("shop"), moment)(function) is function


def two(app: RocketApp, database: object) -> None: ...


def wrong(database: int) -> None: ...


def of_a_message(message: Message) -> None: ...


@cases("moment", ["on_startup", "on_shutdown", "lifespan"])
@cases("function", [two, wrong, of_a_message])
def test_other_arguments_are_refused_with_the_function_s_line(moment: str, function: Callable[..., Any]) -> None:
    with pytest.raises(SetupError, match=moment) as caught:
        getattr(RocketApp("shop"), moment)(function)
    assert caught.value.place == line_of(function)


def test_what_is_no_function_does_not_run_at_the_start() -> None:
    with pytest.raises(SetupError, match=r"on_startup decorates functions.*: None cannot be called"):
        RocketApp("shop").on_startup(None)  # type: ignore[type-var]


@pytest.mark.parametrize("moment", ["on_startup", "on_shutdown"])
def test_a_generator_whose_code_would_never_run_is_refused(moment: str) -> None:
    async def opening() -> AsyncIterator[None]:
        yield

    with pytest.raises(
        SetupError, match=f"{moment} decorates functions, and app.lifespan those with a yield"
    ) as caught:
        getattr(RocketApp("shop"), moment)(opening)
    assert caught.value.place == line_of(opening)


def test_a_lifespan_without_yield_is_refused() -> None:
    async def opening() -> None: ...

    with pytest.raises(SetupError, match="put a yield where the app runs") as caught:
        RocketApp("shop").lifespan(opening)
    assert caught.value.place == line_of(opening)


@cases("decorator", ["subscribe", "poll", "publishes", "transaction"])
def test_a_decorator_that_stands_there_without_its_topic_is_refused(decorator: str) -> None:
    more = {"every": 5.0} if decorator == "poll" else {}
    with pytest.raises(SetupError) as caught:
        getattr(RocketApp("shop"), decorator)(nothing, **more)
    assert f'{decorator}: give a topic, not {nothing!r}: write @app.{decorator}("the-topic")' in str(caught.value)


@pytest.mark.parametrize("clusters", [{"eu": ""}, {"": "h:1"}, {"eu": 5}, {5: "h:1"}])
def test_clusters_need_a_name_and_an_address(clusters: Any) -> None:
    with pytest.raises(SetupError, match="give name servers by cluster name"):
        RocketApp("shop", clusters=clusters)


@cases(
    "arguments, problem",
    [
        ({"name": 5}, "5 is not a string"),
        ({"clusters": "h:1"}, "give name servers by cluster name"),
        ({"clusters": {"eu": "h"}}, "'eu': 'h' is not host:port"),
        ({"clusters": {"eu": "http://h:1"}}, "'http://h:1' is a URL: write host:port"),
        ({"plugins": "audit"}, "plugins='audit': give a list of objects with hooks"),
        ({"plugins": 5}, "plugins=5: give a list of objects with hooks"),
        ({"plugins": ["audit"]}, "names stand in app.plugins of the settings"),
        ({"settings": 5}, "give options by table"),
        ({"settings": {"consumer": 5}}, "give options by table"),
    ],
)
def test_what_an_app_is_made_of_is_checked_at_its_line(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError, match=problem) as caught:
        RocketApp(**{"name": "shop", **arguments})
    assert caught.value.place.startswith(__file__)


def test_a_router_s_prefix_is_a_string() -> None:
    with pytest.raises(SetupError, match="prefix=5: give a string"):
        Router(prefix=5)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    port: int = option(9100, "Where it serves.")


@dataclass(kw_only=True)
class Thawed:
    port: int = option(9100, "Where it serves.")


@dataclass(frozen=True, kw_only=True)
class Nested:
    ports: tuple[int, ...] = option((), "Where it serves.")


@dataclass(frozen=True, kw_only=True)
class Plain:
    port: int = 1


class Options:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    @hookimpl
    def options(self) -> object:
        return self.answer


def test_a_plugin_adds_a_table_of_settings() -> None:
    tables = declared_of(RocketApp("shop", plugins=[Options(("metrics", MetricsConfig))])).tables
    assert tables["metrics"] is MetricsConfig


@cases(
    "answer, problem",
    [
        (MetricsConfig, "return \\(table name, dataclass\\)"),
        (("consumer", MetricsConfig), "table \\[consumer\\] is taken"),
        (("My-Table", MetricsConfig), "is not a table's name"),
        (("a__b", MetricsConfig), "is not a table's name"),
        (("metrics", dict), "a frozen dataclass"),
        (("metrics", Thawed), "a frozen dataclass"),
        (("metrics", Nested), "an option is int, float, bool, str or tuple"),
        (("metrics", Plain), "declare it with option"),
    ],
)
def test_a_table_that_cannot_be_checked_names_the_plugin(answer: object, problem: str) -> None:
    with pytest.raises(PluginError, match=problem) as caught:
        _ = declared_of(RocketApp("shop", plugins=[Options(answer)])).tables
    assert caught.value.plugin == f"{__name__}.Options"


def test_options_in_code_are_the_version_and_the_tables_given() -> None:
    app = RocketApp("shop", version="1.2", settings={"app": {"drain_timeout": 5.0}, "consumer": {"threads": 3}})
    assert declared_of(app).settings == {"app": {"drain_timeout": 5.0, "version": "1.2"}, "consumer": {"threads": 3}}
