"""The words of an approval: command, diff, effects, origin and the rule that would be saved, safe to print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from surehand.core.effects import (
    Connect,
    DeletePath,
    Effect,
    ReadPath,
    RemoteCall,
    RunCommand,
    StartAgent,
    Unreadable,
    WritePath,
)
from surehand.files.sanitize import mark_lookalikes, visible

if TYPE_CHECKING:
    from surehand.policy.policy import Decision
    from surehand.policy.question import Question

SHOWN_CHARACTERS = 20_000


def question_text(question: Question) -> str:
    """Return the whole question, every character of it printable."""
    decision = question.decision
    parts = [f"{_shown(question.tool)} asks for permission: {_shown(decision.reason)}"]
    if kind := _kind(decision):
        parts.append(f"The command {kind}.")
    if question.call.source not in ("user", "cli"):
        agent = f" (sub-agent: {_shown(question.agent)})" if question.agent else ""
        parts.append(f"Asked by: {question.call.source}{agent}")
    foreign = sorted(origin for origin in question.origins if origin != "workspace")
    if foreign:
        parts.append(f"Text from {visible(', '.join(foreign), lines=False)} has entered this session.")
    parts.append(_arguments(question.call.args, in_diff=bool(question.preview and question.preview.diff)))
    effects = [f"  {effect_line(each.effect)}" for each in decision.judged if each.effect is not None]
    if effects:
        parts.append("It would:\n" + "\n".join(dict.fromkeys(effects)))
    if question.preview is not None:
        shown = question.preview.diff or question.preview.text
        parts.append(_cut(visible(shown.rstrip("\n"))))
    return "\n".join(part for part in parts if part)


def _kind(decision: Decision) -> str:
    """Say what a shell command does by its class: that of the least safe of its parts."""
    effects = [each.effect for each in decision.judged]
    commands = [effect for effect in effects if isinstance(effect, RunCommand)]
    implied = {effect for command in commands for effect in command.implies}
    kinds = {command.kind for command in commands if command.kind}
    if commands and any(isinstance(effect, WritePath) and effect not in implied for effect in effects):
        kinds.add("write")  # by a redirection
    if not kinds:
        return ""
    from surehand.shell.classes import MEANINGS

    return [meaning for kind, meaning in MEANINGS.items() if kind in kinds][-1]


def _arguments(args: Any, *, in_diff: bool) -> str:
    command = args.get("command")
    if isinstance(command, str):
        rest = {key: value for key, value in args.items() if key != "command"}
        shown = "\n".join(f"  $ {line}" if not at else f"    {line}" for at, line in enumerate(_lines(command)))
        return shown + (f"\n  with {_plain(rest)}" if rest else "")
    return "\n".join(f"  {_shown(str(key))}: {_value(value, in_diff)}" for key, value in args.items())


def _shown(text: str) -> str:
    """Return text that belongs on one line, with what is not what it seems written out."""
    return mark_lookalikes(visible(text, lines=False))


def _value(value: Any, in_diff: bool) -> str:
    """Return an argument as it is; what the diff shows anyway is named by its size."""
    if in_diff and isinstance(value, str) and ("\n" in value or len(value) > 200):
        return f"({len(value):,} characters, see the changes below)"
    return _plain(value)


def _lines(text: str) -> list[str]:
    # Only a real line feed may begin a line on the screen: other breaks are written out.
    return [_shown(line) for line in _cut(text).split("\n")]


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    lines = _lines(text)
    return lines[0] if len(lines) == 1 else "\n" + "\n".join(f"    {line}" for line in lines)


def _cut(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters not shown ...]\n{text[-half:]}"


def effect_line(effect: Effect) -> str:
    """Return one effect in words."""
    match effect:
        case ReadPath(path, recursive):
            line = f"read {path}" + (" and all below it" if recursive else "")
        case WritePath(path, recursive):
            line = f"write {path}" + (" and anything below it" if recursive else "")
        case DeletePath(path, recursive):
            line = f"delete {path}" + (" and all below it" if recursive else "")
        case Connect(host, port, url):
            line = f"connect to {url or (f'{host}:{port}' if port else host)}"
        case RunCommand(words):
            import shlex

            line = f"run {shlex.join(words)}"
        case Unreadable(reason):
            line = f"do something that cannot be known beforehand: {reason}"
        case RemoteCall(server, tool):
            line = f"call {tool} on the server {server}"
        case StartAgent(profile):
            line = f"start the sub-agent {profile}"
    return _shown(line)
