"""Public names of a package that are imported at their first use."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # see the package's __init__
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def imported(package: str, names: dict[str, Any], homes: Mapping[str, str], name: str) -> Any:
    """What the `__getattr__` of a package returns for a name that is not there yet (PEP 562).

    names: the globals of the package, where the name is kept from now on. homes: by module its names, with a blank
    between them. Raises AttributeError for a name without a home.
    """
    home = next((module for module, its_names in homes.items() if name in its_names.split()), None)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = names[name] = getattr(import_module(home), name)
    return value
