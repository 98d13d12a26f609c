"""Every error Surehand raises on purpose.

    SurehandError
    ├── ToolFailure          an expected failure of one call; becomes `ToolResult.error`
    ├── RegistrationError    a tool that cannot be registered; lists every fault
    ├── SettingsError        a wrong key or value; names file, line and the nearest right one
    ├── RuleError            a permission rule that does not parse or fails its own examples
    └── StateError           something kept on disk that cannot be used as it is

Anything else that is raised is a bug. Bugs are caught once, in the executor, and logged with their traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

ErrorCode = Literal[
    "tool_not_found",
    "invalid_args",
    "execution_error",
    "tool_unavailable",
    "permission_denied",
    "precondition_failed",
    "timeout",
    "cancelled",
    "queue_full",
]

ERROR_CODES: Final[tuple[ErrorCode, ...]] = get_args(ErrorCode)


class SurehandError(Exception):
    """The root of all errors raised on purpose."""


class ToolFailure(SurehandError):
    """An expected failure of one call: what was wrong, and what to do next, for a model and a person alike.

    Tools raise it; the executor turns it into `ToolResult.error`. `output`, `data` and `content`, when given, are
    kept beside the error (a failing command still shows its output).
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode = "execution_error",
        hint: str = "",
        details: Mapping[str, Any] | None = None,
        output: str | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})
        self.output = output
        self.data = data


class RegistrationError(SurehandError):
    """A tool that cannot be registered or unregistered; `problems` lists every fault, not only the first."""

    def __init__(
        self, name: str, problems: Iterable[str], *, doing: Literal["registered", "unregistered"] = "registered"
    ) -> None:
        self.name = name
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__(f"tool {name!r} cannot be {doing}: " + "; ".join(self.problems))


class SettingsError(SurehandError):
    """A wrong key or value in a settings source; the message names source, line and the nearest right one."""


class RuleError(SurehandError):
    """A permission rule that does not parse, or that fails one of its own examples."""


class StateError(SurehandError):
    """Something kept on disk (a journal, a history, an audit log) that cannot be used as it is."""
