"""Signatures as a reader would write them: the keywords of a TypedDict one by one, long ones with a line for each."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from rocketapp_site.definitions import definition_of

_LONGEST = 88
_UNPACKED = re.compile(r"(?:typing\.)?Unpack\[(\w+)\]")


def signatures_of(name: str, function: Callable[..., Any], *, bound: bool) -> list[str]:
    """The signature of a function, or those of its overloads. `bound` leaves out the first parameter."""
    *others, last = typing.get_overloads(function) or [function]
    return [
        *(signature_of(name, one, bound=bound, unpacked=False) for one in others),
        signature_of(name, last, bound=bound),
    ]


def signature_of(name: str, function: Callable[..., Any], *, bound: bool, unpacked: bool = True) -> str:
    """One signature, behind `async def`, `def` or the name of a class.

    bound: leave out the first parameter. unpacked: name the keywords of a TypedDict one by one.
    """
    signature = inspect.signature(function)
    parts = list(_parts(function, list(signature.parameters.values())[bound:], unpacked=unpacked))
    ends = "" if signature.return_annotation is signature.empty else f" -> {shown(signature.return_annotation)}"
    if inspect.isclass(function):
        begins, ends = name, ""
    else:
        begins = f"async def {name}" if inspect.iscoroutinefunction(inspect.unwrap(function)) else f"def {name}"
    line = f"{begins}({', '.join(parts)}){ends}"
    if len(line) <= _LONGEST:
        return line
    return "\n".join([f"{begins}(", *(f"    {part}," for part in parts), f"){ends}"])


def names_in(function: Callable[..., Any]) -> set[str]:
    """The parameters, those of an unpacked TypedDict among them."""
    found: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        found |= {parameter.name, *_keywords(function, parameter)}
    return found


def shown(annotation: Any) -> str:
    """An annotation as the source has it."""
    if isinstance(annotation, typing.ForwardRef):
        match ast.parse(text := annotation.__forward_arg__, mode="eval").body:
            case ast.Subscript(ast.Name("Annotated"), ast.Tuple([kind, *_])):
                # How an option is checked is no part of its type.
                return ast.get_source_segment(text, kind) or text
        return text
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        return annotation.__qualname__
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(annotation))


def value_of(default: object) -> str:
    """A default; one that has no source of its own is `...`."""
    text = default.__name__ if inspect.isclass(default) else repr(default)
    return "..." if text.startswith("<") else text


def _parts(function: Callable[..., Any], parameters: list[inspect.Parameter], *, unpacked: bool) -> Iterator[str]:
    keywords = False
    for number, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "*"
        options = _keywords(function, parameter)
        if options:
            if unpacked and not keywords:
                yield "*"
            yield from (f"{name}: {kind} = ..." for name, kind in options.items()) if unpacked else ["**options"]
            continue
        stars = (
            "*"
            if parameter.kind is parameter.VAR_POSITIONAL
            else "**"
            if parameter.kind is parameter.VAR_KEYWORD
            else ""
        )
        keywords = keywords or stars == "*"
        text = f"{stars}{parameter.name}"
        if parameter.annotation is not parameter.empty:
            text += f": {shown(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {value_of(parameter.default)}"
        yield text
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        last = number + 1 == len(parameters) or parameters[number + 1].kind is not parameter.POSITIONAL_ONLY
        if positional and last:
            yield "/"


def _keywords(function: Callable[..., Any], parameter: inspect.Parameter) -> dict[str, str]:
    """Name and type of each keyword that `**options: Unpack[Options]` takes."""
    found = _UNPACKED.fullmatch(shown(parameter.annotation))
    if found is None:
        return {}
    home = definition_of(inspect.unwrap(function).__module__, found[1]).module
    options = getattr(import_module(home), found[1])
    return {name: shown(kind) for name, kind in options.__annotations__.items()}
