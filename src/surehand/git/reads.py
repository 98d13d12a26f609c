"""Variables under which git, in a command that only looks, starts no program of the repository's and reaches nobody.

They switch off what a repository can set for itself and what can be switched off from outside. What cannot (filters,
text conversions, settings of repositories inside) is asked about by the model instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
}


def _numbered(settings: Mapping[str, str]) -> dict[str, str]:
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (key, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return numbered


ONLY_READS: Final[dict[str, str]] = {
    "GIT_OPTIONAL_LOCKS": "0",  # `git diff` refreshes the index, locks or not, and runs `post-index-change` after it
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # unlike settings, this holds in submodules too
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    **_numbered(_SETTINGS),
}
