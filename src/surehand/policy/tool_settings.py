"""Per-tool settings: the paths one tool may touch, and what it must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from surehand.policy.paths import PathPattern, Place
from surehand.policy.rules import Origin, Rule

if TYPE_CHECKING:
    from surehand.policy.policy import Request

_LEVEL_OF: Final = {"undo": 1, "dry_run": 2}


def missing_capability(request: Request, capable: Callable[[int], Sequence[str]] | None) -> str:
    """Return what the settings require of a tool and it lacks, and which tools would do; or nothing."""
    settings = request.tool_settings
    if settings is None:
        return ""
    level = max([settings.security_level, *(_LEVEL_OF[each] for each in settings.required_capabilities)])
    if request.level >= level:
        return ""
    wanted = ", ".join(settings.required_capabilities) or f"level {level}"
    others = [name for name in (capable(level) if capable else ()) if name not in request.names]
    would_do = f"; these would do: {', '.join(others)}" if others else ""
    return f"the settings require {wanted} of {request.tool}, which has level {request.level}{would_do}"


def denied_by_settings(
    request: Request, place: Place, compiled: Callable[[str, bool], PathPattern]
) -> tuple[Rule, ...]:
    """Return the path settings of this tool that forbid a place, as the rule they amount to."""
    settings = request.tool_settings
    if settings is None or not (settings.allowed_paths or settings.forbidden_paths):
        return ()
    for text in settings.forbidden_paths:
        pattern = compiled(text, True)
        if any(pattern.matches(name) for name in place.names):
            return (_as_rule(request.tool, "forbidden_paths", text),)
    allowed = [compiled(text, False) for text in settings.allowed_paths]
    if allowed and not all(any(pattern.matches(name) for pattern in allowed) for name in place.names):
        return (_as_rule(request.tool, "allowed_paths", ", ".join(settings.allowed_paths)),)
    return ()


def _as_rule(tool: str, key: str, text: str) -> Rule:
    where = f"tools.{tool}.permissions.{key}"
    return Rule("deny", f"{where} = {text}", "name", tool, text, Origin("user", where), reason=f"{key} of {tool}")
