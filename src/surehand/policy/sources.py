"""Sources of the rules in force: the user's settings, the project's file, the command line.

The settings say which rules hold; the files say on which line each stands. A project's file may only narrow: its allow
rules never count, its deny and ask rules count always, trusted or not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surehand.core.errors import RuleError
from surehand.policy.paths import below
from surehand.policy.rule_files import check_examples, read_rules
from surehand.policy.rules import VERDICTS, Origin, Rule, Verdict, parse_line, parse_rule
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.core.settings import RuleSettings, Settings

PROJECT_FILE = "surehand.toml"

Key = tuple[Verdict, str]


def rules_in_force(settings: Settings, workspace: str, command_line: Sequence[str]) -> list[Rule]:
    """Return every rule that is not built in; raise RuleError for one that is wrong, with file and line."""
    project = read_rules(os.path.join(workspace, PROJECT_FILE), "project")
    try:
        wanted = _from_settings(settings)
    except RuleError:
        _user_rules(workspace)  # says the same with file and line, where the rule stands in a file
        raise
    user = _user_rules(workspace) if wanted else {}
    theirs = {(rule.verdict, rule.text): rule for rule in project}
    rules = [parse_line(line) for line in command_line]
    for key, rule in wanted.items():
        if key in user:
            rules.append(user[key])
        elif key not in theirs:
            rules.append(rule)
    return [*rules, *(rule for rule in project if rule.verdict != "allow")]


def _user_rules(workspace: str) -> dict[Key, Rule]:
    path = locations.user_settings()
    real = os.path.realpath(path)
    if os.path.islink(path) and below(real, os.path.realpath(workspace)):
        raise RuleError(f"{path} is a link into the workspace; an agent working there could change its own rules")
    return {(rule.verdict, rule.text): rule for rule in read_rules(real, "user")}


def _from_settings(settings: Settings) -> dict[Key, Rule]:
    permissions = settings.permissions
    found: dict[Key, Rule] = {}
    for verdict in VERDICTS:
        for text in getattr(permissions, verdict):
            rule = parse_rule(verdict, text, Origin("user"))
            found[verdict, rule.text] = rule
    for row in permissions.rules:
        found |= {(rule.verdict, rule.text): rule for rule in _row(row)}
    return found


def _row(row: RuleSettings) -> list[Rule]:
    said = [(verdict, value) for verdict in VERDICTS if (value := getattr(row, verdict))]
    if len(said) != 1:
        raise RuleError(f"a rule has exactly one of allow, ask, deny; this one has {[each[0] for each in said]}")
    verdict, value = said[0]
    texts = [value] if isinstance(value, str) else list(value)
    rules = [
        parse_rule(verdict, text, Origin("user"), reason=row.reason, untrusted=row.after_untrusted) for text in texts
    ]
    check_examples(rules, row.match, wanted=True)
    check_examples(rules, row.not_match, wanted=False)
    return rules
