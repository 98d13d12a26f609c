"""`Args`, the base of the built-in tools' arguments: frozen, closed, checked by pydantic where it is not plain."""

from __future__ import annotations

from typing import Any

from surehand.core.record import Field, Record

__all__ = ["Args", "Field", "hide_default"]


class Args(Record):
    """Base of a tool's arguments; unknown ones are faults, values do not change after validation."""


def hide_default(schema: dict[str, Any]) -> None:
    """Leave a default out of the schema; the description tells it: `Field(..., json_schema_extra=hide_default)`."""
    schema.pop("default", None)
