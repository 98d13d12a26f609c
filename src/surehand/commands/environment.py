"""The environment of a command: the user's, without secrets and without variables that make a shell run more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from surehand.core.text import lazy_pattern
from surehand.files.protected_paths import inside

SECRET_NAMES: Final = frozenset(
    {
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "AZURE_OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "GITHUB_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "SSH_AUTH_SOCK",
        "GPG_AGENT_INFO",
        "DATABASE_URL",
        "PGPASSFILE",
        "NETRC",
        "KUBECONFIG",
        "MYSQL_PWD",
        "SSHPASS",
        "JWT",
        "BEARER",
        "SSH_PRIVATE",
        "STRIPE_SK",
    }
)

# A word of the name, between underscores: KEYBOARD and TOKENIZERS_PARALLELISM are no secrets.
_SECRET: Final = lazy_pattern(
    r"(?i)(^|_)(api_?keys?|keys?|access_?key|private_?key|[a-z]*tokens?|[a-z]*secrets?|pass|passwd|[a-z]*password"
    r"|passphrase|[a-z]*credentials?|creds?|auth|pat|dsn|cookie)(_|$)|(?i:apikey|password|secret|credential)"
)
_HARMLESS: Final = lazy_pattern(r"(?i)^(TOKENIZERS_|KEYBOARD|.*_(KEY|TOKEN)_(PATH|FILE|DIR|ID)_ONLY$)|^(XAUTHORITY)$")

# Variables that change the meaning of a command line after it was judged.
_REMOVED_VARIABLES: Final = frozenset(
    [
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "CDPATH",
        "OLDPWD",
        "GLOBIGNORE",
        "PROMPT_COMMAND",
        "PS4",
        "BASH_XTRACEFD",
        "RIPGREP_CONFIG_PATH",
        "GREP_OPTIONS",
        "LESSOPEN",
        "LESSCLOSE",
        "GIT_EXTERNAL_DIFF",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_SSH_COMMAND",
        "GIT_ASKPASS",
        "SSH_ASKPASS",
        "GIT_EDITOR",
        "GIT_SEQUENCE_EDITOR",
    ]
)

DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"

FIXED_VARIABLES: Final[Mapping[str, str]] = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "DEBIAN_FRONTEND": "noninteractive",
    "SUREHAND": "1",
}
"""Nobody can page, type a password or use an editor; with `true` as editor git takes a message as it is."""


_SECRET_VALUE: Final = lazy_pattern(
    r"^[a-z][a-z0-9+.-]*://[^/\s@:]*:[^/\s@]+@"  # a password in an address
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|^(?:gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|rk_live_|xox[abprs]-|AKIA|ASIA)[\w-]{12,}$"
    r"|^eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*$|^https://hooks\.slack\.com/",
    re.IGNORECASE,
)
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})


def is_secret_value(value: str) -> bool:
    """Tell whether a variable is removed because its value looks like a secret."""
    return len(value) > 8 and _SECRET_VALUE.search(value) is not None


def is_secret_name(name: str) -> bool:
    """Tell whether a variable is removed because its name says that it is a secret."""
    return name in SECRET_NAMES or (_SECRET.search(name) is not None and _HARMLESS.match(name) is None)


def private_caches(folder: str, writable: Iterable[str]) -> dict[str, str]:
    """Return variables that move caches into `folder`, for programs that fail if they cannot write theirs (go)."""
    usual = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "go-build")
    chosen = os.path.realpath(os.environ.get("GOCACHE") or usual)
    return {} if inside(chosen, writable) else {"GOCACHE": os.path.join(folder, "go-build")}


def clean_environment(environment: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of `environment` that a command may see, with `extra` added."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in _REMOVED_VARIABLES
        and not name.startswith(("BASH_FUNC_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"))
        and not is_secret_name(name)
        # A proxy's address may have a password, but no program reaches the network without it.
        and (name.lower() in _PROXIES or not is_secret_value(value))
    }
    kept.update(FIXED_VARIABLES)
    kept.setdefault("PATH", DEFAULT_PATH)
    kept.setdefault("LANG", "C.UTF-8")
    kept.update(extra or {})
    return kept


class CleanEnvironment:
    """This process's environment as a command may see it; computed again only when it has changed."""

    def __init__(self) -> None:
        self._known: tuple[Mapping[Any, Any], str, tuple[str, ...] | None] | None = None
        self._kept: Mapping[str, str] = {}

    def get(self, folder: str, writable: tuple[str, ...] | None) -> Mapping[str, str]:
        """Return the variables of a command that may write only in `writable` (None: everywhere)."""
        # `os.environ` keeps the encoded variables in `_data`: comparing those spares decoding each of them.
        known = vars(os.environ).get("_data") or dict(os.environ), folder, writable
        if self._known != known:
            caches = private_caches(folder, writable) if writable is not None else {}
            self._kept = clean_environment(os.environ, caches)
            self._known = dict(known[0]), folder, writable
        return self._kept
