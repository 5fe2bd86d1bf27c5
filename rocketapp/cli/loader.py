"""Find the user's RocketApp: `module:attribute`, `module:factory()` or `module` (its `app`).

Each failure is the user's to mend, so it says where: the line of
their module that raised, the name that comes nearest, the brackets that are missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketapp.app.places import takes
from rocketapp.cli.failure import FAILED, USAGE, CommandError, describe, one_line, shown_path, user_place
from rocketapp.errors import RocketAppError, did_you_mean

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp

DEFAULT_ATTRIBUTE = "app"
_MENDS = {
    # Arguments of a declaration that do not fit, which Python refuses before it is entered.
    r"TypeError: (RocketApp|Router|Subscribing)\..* missing 1 required positional argument: 'function'$": (
        "write the decorator without brackets"
    ),
    r"TypeError: (RocketApp|Router|Subscribing)\..* takes .* positional arguments? but": "give options by name",
    r"ImportError: attempted relative import with no known parent package": (
        "import it without the dot, or name the app with its package from the folder above, as package.app:app"
    ),
    r".* partially initialized module ": "declare the handlers on a Router in a module that does not import the app",
}
"""By the beginning of what Python says."""
_NEEDED = "rocketapp", "click", "dependency_injector", "dynaconf", "msgspec", "opentelemetry", "pluggy", "uvloop"
"""What every process of ours imports beside Python's own modules."""
_MODULES = ".py", "/__init__.py"
_TARGET = re.compile(r"(?P<module>[^:()]+)(:(?P<attribute>[^:()]+)(?P<call>\(\))?)?")


def put_current_directory_on_path() -> None:
    """First on `sys.path`, as for `python -m`: the user's modules lie there.

    Raises CommandError for one that has the name of a module of Python itself which is loaded, or of a package that we
    need: nothing here could import it, and a process that is started would get it in the place of the other.
    """
    here = str(Path.cwd())
    if hiding := hiding_files(sys.modules):
        raise CommandError(hiding)
    if name := next((name for name in _NEEDED if Path(f"{name}.py").is_file()), ""):
        raise CommandError(f"{name}.py hides {name} itself: rename it")
    if here not in sys.path:
        sys.path.insert(0, here)


def hiding_files(modules: Iterable[str]) -> str:
    """Which files of the user shadow one of these modules, in words; empty when none does."""
    files = {f"{name}{end}": name for name in sys.stdlib_module_names.intersection(modules) for end in _MODULES}
    found = [
        f"{file} hides Python's own module {name}: rename it" for file, name in files.items() if Path(file).is_file()
    ]
    return "; ".join(sorted(found))


def load_app(target: str) -> RocketApp:
    """The RocketApp that APP names. Raises CommandError with exit code 2."""
    if not target.strip():
        raise CommandError("APP is empty: give module:attribute, module:factory() or module")
    match = _TARGET.fullmatch(target.strip())
    if match is None or target.endswith(".py") or "/" in match["module"] or match["module"].startswith("."):
        raise CommandError(f"{target}: write APP as module:attribute, module:factory() or module{_as_module(target)}")
    put_current_directory_on_path()
    module = _import_module(match["module"])
    attribute = match["attribute"] or DEFAULT_ATTRIBUTE
    found = _attribute(module, match["module"], attribute)
    if match["call"]:
        return _checked(_call(found, f"{match['module']}:{attribute}"), f"{match['module']}:{attribute}()")
    return _checked(found, f"{match['module']}:{attribute}")


def _as_module(target: str) -> str:
    file = target.partition(":")[0]
    if not file.endswith(".py") and "/" not in file:
        return ""
    return f", for example {file.removesuffix('.py').strip('./').replace('/', '.')}:app"


def _import_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt as error:
        raise _interrupted(error, f"importing {name}") from error
    except BaseException as error:
        if _is_missing(name, error):
            raise CommandError(_missing_text(name)) from error
        raise _failure(error, f"importing {name}") from error


def _is_missing(name: str, error: BaseException) -> bool:
    """Whether the module itself is missing, and not one that it imports."""
    return (
        isinstance(error, ModuleNotFoundError)
        and error.name is not None
        and (name == error.name or name.startswith(error.name + "."))
        and user_place(error) is None
    )


def _missing_text(name: str) -> str:
    here = Path.cwd()
    around = [path.stem for path in here.glob("*.py")] + [path.parent.name for path in here.glob("*/__init__.py")]
    mend = did_you_mean(name.partition(".")[0], around, otherwise=": run the command where it lies")
    if name.endswith(".py"):
        mend = f": a module is named without .py: {name.removesuffix('.py')}"
    return f"{name}: no such module in {here} or on sys.path{mend}"


def _attribute(module: Any, name: str, path: str) -> Any:
    found = module
    for part in path.strip().split("."):
        if not hasattr(found, part):
            mend = _instead_of(part, found)
            raise CommandError(f"{_place_of(None, name)}: {name} has no attribute {part!r}{mend}")
        found = getattr(found, part)
    return found


def _instead_of(part: str, holder: Any) -> str:
    """The app or factory that was probably meant."""
    from rocketapp.app.app import RocketApp

    members = _members(holder)
    apps = [name for name, value in members.items() if isinstance(value, RocketApp)]
    if apps:
        return did_you_mean(part, apps, otherwise=f": did you mean {apps[0]!r}?")
    home = getattr(holder, "__name__", None)
    factories = [
        f"{name}()" for name, value in members.items() if inspect.isfunction(value) and value.__module__ == home
    ]
    return did_you_mean(part, factories, otherwise=": create one with RocketApp(name)")


def _members(holder: Any) -> dict[str, Any]:
    return {name: value for name, value in getattr(holder, "__dict__", {}).items() if not name.startswith("_")}


def _call(factory: Any, shown: str) -> Any:
    place = _place_of(factory, shown)
    if not callable(factory):
        raise CommandError(f"{place}: {_kind(factory)} cannot be called: write {shown} without brackets")
    if not takes(factory):
        mend = "give its parameters defaults, or name a factory without parameters"
        raise CommandError(f"{place}: the factory {shown} needs arguments: {mend}")
    try:
        return factory()
    except KeyboardInterrupt as error:
        raise _interrupted(error, f"calling {shown}()") from error
    except BaseException as error:
        raise _failure(error, f"calling {shown}()") from error


def _checked(found: Any, shown: str) -> RocketApp:
    from rocketapp.app.app import RocketApp

    if isinstance(found, RocketApp):
        return found
    place = _place_of(found, shown)
    if inspect.iscoroutine(found):
        found.close()
        raise CommandError(f"{place}: an async factory cannot be loaded: make it a plain function")
    if inspect.isfunction(found):
        raise CommandError(f"{place}: {shown} is a function, not a RocketApp: to call it, write {shown}()")
    raise CommandError(f"{place}: {shown} is {_kind(found)}, not a RocketApp: name the object that RocketApp(...) made")


def _kind(value: Any) -> str:
    if inspect.ismodule(value):
        return f"the module {value.__name__}"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _place_of(found: Any, shown: str) -> str:
    """Where a function is defined; otherwise the file of the module that the user typed."""
    if inspect.isfunction(found):
        return f"{shown_path(found.__code__.co_filename)}:{found.__code__.co_firstlineno}"
    module = shown.partition(":")[0]
    return shown_path(getattr(sys.modules.get(module), "__file__", None) or module)


def _interrupted(error: KeyboardInterrupt, doing: str) -> CommandError:
    """The error for KeyboardInterrupt: it says whether Ctrl-C or the user's code raised it."""
    place = user_place(error)
    return CommandError(f"{f'{place}: ' if place else ''}interrupted (KeyboardInterrupt) while {doing}", FAILED)


def _failure(error: BaseException, doing: str) -> CommandError:
    if isinstance(error, RocketAppError):
        text = one_line(str(error))
        place = user_place(error)
        return CommandError(text if place is None or _names_a_place(text) else f"{place}: {text}", USAGE)
    return CommandError(f"{user_place(error) or doing}: {describe(error)}{_mend_of(error)}", USAGE)


def _mend_of(error: BaseException) -> str:
    text = describe(error)
    return next((f": {mend}" for pattern, mend in _MENDS.items() if re.match(pattern, text)), "")


def _names_a_place(text: str) -> bool:
    return re.match(r"\S+:\d+: ", text) is not None
