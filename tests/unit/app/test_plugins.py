"""Which plugins an app has, in which order, and what they may declare on it."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketapp import ConfigError, Message, RocketApp, SetupError
from rocketapp.app.declare.phases import declared_of, handlers_of, read_settings
from rocketapp.plugin import AppConfig, PluginError, hookimpl, option
from tests.unit.app.given import line_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    topic: str = option("audit", "Where the audit goes.")


class Audit:
    """Declares a handler of its own, and gives the app a method."""

    def __init__(self) -> None:
        self.made: list[str] = []

    @hookimpl
    def options(self) -> tuple[str, type[AuditConfig]]:
        return "audit", AuditConfig

    @hookimpl
    def app_made(self, app: RocketApp) -> None:
        app.subscribe("audit")(self.keep)
        app.on_startup(lambda: None)

    @hookimpl
    def app_methods(self, app: RocketApp) -> Mapping[str, Callable[..., Any]]:
        return {"audited": lambda topic: app.subscribe(topic, group="audit")}

    async def keep(self, message: Message) -> None: ...


class Other:
    @hookimpl
    def message_filter(self) -> None: ...


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module that the settings may name."""
    module = types.ModuleType("shop_audit")
    module.Audit = Audit  # type: ignore[attr-defined]
    module.message_filter = hookimpl(lambda subscription: None)  # type: ignore[attr-defined]
    module.message_filter.__name__ = "message_filter"
    monkeypatch.setitem(sys.modules, "shop_audit", module)
    yield module


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(app: RocketApp, **options: Any) -> tuple[str, ...]:
    """The names of its plugins with these options of `[app]`, without those that are installed."""
    read_settings(app, {}, overrides={"app": options})
    installed = {point.name for point in declared_of(app).found_plugins(AppConfig()) if point.origin == "entry point"}
    return tuple(name for name in declared_of(app).plugins.names() if name not in installed)


AUDIT, OTHER = f"{__name__}.Audit", f"{__name__}.Other"


def test_plugins_come_from_settings_and_from_code(module: types.ModuleType, folder: Path) -> None:
    (folder / "settings.toml").write_text('[app]\nplugins = ["shop_audit:Audit", "shop_audit"]\n')
    assert given(RocketApp("shop", plugins=[Other])) == ("shop_audit:Audit", "shop_audit", OTHER)


def test_a_variable_names_several_with_commas(module: types.ModuleType) -> None:
    app = RocketApp("shop")
    read_settings(app, {"ROCKETAPP_APP__PLUGINS": "shop_audit:Audit, shop_audit"})
    assert declared_of(app).plugins.names()[-2:] == ("shop_audit:Audit", "shop_audit")


def test_a_plugin_of_the_settings_that_fails_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PluginError, match="plugin no_such: no_such could not be loaded: ModuleNotFoundError"):
        given(RocketApp("shop"), plugins=["no_such"])
    monkeypatch.syspath_prepend(folder)
    (folder / "shop_leaves.py").write_text("raise SystemExit(4)")
    with pytest.raises(PluginError, match="plugin shop_leaves: shop_leaves could not be loaded: SystemExit: 4"):
        given(RocketApp("shop"), plugins=["shop_leaves"])


def test_a_disabled_plugin_is_not_even_imported(module: types.ModuleType) -> None:
    assert given(RocketApp("shop", plugins=[Audit, Other]), disabled_plugins=[AUDIT]) == (OTHER,)
    assert given(RocketApp("shop"), plugins=["no_such"], disabled_plugins=["no_such", "logs"]) == ()


def test_the_table_of_a_disabled_plugin_may_stay_in_the_file(folder: Path) -> None:
    text = '[app]\nplugins = ["audit"]\ndisabled_plugins = ["audit"]\n[audit]\ntopic = "x"\n'
    (folder / "settings.toml").write_text(text)
    assert given(RocketApp("shop")) == ()


def test_the_order_is_that_of_the_settings() -> None:
    app = RocketApp("shop", plugins=[Audit, Other])
    assert given(app) == (AUDIT, OTHER)
    assert given(app, plugin_order=[OTHER, AUDIT]) == (OTHER, AUDIT)
    assert given(app, plugin_order=[AUDIT]) == (OTHER, AUDIT)
    read_settings(app, {}, overrides={"app": {"plugin_order": [AUDIT, "logs"]}})
    assert declared_of(app).plugins.names()[-2:] == (AUDIT, "logs")


@pytest.mark.parametrize("name", ["disabled_plugins", "plugin_order"])
def test_a_name_of_no_plugin_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"app.{name}: no plugin is called 'log': there are .*logs"):
        given(RocketApp("shop"), **{name: ["log"]})


def test_a_list_in_the_settings_holds_texts_alone() -> None:
    with pytest.raises(ConfigError, match=r"app.plugins: \[1\] is not a list of texts"):
        given(RocketApp("shop"), plugins=[1])


def test_a_plugin_declares_on_the_app_once(folder: Path) -> None:
    app = RocketApp("shop", plugins=[Audit])
    for _ in range(2):
        settings = read_settings(app, {})
    found = declared_of(app).subscribed("shop", settings.consumer)
    assert [one.subscription.topic for one in found] == ["audit"]
    assert len(declared_of(app).lifecycle_hooks) == 1


def test_a_plugin_stays_the_same_object_when_settings_choose_anew() -> None:
    app = RocketApp("shop", plugins=[Audit, Other])
    before = declared_of(app).plugins.plugin(AUDIT)
    given(app, disabled_plugins=[OTHER])
    assert declared_of(app).plugins.plugin(AUDIT) is before


def test_what_a_plugin_declares_wrongly_is_told_with_its_line() -> None:
    class Wrong:
        @hookimpl
        def app_made(self, app: RocketApp) -> None:
            app.subscribe("orders", retries=-1)(lambda message: None)

    with pytest.raises(SetupError, match="retries=-1"):
        RocketApp("shop", plugins=[Wrong])


def test_a_plugin_gives_the_app_a_method() -> None:
    app: Any = RocketApp("shop", plugins=[Audit])

    @app.audited("orders")
    def settle(message: Message) -> None: ...

    settings = read_settings(app, {})
    found = [one.subscription for one in declared_of(app).subscribed("shop", settings.consumer)]
    assert [(one.topic, one.group) for one in found] == [("audit", "shop"), ("orders", "audit")]
    assert found[1].handler_name.endswith("settle")


def test_a_method_that_no_plugin_adds_is_an_ordinary_error() -> None:
    app: Any = RocketApp("shop", plugins=[Audit])
    with pytest.raises(AttributeError, match="RocketApp has no attribute 'gather', and no plugin adds it"):
        app.gather("orders")
    assert not hasattr(app, "_nothing")


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("subcribe", ": did you mean 'subscribe'[?]$"),
        ("sink", r"pip install 'rocketapp\[lake\]'"),
        ("run", ": the command `rocketapp run module:app` runs it"),
        ("zigzag", "adds it$"),
    ],
)
def test_a_misspelt_method_is_refused_with_what_was_meant(
    name: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp.hooks.finding.installed", lambda group: [])
    with pytest.raises(AttributeError, match=mend):
        getattr(RocketApp("shop"), name)


def test_a_plugin_whose_method_is_used_cannot_be_disabled() -> None:
    app: Any = RocketApp("shop", plugins=[Audit])
    app.audited("orders")
    with pytest.raises(PluginError, match=r"is disabled \(app.disabled_plugins\), and app.audited is its method"):
        given(app, disabled_plugins=[AUDIT])


def test_a_disabled_plugin_adds_no_method_either_when_those_of_others_were_used_before() -> None:
    class Gathers:
        name = "gathers"

        @hookimpl
        def app_methods(self) -> Any:
            return {"gather": print}

    app: Any = RocketApp("shop", plugins=[Audit, Gathers()])
    app.audited("orders")
    given(app, disabled_plugins=["gathers"])
    with pytest.raises(AttributeError, match="RocketApp has no attribute 'gather', and no plugin adds it"):
        app.gather("orders")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"publish": print}, "names 'publish', which RocketApp has already"),
        ({"_gather": print}, "names '_gather', which is not a public name"),
        ({"gather": 5}, "return functions by name"),
        ([print], "return functions by name"),
        ({"audited": print}, "names 'audited', which plugin .*Audit has already"),
    ],
)
def test_a_method_that_cannot_be_added_names_its_plugin(answer: Any, problem: str) -> None:
    class Adds:
        @hookimpl
        def app_methods(self) -> Any:
            return answer

    app: Any = RocketApp("shop", plugins=[Audit, Adds])
    with pytest.raises(AttributeError, match=f"Adds: app_methods .*{problem}"):
        app.gather("orders")


def test_a_plugin_that_was_given_in_code_knows_its_app_before_anything_is_declared() -> None:
    made = list[tuple[str, int]]()

    class Keeps:
        @hookimpl
        def app_made(self, app: RocketApp) -> None:
            made.append((app.name, len(declared_of(app).handlers)))

    plugin = Keeps()
    shop, other = RocketApp("shop", plugins=[plugin]), RocketApp("other", plugins=[plugin, Other])
    for app in (shop, other):
        given(app)  # a start does not tell it again
    assert made == [("shop", 0), ("other", 0)]


class Session:
    """What a plugin gives handlers."""


class Thing:
    """What a plugin makes of bodies."""


class Giving:
    """Fills arguments, by itself and by its codec."""

    content_type = "application/x-thing"

    @hookimpl
    def argument_provider(self, kind: Any) -> Callable[[], Session] | None:
        return Session if kind is Session else None

    @hookimpl
    def payload_codec(self) -> Giving:
        return self

    def claims(self, kind: type[Any]) -> bool:
        return kind is Thing

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        return (lambda body: Thing()) if kind is Thing else None

    def encode(self, body: Any) -> bytes:
        return b"thing"


@pytest.mark.parametrize("kind", [Session, Thing])
def test_a_handler_whose_argument_a_disabled_plugin_fills_is_refused_at_the_start(kind: type[Any]) -> None:
    app = RocketApp("shop", plugins=[Giving()])

    async def settle(local: kind) -> None: ...  # type: ignore[valid-type]

    app.subscribe("orders")(settle)
    name = f"{Giving.__module__}.{Giving.__qualname__}"
    off = read_settings(app, {}, overrides={"app": {"disabled_plugins": [name]}})
    with pytest.raises(SetupError, match=f"'local' has the annotation {kind.__name__}, which nothing fills") as caught:
        handlers_of(app, off)
    assert caught.value.place == line_of(settle)
    (handler,) = handlers_of(app, read_settings(app, {}))
    assert handler.arguments is not None


def test_a_local_name_that_stands_for_another_is_known_when_a_plugin_is_left_out() -> None:
    @dataclass
    class Order:
        number: int

    Orders = list["Order"]  # noqa: N806
    app = RocketApp("shop", plugins=[Giving()])

    @app.subscribe("orders", batch=10)
    async def settle(orders: Orders) -> None: ...

    name = f"{Giving.__module__}.{Giving.__qualname__}"
    (handler,) = handlers_of(app, read_settings(app, {}, overrides={"app": {"disabled_plugins": [name]}}))
    assert handler.arguments is not None
    assert handler.arguments[0].type is Order
