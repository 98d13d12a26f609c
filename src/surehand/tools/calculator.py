"""The sample module `calculator`: arithmetic on a small parser of its own.

Nothing is evaluated as Python code, and resources are bounded: the length of an expression, its nesting and the size of
each integer are checked before computing.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

from surehand.core.call import ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.tool import Tool
from surehand.tools import object_schema

if TYPE_CHECKING:
    from surehand.core.context import ToolContext

LENGTH_LIMIT: Final = 1_000
DEPTH_LIMIT: Final = 64
INTEGER_BITS: Final = 4_096
PRECISION_LIMIT: Final = 15

Number: TypeAlias = int | float


class CalculationError(Exception):
    """An expression that has no value; the message says why."""


def calculate(expression: str) -> Number:
    """Evaluate an arithmetic expression; raise CalculationError."""
    if len(expression) > LENGTH_LIMIT:
        raise CalculationError(f"the expression has {len(expression):,} characters; at most {LENGTH_LIMIT:,}")
    try:
        return _Parser(expression).value()
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except OverflowError:
        raise CalculationError("the result is too large") from None
    except (ValueError, TypeError) as problem:
        raise CalculationError(str(problem)) from None


def format_number(value: Number, precision: int) -> str:
    """Format a number with exactly `precision` decimals; integers keep every digit."""
    if isinstance(value, int):
        return f"{value}.{'0' * precision}" if precision else str(value)
    text = f"{value:.{precision}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _check_bounds(value: Any) -> Number:
    """Return a result; raise CalculationError unless it is a real number of reasonable size."""
    if isinstance(value, complex):
        raise CalculationError("the result is not a real number")
    if isinstance(value, int):
        if value.bit_length() > INTEGER_BITS:
            raise CalculationError("the result is too large")
        return value
    if not math.isfinite(value):
        raise CalculationError("the result is too large or not a number")
    return cast("float", value)


def _power(base: Number, exponent: Number) -> Any:
    # Checked before it is computed: 9**9**9 would fill the memory.
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > INTEGER_BITS * 2:
        if base in (0, 1, -1):
            return base ** (exponent % 2 + 2 if exponent > 0 else exponent % 2 - 2)
        raise CalculationError("the result is too large")
    return base**exponent


def _factorial(value: Number) -> int:
    if value != int(value) or not 0 <= value <= 500:
        raise CalculationError("factorial takes a whole number from 0 to 500")
    return math.factorial(int(value))


def _round_number(value: Number, digits: Number = 0) -> Number:
    if digits != int(digits) or abs(digits) > 300:
        raise CalculationError("round takes a whole number of digits, at most 300")
    return round(value, int(digits)) if digits else round(value)


def _whole(function: Callable[..., int]) -> Callable[..., int]:
    def apply(*values: Number) -> int:
        if any(value != int(value) for value in values):
            raise CalculationError(f"{function.__name__} takes whole numbers")
        return function(*(int(value) for value in values))

    return apply


CONSTANTS: Final[dict[str, float]] = {"pi": math.pi, "e": math.e, "tau": math.tau}

# name → function, minimum and maximum number of arguments.
FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], int, int]]] = {
    **{name: (getattr(math, name), 1, 1) for name in (
        "sqrt", "cbrt", "exp", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "floor", "ceil", "trunc", "degrees", "radians",
    )},
    "ln": (math.log, 1, 1),
    "log": (math.log, 1, 2),
    "atan2": (math.atan2, 2, 2),
    "hypot": (math.hypot, 1, 64),
    "abs": (abs, 1, 1),
    "round": (_round_number, 1, 2),
    "min": (lambda *values: min(values), 1, 64),
    "max": (lambda *values: max(values), 1, 64),
    "sum": (lambda *values: sum(values), 1, 64),
    "pow": (_power, 2, 2),
    "gcd": (_whole(math.gcd), 1, 64),
    "lcm": (_whole(math.lcm), 1, 64),
    "factorial": (_factorial, 1, 1),
}  # fmt: skip

_SUMS: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "*": operator.mul,
    "/": lambda left, right: left / right,
    "//": lambda left, right: left // right,
    "%": operator.mod,
}
_SAME: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**", "（": "(", "）": ")"})
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|//|[-+*/%(),])|$)"
)


class _Parser:
    """Recursive descent; chains of one precedence are loops, so only brackets and powers nest.

    sum = product {(+|-) product} · product = signed {(*|/|//|%) signed} · signed = {+|-} power
    power = atom [** signed] · atom = number | name | name(sum, ...) | (sum)
    """

    def __init__(self, expression: str) -> None:
        self.text = expression.translate(_SAME)
        self.position = self.depth = 0
        self.kind, self.token = "", ""
        self.advance()

    def value(self) -> Number:
        if not self.token:
            raise CalculationError("the expression is empty")
        value = self.sum()
        if self.token:
            self.fail()
        return value

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            rest = self.text[self.position :].lstrip()
            raise CalculationError(f"unexpected character {rest[:1]!r} before {rest[1:12]!r}")
        self.position = match.end()
        self.kind = match.lastgroup or ""
        self.token = match[self.kind] if self.kind else ""

    def fail(self) -> NoReturn:
        if not self.token:
            raise CalculationError("the expression ends where a value or a bracket should follow")
        raise CalculationError(f"unexpected {self.token!r} at position {self.position - len(self.token) + 1}")

    def take(self, sign: str) -> bool:
        if self.kind != "sign" or self.token != sign:
            return False
        self.advance()
        return True

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            self.fail()

    def sum(self) -> Number:
        return self.chain(_SUMS, self.product)

    def product(self) -> Number:
        return self.chain(_PRODUCTS, self.signed_power)

    def chain(self, operators: dict[str, Callable[[Any, Any], Any]], part: Callable[[], Number]) -> Number:
        value = part()
        while self.kind == "sign" and (apply := operators.get(self.token)):
            self.advance()
            value = _check_bounds(apply(value, part()))
        return value

    def signed_power(self) -> Number:
        negative = False
        while self.token in ("+", "-"):
            negative ^= self.token == "-"
            self.advance()
        value = self.power()
        return -value if negative else value

    def power(self) -> Number:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise CalculationError(f"the expression is nested too deeply; at most {DEPTH_LIMIT} levels")
        value = self.atom()
        if self.take("**"):
            value = _check_bounds(_power(value, self.signed_power()))
        self.depth -= 1
        return value

    def atom(self) -> Number:
        token, kind = self.token, self.kind
        if kind == "number":
            self.advance()
            return _number(token)
        if kind == "name":
            self.advance()
            return self.call_or_constant(token)
        self.expect("(")
        value = self.sum()
        self.expect(")")
        return value

    def call_or_constant(self, name: str) -> Number:
        if self.take("("):
            function, fewest, most = FUNCTIONS.get(name) or _raise_unknown(name, "function", FUNCTIONS)
            values = [self.sum()]
            while self.take(","):
                values.append(self.sum())
            self.expect(")")
            if not fewest <= len(values) <= most:
                wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
                raise CalculationError(f"{name} takes {wanted} value(s), not {len(values)}")
            return _check_bounds(function(*values))
        return CONSTANTS.get(name) or _raise_unknown(name, "name", CONSTANTS)


def _number(text: str) -> Number:
    return _check_bounds(int(text) if text.replace("_", "").isdigit() else float(text))


def _raise_unknown(name: str, kind: str, known: dict[str, Any]) -> NoReturn:
    raise CalculationError(f"unknown {kind} {name!r}; there are {', '.join(sorted(known))}")


class CalculateArgs(Args):
    """What to calculate, and how many decimals to show."""

    expression: str = Field(description="The arithmetic expression, for example 2 + 3 * 4 or sqrt(2) / pi")
    precision: int = Field(default=2, ge=0, le=PRECISION_LIMIT, description="Number of decimals in the result")


def _run(args: CalculateArgs, ctx: ToolContext) -> ToolResult:
    del ctx
    try:
        value = calculate(args.expression)
    except CalculationError as problem:
        raise ToolFailure(
            f"Calculation error: {problem}",
            hint="Write numbers, + - * / // % **, brackets, and functions such as sqrt(2) or max(1, 2).",
        ) from None
    result = format_number(value, args.precision)
    data = {"expression": args.expression, "result": result, "value": value, "precision": args.precision}
    return ToolResult(data=data, output=f"{args.expression} = {result}")


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="calculate",
        output_schema=object_schema({"expression": "string", "result": "string"}, precision="integer"),
        module="calculator",
        description="Calculate the value of an arithmetic expression and show it with a fixed number of decimals.",
        args=CalculateArgs,
        run=_run,
        read_only=True,
        concurrency_safe=True,
        search_hint="calculator arithmetic math expression compute",
        examples=({"expression": "2 + 3 * 4"}, {"expression": "10 / 3", "precision": 4}),
        effects=lambda args, ctx: [],
    ),
)
