"""Names of secret files: the one list, used by tools, policy and sandbox.

Patterns are as in .gitignore: a bare name matches at any depth, one with a slash inside matches the end of a path, a
trailing `/` means a directory with its contents, and a later `!` makes an exception. Unlike there, a leading `/` is
the root of the file system, a leading `~/` means directly in a home directory (`.npmrc` holds credentials there, but
settings in a project), and case is ignored. A backup of a secret is a secret: `.env~`, `#.env#`, `id_rsa.bak`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from surehand.core.text import lazy_pattern

SECRET_PATTERNS: Final[tuple[str, ...]] = (
    # settings with passwords in them (a pattern with a wildcard is one name, without a slash)
    ".env",
    ".env.*",
    ".env-*",
    ".env_*",
    ".envrc",
    "*.env",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!.env.dist",
    "!.env.defaults",
    "!.env.*.example",
    "!.env.*.sample",
    "!.env.*.template",
    "!example.env",
    "!sample.env",
    "!template.env",
    # private keys and key stores
    ".ssh/",
    ".gnupg/",
    ".password-store/",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "ssh_host_*_key",
    "*.pem",
    # public: the root certificates that programs ship
    "!cacert.pem",
    "!cacerts.pem",
    "!ca-bundle.pem",
    "!ca-certificates.pem",
    "!roots.pem",
    "*.key",
    "*.p8",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdb",
    "*.kdbx",
    "*.ppk",
    "*.asc.key",
    "*.gpg.key",
    "secring.*",
    "*.keytab",
    # credentials of programs
    ".netrc",
    "_netrc",
    ".pypirc",
    ".git-credentials",
    ".config/git/credentials",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".htpasswd",
    ".vault-token",
    ".dockercfg",
    ".docker/config.json",
    "containers/auth.json",
    ".kube/config",
    "kubeconfig",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".config/gh/hosts.yml",
    ".config/hub",
    ".config/rclone/rclone.conf",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    "*.tfstate",
    "*.tfstate.backup",
    ".m2/settings-security.xml",
    ".streamlit/secrets.toml",
    "~/.npmrc",
    "~/.yarnrc.yml",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/op/",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".config/github-copilot/",
    ".config/doctl/",
    ".config/netlify/",
    ".netlify/config.json",
    ".config/ngrok/",
    ".ngrok2/",
    ".fly/config.yml",
    ".msmtprc",
    ".mbsyncrc",
    "~/.claude.json",
    "~/.curlrc",
    ".config/sops/age/",
    # clouds
    ".aws/",
    ".azure/",
    ".config/gcloud/",
    ".oci/",
    ".bluemix/",
    ".boto",
    ".s3cfg",
    "credentials.json",
    "client_secret*.json",
    "service-account*.json",
    "service_account*.json",
    "serviceaccount*.json",
    "application_default_credentials.json",
    # browsers and key rings
    ".mozilla/",
    ".config/google-chrome/",
    ".config/chromium/",
    ".config/BraveSoftware/",
    ".config/microsoft-edge/",
    "Application Support/Google/Chrome/",
    "Application Support/BraveSoftware/",
    "Application Support/Firefox/",
    "Library/Keychains/",
    "Library/Cookies/",
    ".local/share/keyrings/",
    ".local/share/kwalletd/",
    "*.keychain",
    "*.keychain-db",
    "Login Data",
    "logins.json",
    "key4.db",
    # histories: command lines contain passwords
    ".*_history",
    ".zhistory",
    ".history",
    "fish_history",
    ".dbshell",
    ".rhistory",
    ".lesshst",
    ".viminfo",
    "nvim/shada/",
    # the system
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d/",
    "/etc/ssl/private/",
    "/etc/krb5.keytab",
    # Surehand's own state, where it lies by default
    ".local/state/surehand/",
    ".config/surehand/",
    "Application Support/surehand/",
)


def is_secret(path: str) -> bool:
    """Whether `path` is, by name alone, a secret file or directory, or inside such a directory.

    A path that ends in `/` is a directory: `.env/` (a virtual environment) is not a secret, `.ssh/` is.
    """
    parts = path.lower().split("/")
    if any(_ends_here(parts, at) for at, part in enumerate(parts) if part in _PLAIN) or _is_secret_name(parts[-1]):
        return True
    copied = _backup_of(parts[-1])
    return copied is not None and is_secret("/".join((*parts[:-1], copied)))


def may_be_secret(name: bytes) -> bool:
    """A fast first test on the last name of a path: if False, `is_secret` is False as well."""
    name = name.lower()
    if name in SECRET_NAMES or name.startswith(SECRET_BEGINNINGS):
        return True
    if not name.endswith(_ENDINGS_BY_BYTE.get(name[-1:], ())):
        return False
    return name.endswith(_ENDINGS_BYTES) or _backup_of(name.decode("utf-8", "surrogateescape")) is not None


def _backup_of(name: str) -> str | None:
    """Return the original's name if this is the name of a backup, as editors, package managers and people make them."""
    if not name.endswith(_BACKUP_ENDINGS) or (found := _BACKUP.fullmatch(name)) is None:
        return None
    original = found["name"]
    # vim puts a dot before the name of its copy: `.id_rsa.swp`, but also `..env.swp`.
    return original[1:] if found["swap"] and original.startswith(".") and len(original) > 1 else original


def _ends_here(parts: list[str], at: int) -> bool:
    """Whether a pattern without wildcards ends at part `at`: a directory's anywhere, a file's only at the last part."""
    last = at == len(parts) - 1
    return any(_tail(parts, at, pattern) for pattern, folder in _PLAIN[parts[at]] if folder or last)


def _tail(parts: list[str], at: int, pattern: list[str]) -> bool:
    if pattern[0] == "~":
        begin = at + 2 - len(pattern)
        return parts[begin : at + 1] == pattern[1:] and _is_home(parts[:begin])
    begin = at + 1 - len(pattern)
    return begin >= 0 and parts[begin : at + 1] == pattern and (pattern[0] != "" or begin == 0)


def _is_home(parts: list[str]) -> bool:
    match parts:
        case ["~"] | ["", "root"] | ["", "home" | "users", _]:
            return True
        case _:
            return len(parts) > 1 and "/".join(parts) == os.path.expanduser("~").lower().rstrip("/")


def _is_secret_name(name: str) -> bool:
    if not name.endswith(_ENDINGS) and not name.startswith(_BEGINNINGS):
        return False
    wild, exceptions = _expressions()
    return wild.fullmatch(name) is not None and exceptions.fullmatch(_backup_of(name) or name) is None


@cache
def _expressions() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the expressions for names with wildcards and for exceptions."""
    return _union(_WILDCARDS), _union(each[1:] for each in _ALL if each.startswith("!"))


def _union(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(each).replace(r"\*", ".*") for each in patterns), re.DOTALL)


def _by_last_part(patterns: Iterable[str]) -> Mapping[str, list[tuple[list[str], bool]]]:
    """Group patterns by their last part: each as its parts, and whether it means a directory."""
    table: dict[str, list[tuple[list[str], bool]]] = {}
    for pattern in patterns:
        parts = pattern.rstrip("/").split("/")
        table.setdefault(parts[-1], []).append((parts, pattern.endswith("/")))
    return table


_BACKUP: Final = lazy_pattern(
    r"(?:\.?#|\.~|copy of )?(?P<name>.+?)"
    r"(?:#|\.~\d+~|~|[._-](?:bak|old|orig|backup|save|sav|copy|tmp|prev|previous|dpkg-(?:old|dist|new|tmp)|rpm(?:save|new|orig)"
    r"|(?P<swap>sw[m-p]))|[._-]?\d{1,14}| ?\(copy\)|(?: -)? copy(?: \(\d+\))?| \(\d+\))",
    re.DOTALL,
)
# Every name that `_BACKUP` matches ends in one of these: a cheap first filter.
_BACKUP_ENDINGS: Final = (
    *("#", "~", ")", "bak", "old", "orig", "backup", "save", "sav", "copy", "tmp", "prev", "previous", "dist", "new"),
    *("swp", "swo", "swn", "swm"),
    *"0123456789",
)
_BACKUP_ENDINGS_BYTES: Final = tuple(each.encode() for each in _BACKUP_ENDINGS)
_ALL: Final = [each.lower() for each in SECRET_PATTERNS]
_WILDCARDS: Final = [each for each in _ALL if "*" in each and not each.startswith("!")]
_PLAIN: Final = _by_last_part(each for each in _ALL if "*" not in each and not each.startswith("!"))
_ENDINGS: Final = tuple(each[1:] for each in _WILDCARDS if each.startswith("*"))
_BEGINNINGS: Final = tuple(each.partition("*")[0] for each in _WILDCARDS if not each.startswith("*"))
_ENDINGS_BYTES: Final = tuple(each.encode() for each in _ENDINGS)
SECRET_NAMES: Final = frozenset(each.encode() for each in _PLAIN)
"""These three cover every name (in lower case) for which `may_be_secret` is true: whole names, beginnings, endings."""
SECRET_BEGINNINGS: Final = tuple(each.encode() for each in _BEGINNINGS)
SECRET_ENDINGS: Final = (*_ENDINGS_BYTES, *_BACKUP_ENDINGS_BYTES)
# Last byte → the endings with it: for most of the thousands of names in a walk there are few or none to compare.
_ENDINGS_BY_BYTE: Final = {
    each[-1:]: tuple(other for other in SECRET_ENDINGS if other[-1:] == each[-1:]) for each in SECRET_ENDINGS
}
