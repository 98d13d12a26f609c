"""`Args`, the base of the built-in tools' arguments: frozen, closed, checked by pydantic where it is not plain."""

from __future__ import annotations

from holdfast.core.record import Field, Record

__all__ = ["Args", "Field"]


class Args(Record):
    """Base of a tool's arguments; unknown ones are faults, values do not change after validation."""
