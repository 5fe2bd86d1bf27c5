"""SQL92 filters: an expression over a message's properties, compiled once, asked per message.

`compile_sql` returns a function of the properties which says whether the message matches: only TRUE does. Unknown
(NULL) and a comparison that fails, such as of a text with a number, do not. Java: SelectorParser, ComparisonExpression.

As in RocketMQ: every property is text, and becomes what it is compared with. `<` and its like compare numbers only.
`NOT` binds more tightly than a comparison. What follows a complete expression is not read, but for one token.

Depth, length and the number of parts have a bound, because every message of a queue may be asked.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

LONGEST, DEEPEST, MOST_PARTS = 16_384, 40, 500
"""Bounds of an expression: characters; nested parts; values and operators, where a list of `IN` is one."""

Accepts = Callable[[Mapping[str, str]], bool]
"""Whether a message with these properties matches."""
Value = bool | float | str | None
"""Whole numbers are ints."""
Evaluate = Callable[[Mapping[str, str]], Value]
"""The value of a part for one message. ValueError: it has none, and the message does not match."""

_TOKEN = re.compile(
    r"""(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*[^*]*\*+(?:[^*/][^*]*\*+)*/)*
    (?:(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<whole>0|[1-9][0-9]*[lL]?)|(?P<text>'(?:''|[^'])*')
    |(?P<word>(?i:NOT|AND|OR|BETWEEN|IN|TRUE|FALSE|NULL|IS|CONTAINS|STARTSWITH|ENDSWITH)(?![a-zA-Z0-9_$]))
    |(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)|(?P<sign><>|<=|>=|[=<>(),+-]|$))""",
    re.VERBOSE,
)
_SIGNS: Mapping[str, tuple[int, ...]] = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
_CONSTANTS: Mapping[str, Value] = {"TRUE": True, "FALSE": False, "NULL": None}
_WHOLE = re.compile(r"[+-]?\d{1,19}")
_FLOAT = re.compile(
    r"[\x00-\x20]*([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)[\x00-\x20]*"
)
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


_TIGHTEST = 3
_LEVELS: Mapping[str, int] = {
    "OR": 0,
    "AND": 1,
    **dict.fromkeys(("IS", "=", "<>"), 2),
    **dict.fromkeys((*_SIGNS, "NOT", "BETWEEN", "IN", *_TESTS), _TIGHTEST),
}
"""How tightly words and signs bind that stand behind a part."""


def compile_sql(expression: str) -> Accepts:
    """The filter that an expression describes. Raises ValueError, with the reason, for an illegal one."""
    if len(expression) > LONGEST:
        raise ValueError(f"it has {len(expression)} characters, limit {LONGEST}")
    evaluate = _boolean(_Parser(expression).expression()).evaluate

    def accepts(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except ValueError:
            return False

    return accepts


class _Part(NamedTuple):
    """A part of an expression, and what its users may rely on before any message is known."""

    evaluate: Evaluate
    depth: int = 1
    is_boolean: bool = False
    is_property: bool = False
    constant: tuple[Value, ...] = ()
    """Its value, if it is always the same."""


def _boolean(part: _Part) -> _Part:
    """The part as an operand of AND, OR, NOT, or as the whole."""
    if part.is_boolean:
        return part
    if part.is_property:
        inner = part.evaluate
        # A property is a text, also one that says "true".
        return _Part(lambda properties: None if inner(properties) is None else False, part.depth, is_boolean=True)
    raise ValueError("a number or a text is neither true nor false")


class _Parser:
    """Reads an expression from left to right, one token ahead."""

    def __init__(self, expression: str) -> None:
        self._expression, self._at, self._parts, self._depth = expression, 0, 0, 0
        self._kind = self._token = ""
        self._next()

    def expression(self, level: int = 0) -> _Part:
        """A part, with all behind it that binds at this level or more tightly."""
        left, most = self._unary(), _TIGHTEST
        while level <= (found := _LEVELS.get(self._token, -1)) <= most:
            left, most = self._extended(left), found
        return left

    def _extended(self, left: _Part) -> _Part:
        """The part with the word or sign behind it, and what that one has on its other side."""
        sign, inner = self._token, left.evaluate
        if sign in ("OR", "AND"):
            parts = [left]
            while self._took(sign):
                parts.append(self.expression(_LEVELS[sign] + 1))
            return self._joined(parts, sign == "OR")
        if sign not in ("IS", "=", "<>", *_SIGNS):
            return self._tested(left, self._took("NOT"))
        self._next()
        if sign == "IS":
            is_not = self._took("NOT")
            self._expect("NULL")
            return self._of(lambda properties: (inner(properties) is None) is not is_not, left)
        right = self.expression(_LEVELS[sign] + 1)
        if sign in _SIGNS:
            return self._ordered(sign, left, right)
        _check_equal(left, right)
        return self._of(_equal(inner, right.evaluate, sign == "<>"), left, right)

    def _joined(self, parts: list[_Part], decisive: bool) -> _Part:
        """Parts with AND or OR between them: the first that has the decisive value decides."""
        if len(parts) == 1:
            return parts[0]
        operands = [_boolean(part).evaluate for part in parts]

        def joined(properties: Mapping[str, str]) -> Value:
            is_unknown = False
            for operand in operands:
                value = operand(properties)
                if value is decisive:
                    return decisive
                is_unknown = is_unknown or value is None
            return None if is_unknown else not decisive

        return self._of(joined, *parts)

    def _tested(self, left: _Part, is_not: bool) -> _Part:
        """A part before BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH."""
        word, inner = self._token, left.evaluate
        if self._took("BETWEEN"):
            low = self._unary()
            self._expect("AND")
            high = self._unary()
            if not is_not and low.constant and high.constant:
                _check_between(low.constant[0], high.constant[0])
            signs = ("<", ">") if is_not else (">=", "<=")
            return self._joined([self._ordered(signs[0], left, low), self._ordered(signs[1], left, high)], is_not)
        if self._took("IN"):
            self._expect("(")
            texts = [self._text()]
            while self._took(","):
                texts.append(self._text())
            self._expect(")")
            if not left.is_property:
                raise ValueError("IN follows the name of a property")
            among = frozenset(texts)
            return self._of(_of_known(lambda value: (value in among) is not is_not, inner), left)
        test = _TESTS.get(word)
        if test is None:
            raise self._unexpected()
        self._next()
        text = self._text()
        if not text:  # it is in no property, and not without it either; the left side is not asked then
            return self._of(lambda _: False, left)
        return self._of(
            lambda properties: isinstance(value := inner(properties), str) and test(value, text) is not is_not, left
        )

    def _unary(self) -> _Part:
        token = self._token
        if token in ("+", "-", "NOT"):
            self._next()
            inner = self._inside(self._unary)
            if token == "NOT":
                return self._of(_of_known(operator.not_, _boolean(inner).evaluate), inner)
            if token == "-":
                return self._of(_of_known(_negative, inner.evaluate), inner)._replace(is_boolean=False)
            return inner
        return self._primary()

    def _primary(self) -> _Part:
        kind, token = self._kind, self._token
        if self._took("("):
            inner = self._inside(self.expression)
            self._expect(")")
            return inner
        if token in _CONSTANTS:
            self._next()
            return self._constant(_CONSTANTS[token], is_boolean=True)
        if kind == "text":
            return self._constant(self._text())
        if kind in ("whole", "float"):
            self._next()
            return self._constant(_number(kind, token))
        if kind == "name":
            self._next()
            return self._of(lambda properties: properties.get(token))._replace(is_boolean=False, is_property=True)
        raise self._unexpected()

    def _constant(self, value: Value, *, is_boolean: bool = False) -> _Part:
        return self._of(lambda _: value)._replace(is_boolean=is_boolean, constant=(value,))

    def _ordered(self, sign: str, left: _Part, right: _Part) -> _Part:
        for part in (left, right):
            if part.is_boolean or (part.constant and isinstance(part.constant[0], str)):
                raise ValueError(f"{sign} compares numbers")
        wanted = _SIGNS[sign]
        compared = _of_known(lambda one, other: _compared(one, other) in wanted, left.evaluate, right.evaluate)
        return self._of(compared, left, right)

    def _of(self, evaluate: Evaluate, *parts: _Part) -> _Part:
        """A part that is made of these."""
        self._parts += 1
        return _Part(evaluate, self._bounded(1 + max((part.depth for part in parts), default=0)), is_boolean=True)

    def _inside(self, read: Callable[[], _Part]) -> _Part:
        """A part within another one that is not read to its end."""
        self._depth = self._bounded(self._depth + 1)
        part = read()
        self._depth -= 1
        return part

    def _bounded(self, depth: int) -> int:
        if depth > DEEPEST or self._parts > MOST_PARTS:
            raise ValueError(f"it has more than {MOST_PARTS} parts, or is nested more than {DEEPEST} deep")
        return depth

    # Tokens.

    def _next(self) -> None:
        found = _TOKEN.match(self._expression, self._at)
        if found is None:
            raise ValueError(f"what begins at character {self._at + 1} is not understood")
        self._at, self._kind = found.end(), str(found.lastgroup)
        self._token = found[self._kind].upper() if self._kind == "word" else found[self._kind]

    def _took(self, token: str) -> bool:
        """Whether this word or sign came, which is then behind."""
        if self._token != token:
            return False
        self._next()
        return True

    def _expect(self, token: str) -> None:
        if not self._took(token):
            raise self._unexpected()

    def _text(self) -> str:
        if self._kind != "text":
            raise self._unexpected()
        token = self._token
        self._next()
        return token[1:-1].replace("''", "'")

    def _unexpected(self) -> ValueError:
        where = f"before character {self._at + 1}"
        return ValueError(f"{self._token!r} is out of place {where}" if self._token else "it ends too early")


# What a part does with a message.


def _of_known(result: Callable[..., Value], *operands: Evaluate) -> Evaluate:
    """What is made of the values of these; unknown as soon as one of them is."""

    def evaluate(properties: Mapping[str, str]) -> Value:
        values = []
        for operand in operands:
            value = operand(properties)
            if value is None:
                return None
            values.append(value)
        return result(*values)

    return evaluate


def _negative(value: Value) -> Value:
    return -value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _equal(left: Evaluate, right: Evaluate, is_not: bool) -> Evaluate:
    def equal(properties: Mapping[str, str]) -> Value:
        one, other = left(properties), right(properties)
        if one is None and other is not None:
            return None
        if one is None or other is None:
            return (one is other) is not is_not
        is_text = isinstance(one, str) and isinstance(other, str)
        same = one == other if is_text else _compared(one, other) == 0
        return same is not is_not

    return equal


def _compared(one: float | str, other: float | str) -> int:
    """-1, 0 or 1. A text becomes what it is compared with, two of them numbers; a truth and a number are not equal."""
    if isinstance(one, bool) and isinstance(other, str):
        raise ValueError("a truth is not compared with a text")
    first: float | str = _like(one, other) if isinstance(one, str) else one
    second: float | str = _like(other, one) if isinstance(other, str) else other
    if isinstance(first, bool) is not isinstance(second, bool):
        return -1
    low: tuple[object, ...] = (first,)
    high: tuple[object, ...] = (second,)
    if isinstance(first, float) or isinstance(second, float):
        low, high = _key(float(first)), _key(float(second))
    return (low > high) - (low < high)


def _like(text: str, value: float | str) -> float:
    """The text as a value of the same kind."""
    if isinstance(value, bool):
        return text.lower() == "true"
    if not isinstance(value, int):
        found = _FLOAT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a number")
        sign, nan, infinity, digits = found.groups()
        return float(f"{sign}{nan or infinity or digits}")
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    bits = 31 if -(2**31) < value < 2**31 else 63
    number = int(text)
    if not -(2**bits) <= number < 2**bits:
        raise ValueError(f"{text} has more than {bits} bits")
    return number


def _key(value: float) -> tuple[object, ...]:
    """What floats are ordered by: -0.0 comes before 0.0, and NaN last."""
    return (True,) if math.isnan(value) else (False, value, math.copysign(1, value))


def _number(kind: str, token: str) -> float:
    if kind == "whole":
        number = int(token.rstrip("lL")) if len(token) <= 20 else 2**63
        if number >= 2**63:
            raise ValueError(f"{token[:40]} has more than 63 bits")
        return number
    value = float(token)
    if value == 0 or math.isinf(value):
        raise ValueError(f"{token[:40]} is not between the smallest and the largest number")
    return value


def _check_equal(left: _Part, right: _Part) -> None:
    if (None,) in (left.constant, right.constant):
        raise ValueError("compare with IS NULL")
    if left.constant and right.constant and left.is_boolean and not right.is_boolean:
        raise ValueError("a truth is compared with a number or a text")


def _check_between(low: Value, high: Value) -> None:
    if low is None or high is None or _compared(high, low) < 0:
        raise ValueError(f"BETWEEN {low!r} AND {high!r}: nothing is")
