from __future__ import annotations

import importlib.metadata
import types
from typing import Any

import pytest

from rocketapp.hooks.finding import find
from rocketapp.hooks.manager import Plugins
from rocketapp.plugin import PluginError, hookimpl


class Startup:
    """A plugin with one hook."""

    @hookimpl
    def app_startup(self) -> str:
        return "started"


class Filter:
    @hookimpl
    def message_filter(self) -> str:
        return "filter"


class Other:
    @hookimpl
    def message_filter(self, subscription: object) -> object:
        return subscription


def entry_point(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, "rocketapp")


def loaded(entry_points: list[importlib.metadata.EntryPoint] | None = None) -> Plugins:
    """The plugins of these entry points; None asks the interpreter."""
    plugins = Plugins()
    for found in find(entry_points=entry_points):
        plugins.add(found)
    return plugins


def test_the_built_in_log_is_found_by_entry_point() -> None:
    plugins = loaded()
    assert "logs" in plugins.names()
    assert "logs" in {hook.plugin for hook in plugins.hooks("observe_events")}


def test_an_object_takes_the_place_and_the_name_of_the_plugin_of_its_class() -> None:
    mine, second = Startup(), Startup()
    points = [entry_point("zebra", f"{__name__}:Startup"), entry_point("ant", f"{__name__}:Filter")]
    found = find([second, mine, Other()], entry_points=points)
    assert [(one.name, one.origin) for one in found] == [
        ("ant", "entry point"),
        ("zebra", "code"),
        (f"{__name__}.Startup", "code"),
        (f"{__name__}.Other", "code"),
    ]
    assert [one.load() for one in found[1:3]] == [second, mine]


def test_the_built_in_comes_first_then_others_by_name_then_the_app_s_own() -> None:
    here = f"{__name__}:"
    points = [
        entry_point("zebra", f"{here}Startup"),
        entry_point("ant", f"{here}Filter"),
        entry_point("logs", "rocketapp.plugins.logs"),
    ]
    plugins = loaded(points)
    plugins.register(Other(), "mine")
    assert plugins.names() == ("logs", "ant", "zebra", "mine")


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("no.such.module", "ModuleNotFoundError"),
        (f"{__name__}:Missing", "AttributeError"),
        (f"{__name__}:raising", "has no hook"),
    ],
)
def test_a_plugin_that_fails_to_load_is_named(value: str, what: str) -> None:
    with pytest.raises(PluginError, match=what) as caught:
        loaded([entry_point("metrics", value)])
    assert caught.value.plugin == "metrics"


raising = types.SimpleNamespace()


def test_answers_come_in_the_order_of_registration_and_none_is_left_out() -> None:
    class Declines:
        @hookimpl
        def message_filter(self) -> None: ...

    plugins = Plugins()
    for name, plugin in [("b", Other()), ("a", Declines()), ("c", Filter())]:
        plugins.register(plugin, name)
    assert [(one.plugin, one.value) for one in plugins.ask("message_filter", subscription=7)] == [
        ("b", 7),
        ("c", "filter"),
    ]


def test_pluggy_s_order_marks_count() -> None:
    class First:
        @hookimpl(trylast=True)
        def message_filter(self) -> str:
            return "innermost"

    plugins = Plugins()
    plugins.register(Filter(), "a")
    plugins.register(First(), "b")
    assert [one.value for one in plugins.ask("message_filter", subscription=7)] == ["innermost", "filter"]


def test_a_hook_that_raises_names_its_plugin() -> None:
    class Broken:
        @hookimpl
        def message_filter(self) -> Any:
            raise KeyError("token")

    plugins = Plugins()
    plugins.register(Broken(), "filters")
    with pytest.raises(PluginError, match="plugin filters: message_filter raised KeyError: 'token'"):
        plugins.ask("message_filter", subscription=7)


def test_a_class_is_instantiated_for_each_app() -> None:
    one, other = Plugins(), Plugins()
    one.register(Startup)
    other.register(Startup)
    hooks = [plugins.hooks("app_startup")[0].function for plugins in (one, other)]
    assert hooks[0].__self__ is not hooks[1].__self__  # type: ignore[attr-defined]


def test_what_is_no_plugin_is_refused_by_name() -> None:
    class Misspelled:
        @hookimpl
        def handler_wraper(self) -> None: ...

    class WrongArgument:
        @hookimpl
        def message_filter(self, topic: str) -> None: ...

    class Wraps:
        @hookimpl(wrapper=True)
        def message_filter(self) -> Any:
            return (yield)

    for plugin, what in [(Misspelled(), "handler_wraper"), (WrongArgument(), "topic"), (object(), "has no hook")]:
        with pytest.raises(PluginError, match=what) as caught:
            Plugins().register(plugin, "mine")
        assert caught.value.plugin == "mine"
    plugins = Plugins()
    plugins.register(Wraps(), "mine")
    with pytest.raises(PluginError, match="is a pluggy wrapper"):
        plugins.ask("message_filter", subscription=7)


def test_a_plugin_is_registered_once() -> None:
    plugins = Plugins()
    plugins.register(Startup())
    with pytest.raises(PluginError, match="registered twice: give one of the two an attribute `name`") as caught:
        plugins.register(Startup())
    assert len(str(caught.value).splitlines()) == 1


def test_a_misspelt_argument_of_a_hook_is_told_with_the_page_that_lists_them() -> None:
    class Misspelt:
        @hookimpl
        def handler_wrapper(self, sub: object) -> None: ...

    wanted = r"hook 'handler_wrapper'.* Argument\(s\) {'sub'} .*: see docs/reference/hooks\.md$"
    with pytest.raises(PluginError, match=wanted):
        Plugins().register(Misspelt())


def test_a_misspelt_hook_fails_its_own_plugin_alone_and_says_what_was_meant() -> None:
    class Misspelt(Startup):
        @hookimpl
        def payload_codecs(self) -> None: ...

    plugins = Plugins()
    with pytest.raises(PluginError, match=r"^plugin bad: unknown hook payload_codecs: did you mean 'payload_codec'\?"):
        plugins.register(Misspelt(), "bad")
    plugins.register(Filter(), "good")
    assert plugins.names() == ("good",)
    assert plugins.hooks("app_startup") == []


def test_several_of_one_class_are_told_apart_by_their_names() -> None:
    plugins, (eu, us, other) = Plugins(), (Startup(), Startup(), Startup())
    for plugin, name in ((eu, "eu"), (us, "us"), (other, "eu")):
        plugin.name = name  # type: ignore[attr-defined]
    plugins.register(eu)
    plugins.register(us)
    assert plugins.names() == ("eu", "us")
    with pytest.raises(PluginError, match="plugin eu: is registered twice"):
        plugins.register(other)
