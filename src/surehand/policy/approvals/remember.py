"""Remember "always": a rule added to the user's own settings file, atomically, the rest of it left as it is."""

from __future__ import annotations

import fcntl
import json
import os
import time

from surehand.core.errors import RuleError, StateError
from surehand.policy.rules import parse_rule
from surehand.state import locations
from surehand.state.json_file import mode_of, write_private


def remember(rules: str, path: str | None = None) -> None:
    """Add allow rules, one a line, to the user's settings file (never to a project's)."""
    parsed = [parse_rule("allow", line) for line in rules.splitlines() if line.strip()]
    path = os.path.realpath(path or locations.user_settings())
    locations.private_dir(os.path.dirname(path))
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _read_settings(path)
        known = _allowed_rules(before, path)
        added = [rule.text for rule in parsed if rule.text not in known]
        if added:
            after = before + ("" if before.endswith("\n") or not before else "\n") + "".join(map(_rule_table, added))
            _allowed_rules(after, path)  # what would not parse is never written
            write_private(path, after, mode=mode_of(path))


def _rule_table(rule: str) -> str:
    day = time.strftime("%Y-%m-%d")
    return f'\n[[permissions.rules]]\nallow = {json.dumps(rule)}\nreason = "approved on {day}"\n'


def _read_settings(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise StateError(f"{path} cannot be read, so nothing was added to it: {problem}") from None


def _allowed_rules(text: str, path: str) -> set[str]:
    import tomllib

    try:
        permissions = tomllib.loads(text).get("permissions", {})
        rows = permissions.get("rules", [])
        return {*permissions.get("allow", []), *(row["allow"] for row in rows if isinstance(row.get("allow"), str))}
    except (tomllib.TOMLDecodeError, AttributeError, TypeError) as problem:
        raise RuleError(f"{path} is not valid, so nothing was added to it: {problem}") from None
