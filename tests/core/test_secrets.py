"""Which names are secret: one list for every part that must keep them closed."""

from __future__ import annotations

import pytest

from surehand.core.secrets import SECRET_PATTERNS, is_secret

SECRET = [
    ".env",
    ".env2",
    ".env - Copy",
    ".env copy (2)",
    "id_rsa - Copy (3)",
    "/work/app/.env",
    "app/.env.local",
    "app/.ENV.production",
    "deploy/prod.env",
    "/home/ann/.ssh",
    "/home/ann/.ssh/",
    "/home/ann/.ssh/known_hosts",
    "/home/ann/.aws/credentials",
    "keys/server.pem",
    "keys/Server.KEY",
    "id_ed25519",
    "/home/ann/.docker/config.json",
    "/home/ann/.config/gcloud/access_tokens.db",
    "/Users/ann/Library/Application Support/Google/Chrome/Default/Cookies",
    "service-account-prod.json",
    "infra/terraform.tfstate",
    "/etc/shadow",
    "/etc/sudoers.d/90-cloud",
    "/home/ann/.local/state/surehand/audit.jsonl",
    "odd\nname/.env",
    "app/.env~",
    "app/#.env#",
    "..env.swp",
    ".env.~2~",
    "id_rsa.bak",
    "id_rsa~",
    "keys/id_rsa.bak.2",
    "prod.pem.bak",
    "prod.pem.old",
    "prod.pem (copy)",
    ".netrc.orig",
    "/home/ann/.npmrc",
    "/root/.npmrc",
    "/home/ann/.bash_history",
    "/home/ann/.zsh_history",
    "/home/ann/.local/share/fish/fish_history",
    "/home/ann/.duckdb_history",
    "/home/ann/.psql_history.old",
    "/home/ann/.viminfo",
    "/home/ann/.local/state/nvim/shada/main.shada",
    "/home/ann/.cache/huggingface/token",
    "/home/ann/.config/composer/auth.json",
    "/home/ann/.config/github-copilot/apps.json",
    "/home/ann/.claude.json",
]
OPEN = [
    "app/.claude.json",
    "src/sales_history",
    "",
    "/",
    "README.md",
    ".env.example",
    "app/.env.production.example",
    ".env/bin/python",
    ".env/",
    "src/environment.py",
    "etc/shadow",
    "docker/config.json",
    "config",
    "src/keys.py",
    "certifi/cacert.pem",
    "id_ed25519.pub",
    "xid_rsa",
    "shadow",
    ".envy",
    "key.pem.txt",
    "my.ssh/x",
    "/home/ann/project/.npmrc",
    ".npmrc",
    ".env.example~",
    "notes.bak",
    "~",
    "#",
    ".bak",
    "history",
    "grpc/_cython/roots.pem",
]


@pytest.mark.parametrize("path", SECRET)
def test_a_secret_is_known_by_its_name(path: str) -> None:
    assert is_secret(path)


@pytest.mark.parametrize("path", OPEN)
def test_an_ordinary_file_is_not_taken_for_a_secret(path: str) -> None:
    assert not is_secret(path)


@pytest.mark.parametrize("pattern", [each for each in SECRET_PATTERNS if not each.startswith("!")])
def test_every_pattern_of_the_list_bites(pattern: str) -> None:
    name = pattern.replace("*", "x")
    assert is_secret(name)
    assert name.startswith("/") or is_secret(f"/home/ann/{name.removeprefix('~/')}")
    assert not pattern.endswith("/") or is_secret(f"{name}anything/below")


@pytest.mark.parametrize("pattern", [each[1:] for each in SECRET_PATTERNS if each.startswith("!")])
def test_every_exception_of_the_list_holds_unless_its_folder_is_secret(pattern: str) -> None:
    name = pattern.replace("*", "x")
    assert not is_secret(f"/work/{name}")
    assert is_secret(f"/home/ann/.ssh/{name}")
