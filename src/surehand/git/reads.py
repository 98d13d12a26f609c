"""Variables for reads: under them git starts no program of the repository's and reaches nobody.

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


def number_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give git these settings."""
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (key, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return numbered


def only_reading(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables under which git only reads, with some settings more."""
    return {
        # `git diff` refreshes the index, locks or not, and runs `post-index-change` after it.
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # unlike settings, this holds in submodules too
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        **number_settings({**_SETTINGS, **settings}),
    }


OWN_WORDS: Final = (
    "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.editor=true",
    "-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "protocol.allow=never",
    "-c", "credential.helper=", "-c", "submodule.recurse=false", "-c", "core.sshCommand=false",
    "-c", "status.submoduleSummary=false", "-c", "diff.submodule=short",
)  # fmt: skip
"""What stands before the subcommand wherever Surehand runs git itself."""
OWN_VARIABLES: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
