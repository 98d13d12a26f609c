"""Every public class, function and method says what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "surehand"
Defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def public(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Defined]]:
    """Yield the public definitions of a module, those inside classes and behind conditions included."""
    for each in getattr(node, "body", ()):
        if isinstance(each, Defined) and not each.name.startswith("_"):
            if not any("overload" in ast.unparse(decorator) for decorator in each.decorator_list):
                yield prefix + each.name, each
            if isinstance(each, ast.ClassDef):
                yield from public(each, f"{prefix}{each.name}.")
        elif isinstance(each, ast.If | ast.Try):
            yield from public(each, prefix)


def test_every_public_name_has_a_docstring() -> None:
    bare = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name, node in public(ast.parse(path.read_text()))
        if not ast.get_docstring(node)
    ]
    assert bare == []
