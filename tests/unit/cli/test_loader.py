"""Finding the app: every way to name one, and every way to name one wrongly."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketapp.cli.failure import FAILED, USAGE, CommandError
from rocketapp.cli.loader import load_app

_numbers = itertools.count()

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module into the current directory and return its name, which no other test uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    written = []

    def write_module(source: str) -> str:
        name = f"loaded_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(source)
        written.append(name)
        return name

    yield write_module
    for name in written:
        sys.modules.pop(name, None)


APP = "from rocketapp import RocketApp\n"


def problem(target: str) -> str:
    """The one line that a user reads."""
    with pytest.raises(CommandError) as caught:
        load_app(target)
    assert caught.value.code == USAGE
    return caught.value.text


def test_a_module_alone_means_its_app(write: Write) -> None:
    module = write(APP + "app = RocketApp('shop')\n")
    assert load_app(module).name == "shop"


def test_an_attribute_may_have_any_name_and_lie_deep(write: Write) -> None:
    module = write(APP + "class apps:\n    shop = RocketApp('shop')\n")
    assert load_app(f"{module}:apps.shop").name == "shop"


def test_a_factory_is_called(write: Write) -> None:
    module = write(APP + "def create(name='shop'):\n    return RocketApp(name)\n")
    assert load_app(f"{module}:create()").name == "shop"


def test_the_current_directory_comes_first_on_the_path(write: Write, tmp_path: Path) -> None:
    load_app(write(APP + "app = RocketApp('shop')\n"))
    assert sys.path[0] == str(tmp_path)


def test_an_unknown_module_is_named_with_its_nearest_neighbour(write: Write) -> None:
    module = write(APP)
    text = problem(module + "x:app")
    assert f"{module}x: no such module" in text
    assert f"did you mean {module!r}?" in text


def test_a_module_that_imports_what_is_not_there_is_told_by_its_line(write: Write) -> None:
    module = write("import json\nimport nowhere_to_be_found\n")
    text = problem(module)
    assert text.startswith(f"{module}.py:2: ModuleNotFoundError")
    assert "nowhere_to_be_found" in text


def test_a_syntax_error_is_told_by_its_line(write: Write) -> None:
    module = write("x = 1\nif x\n    pass\n")
    assert problem(module).startswith(f"{module}.py:2: SyntaxError")


def test_a_module_that_exits_does_not_end_the_command_silently(write: Write) -> None:
    module = write("import sys\nsys.exit(0)\n")
    assert problem(module).startswith(f"{module}.py:2: SystemExit")


def test_a_long_text_of_an_exception_stays_one_line(write: Write) -> None:
    module = write("raise ValueError('a\\nb\\n' * 1000)\n")
    text = problem(module)
    assert "\n" not in text
    assert len(text) < 1000


def test_a_missing_app_points_to_the_one_that_is_there(write: Write) -> None:
    module = write(APP + "wares = RocketApp('shop')\n")
    text = problem(module)
    assert f"{module}.py: {module} has no attribute 'app'" in text
    assert "did you mean 'wares'?" in text


@pytest.mark.parametrize(
    ("source", "attribute", "meant"),
    [
        ("from rocketapp import *\nclass Apps: ...\nwares = RocketApp('shop')\n", "app", "'wares'?"),
        ("from rocketapp import *\nclass Shop: ...\nshop_app = RocketApp('shop')\n", "shop", "'shop_app'?"),
        ("import rocketapp as apps\nclass App: ...\n", "app", "RocketApp(name)"),
        ("from rocketapp import RocketApp as App\ndef create(): ...\n", "creat", "'create()'?"),
    ],
)
def test_an_app_is_offered_and_no_class_of_a_like_name(write: Write, source: str, attribute: str, meant: str) -> None:
    assert problem(f"{write(source)}:{attribute}").endswith(meant)


def test_something_else_than_an_app_is_told_by_its_kind(write: Write) -> None:
    module = write("app = 7\n")
    assert problem(module).startswith(f"{module}.py: {module}:app is an int, not a RocketApp")
    assert problem(f"{module}:app()").startswith(f"{module}.py: an int cannot be called")
    module = write("from rocketapp import RocketApp as app\n")
    assert problem(module).startswith(f"{module}.py: {module}:app is the class RocketApp, not a RocketApp")


def test_a_factory_that_raises_is_told_by_the_line(write: Write) -> None:
    module = write("def create():\n    raise KeyError('colour')\n")
    assert problem(f"{module}:create()") == f"{module}.py:2: KeyError: 'colour'"


def test_a_factory_that_returns_something_else_is_told(write: Write) -> None:
    module = write("def create():\n    return None\n")
    assert problem(f"{module}:create()").startswith(f"{module}.py: {module}:create() is a NoneType, not a RocketApp")


def test_an_async_factory_is_told_to_be_plain(write: Write) -> None:
    module = write("async def create():\n    return None\n")
    assert problem(f"{module}:create()").startswith(f"{module}.py: an async factory cannot be loaded")


def test_brackets_behind_an_app_are_told_to_go(write: Write) -> None:
    module = write(APP + "app = RocketApp('shop')\n")
    assert "without brackets" in problem(f"{module}:app()")


def test_the_cause_is_kept_for_the_traceback(write: Write) -> None:
    with pytest.raises(CommandError) as caught:
        load_app(write("1 / 0\n"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("source", "brackets", "doing"),
    [
        ("raise KeyboardInterrupt\n", "", "importing"),
        ("def create():\n    raise KeyboardInterrupt\n", ":create()", "calling"),
    ],
)
def test_an_interrupted_import_says_so(write: Write, source: str, brackets: str, doing: str) -> None:
    module = write(source)
    with pytest.raises(CommandError) as caught:
        load_app(module + brackets)
    line = source.count("\n")
    assert caught.value.text.startswith(f"{module}.py:{line}: interrupted (KeyboardInterrupt) while {doing} {module}")
    assert caught.value.code == FAILED


def test_publishing_from_a_loop_of_ones_own_is_blamed_on_the_line_that_ran_it(write: Write) -> None:
    module = write(f"import asyncio\n{APP}app = RocketApp('shop')\nasyncio.run(app.publish('orders', 'x'))\n")
    text = problem(module)
    assert f"{module}.py:4: app 'shop' is not running" in text
    assert "events.py" not in text


def test_a_file_that_hides_a_loaded_module_of_python_is_named_before_anything_starts(write: Write) -> None:
    module = write(APP + "app = RocketApp('shop')\n")
    Path("queue.py").write_text("jobs = []\n")
    assert problem(module) == "queue.py hides Python's own module queue: rename it"
    assert str(Path.cwd()) not in sys.path
    Path("queue.py").unlink()
    Path("antigravity.py").write_text("jobs = []\n")  # nothing has loaded it: it may be a module as any other
    assert load_app(module).name == "shop"


@pytest.mark.parametrize("name", ["rocketapp", "msgspec", "opentelemetry"])
def test_a_file_with_the_name_of_rocketapp_or_of_what_it_needs_is_refused(write: Write, name: str) -> None:
    Path(f"{name}.py").write_text(APP + "app = RocketApp('shop')\n")
    assert problem(f"{name}:app") == f"{name}.py hides {name} itself: rename it"


def test_a_package_hides_a_module_as_well_and_a_folder_without_modules_does_not(write: Write) -> None:
    module = write(APP + "app = RocketApp('shop')\n")
    Path("queue").mkdir()
    assert load_app(module).name == "shop"
    Path("queue/__init__.py").touch()
    assert problem(module) == "queue/__init__.py hides Python's own module queue: rename it"


def test_modules_that_import_each_other_are_told_what_to_do(write: Write) -> None:
    handlers = write("")
    module = write(f"import {handlers}\n" + APP + "app = RocketApp('shop')\n")
    Path(f"{handlers}.py").write_text(f"from {module} import app\n")
    said = problem(module)
    assert said.startswith(f"{handlers}.py:1: ImportError: cannot import name 'app' from partially initialized"), said
    assert said.endswith(": declare the handlers on a Router in a module that does not import the app"), said


def test_a_relative_import_outside_of_a_package_is_told_what_to_do(write: Write) -> None:
    said = problem(write("from .handlers import router\n"))
    assert "attempted relative import with no known parent package: import it without the dot, or name" in said, said
