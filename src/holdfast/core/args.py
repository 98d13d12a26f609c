"""`Args`, the base of argument models: frozen, closed, and read the way a model reads it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Args", "Field"]


class Args(BaseModel):
    """Base of a tool's argument model; unknown arguments are faults, values do not change after validation."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
