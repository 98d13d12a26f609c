"""What allow rules open to commands beside the workspace: `Edit(~/.cache/uv/**)` is meant for every program alike.

Only whole folders that are there, outside the session's roots, named from the root or the home folder. Never a folder
of the system, the home folder or one with Surehand's own state, nor one in which another rule denies something: the
commands that are written out are judged word by word, but the programs they start are held by the sandbox alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from surehand.core.effects import DeletePath
from surehand.core.secrets import is_secret
from surehand.policy.floor import path_floor
from surehand.policy.paths import Roots, compile_pattern, folded, has_wildcard, pattern_key
from surehand.policy.rules import Rule


def opened(rules: Iterable[Rule], grants: Iterable[Rule], roots: Roots) -> tuple[str, ...]:
    """Return the folders that these rules, and those an approver gave, open for writing."""
    known = tuple(rules)
    denied = [rule for rule in known if rule.kind == "write" and rule.verdict != "allow"]
    if any(rule.whole for rule in denied):
        return ()
    patterns = [compile_pattern(rule.spec, pattern_key(roots), True) for rule in denied]
    allowed = (rule for rule in (*known, *grants) if rule.kind == "write" and rule.verdict == "allow")
    folders = dict.fromkeys(folder for rule in allowed if (folder := _folder(rule, roots)))
    return tuple(each for each in folders if not any(pattern.touches_below(each) for pattern in patterns))


def _folder(rule: Rule, roots: Roots) -> str:
    """Return the folder a rule opens as a whole, or nothing."""
    name = rule.spec.removesuffix("/**")
    if name == rule.spec or not name.startswith(("/", "~/")) or has_wildcard(name) or rule.untrusted_only:
        return ""
    if rule.origin.source == "project":
        return ""
    place = roots.place(os.path.expanduser(name))
    if place.inside or not os.path.isdir(place.real) or any(is_secret(folded(each)) for each in place.names):
        return ""
    return "" if path_floor(DeletePath(place.real, recursive=True), place, roots) else place.real
