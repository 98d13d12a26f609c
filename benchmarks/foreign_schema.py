"""Validating the arguments of a foreign tool: raw JSON Schema against a pydantic model of the same shape."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from benchmarks.harness import Harness

CALLS = 20_000
VALUES: dict[str, Any] = {
    "query": "find the needle",
    "limit": 20,
    "fields": ["title", "body", "author"],
    "order": {"by": "date", "descending": True},
}


class Order(BaseModel):
    by: Literal["date", "score"]
    descending: bool = False


class Query(BaseModel):
    query: str = Field(min_length=1)
    limit: int = Field(ge=1, le=100)
    fields: list[str]
    order: Order


def rows(harness: Harness) -> None:
    from surehand import Tool

    foreign = Tool(name="remote", description="Remote.", args=Query.model_json_schema(), run=lambda args, ctx: None)
    foreign.arguments.parse(VALUES)
    validate = Query.__pydantic_validator__.validate_python

    def pydantic_core() -> None:
        for _ in range(CALLS):
            validate(VALUES)

    def ours() -> None:
        for _ in range(CALLS):
            foreign.arguments.parse(VALUES)

    harness.compare(
        f"validate foreign JSON Schema, {CALLS:,}",
        [("pydantic-core", pydantic_core), ("surehand", ours)],
        goal="<= 1",
        rounds=15,
    )
