"""The calculator module: right values, one shape of error, and no way to exhaust the machine."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
from pydantic import ValidationError

from surehand.core.errors import ToolFailure
from surehand.tools.calculator import TOOLS, calculate

(TOOL,) = TOOLS
CONTEXT: Any = None  # the calculator knows nothing of its session


def said(expression: str, **options: Any) -> str:
    args = TOOL.arguments.parse({"expression": expression, **options})
    return TOOL.run(args, CONTEXT).output


def refused(expression: str) -> str:
    started = time.process_time()
    with pytest.raises(ToolFailure) as caught:
        said(expression)
    assert time.process_time() - started < 60  # what hangs, hangs without end
    assert caught.value.message.startswith("Calculation error: ")
    assert len(caught.value.message) < 600
    return caught.value.message


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("2 + 3 * 4", "14.00"),
        ("(2 + 3) * 4", "20.00"),
        ("10 / 4", "2.50"),
        ("7 // 2 + 7 % 4", "6.00"),
        ("2 ** 3 ** 2", "512.00"),
        ("-2 ** 2", "-4.00"),
        ("2 ** -1", "0.50"),
        ("2^10", "1024.00"),
        ("6 × 7 ÷ 2 − 1", "20.00"),
        ("0.1 + 0.2", "0.30"),
        ("--5", "5.00"),
        ("1_000 + .5", "1000.50"),
        ("1e3", "1000.00"),
        ("sqrt(16) + abs(-3)", "7.00"),
        ("max(1, 2, 3) - min(4, 5)", "-1.00"),
        ("round(2.567, 1)", "2.60"),
        ("sin(pi / 2) + cos(0) + ln(e)", "3.00"),
        ("log(8, 2)", "3.00"),
        ("2 ** 200", f"{2**200}.00"),
        ("factorial(20)", f"{math.factorial(20)}.00"),
        ("-0.001", "0.00"),
        ("0 ** 0", "1.00"),
        ("(-1) ** 99999999", "-1.00"),
        ("1 ** -99999999", "1.00"),
    ],
)
def test_an_expression_is_shown_with_its_result(expression: str, shown: str) -> None:
    assert said(expression) == f"{expression} = {shown}"


def test_precision_sets_the_number_of_decimals() -> None:
    assert said("10 / 3", precision=4) == "10 / 3 = 3.3333"
    assert said("2 + 2", precision=0) == "2 + 2 = 4"
    assert said("pi", precision=15) == "pi = 3.141592653589793"


@pytest.mark.parametrize("precision", [-1, 16, 2.5, "two"])
def test_a_bad_precision_is_named(precision: object) -> None:
    with pytest.raises(ValidationError, match="precision"):
        said("1", precision=precision)


@pytest.mark.parametrize(
    "expression",
    [
        "2 +", "", "   ", "1/0", "1 % 0", "1 // 0", "0 ** -1", "9**9**9", "9**9**9**9", "2 ** 1e9", "1e999",
        "10.0 ** 400",
        "__import__('os')", "__import__", "os.system", "().__class__", "[1]", "lambda: 1", "'a' * 9", "1 if 1 else 2",
        "(" * 100_000, "(" * 100_000 + ")" * 100_000, "(" * 400 + "1" + ")" * 400, "2**" * 300 + "2", "-" * 100_001,
        "1 2", ")", "2 ** ", "sqrt(-1)", "sqrt()", "sqrt(1, 2)", "nope(1)", "factorial(1e9)", "factorial(2.5)",
        "(-8) ** (1/3)",
        "round(1, 1e9)", "gcd(1.5, 2)", "1_", "1__0.5", "1\x002", "\ud800", "9" * 999 + "*" + "9", "0x10", "True",
        "inf", "nan",
        "factorial(factorial(400))", "pow(9, 99999999)", "1,000",
    ],
)  # fmt: skip
def test_what_has_no_value_is_a_calculation_error_at_once(expression: str) -> None:
    refused(expression)


def test_messages_say_what_is_wrong() -> None:
    assert refused("1/0") == "Calculation error: division by zero"
    assert "ends" in refused("2 +")
    assert "too large" in refused("9**9**9")
    assert "100,000 characters" in refused("(" * 100_000)
    assert "unknown function" in refused("eval(1)")


def test_long_chains_are_no_deep_nesting() -> None:
    assert calculate("+".join(["1"] * 500)) == 500
    assert calculate("(" * 60 + "1" + ")" * 60) == 1


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([str(rng.randint(0, 99)), f"{rng.uniform(0, 9):.3f}"])
    if rng.random() < 0.2:
        return f"-({random_expression(rng, depth - 1)})"
    sign = rng.choice(["+", "-", "*", "/", "//", "%"])
    left, right = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    return rng.choice([f"{left} {sign} {right}", f"({left}) {sign} ({right})"])


def test_values_agree_with_python_on_random_expressions() -> None:
    rng = random.Random(20)
    compared = 0
    for _ in range(1_500):
        expression = random_expression(rng, 4)
        try:
            expected = eval(expression)
        except ZeroDivisionError:
            assert "zero" in refused(expression)
            continue
        compared += 1
        assert calculate(expression) == expected, expression
    assert compared > 500
