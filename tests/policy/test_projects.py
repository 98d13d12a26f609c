"""Files of a folder that steer the tools which only look there: each makes an everyday read ask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy


def decide(workspace: Path, command: str, mode: str | None = None) -> dict[str, str]:
    app = Surehand(workspace, keep_state=False)
    policy = Policy.from_settings(app.settings, str(workspace))
    return Checker(policy, app.session, app.registry).check("Bash", {"command": command}, mode)


def commit_all(folder: Path) -> None:
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*run, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "sub").mkdir(parents=True)
    (folder / "deep" / "er").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("KEY=1\n")
    return folder


# What stands in the workspace, and the command that must not run unasked because of it.
STEERED = [
    ("rust-toolchain.toml", '[toolchain]\npath = "evil"\n', "cargo --version"),
    ("rust-toolchain.toml", '[toolchain]\n"p\\u0061th" = "evil"\n', "cargo --version"),
    ("rust-toolchain", "/tmp/evil\n", "rustc -V"),
    ("rust-toolchain.toml", '[toolchain]\npath = "evil"\n', "rustfmt --check src/main.rs"),
    (".tool-versions", "nodejs path:./evil\n", "node --version"),
    (".python-version", "../../evil\n", "python --version"),
    (".terraform-version", "../../evil\n", "terraform fmt -check"),
    (".tool-versions", "terraform path:./evil\n", "terraform version"),
    (".cargo/config.toml", '[alias]\nfmt = "run"\n', "cargo fmt --check"),
    (".cargo/config.toml", '[build]\nrustc = "./evil"\n', "cargo metadata --no-deps"),
    (".cargo/config.toml", "not toml at all", "cargo metadata --no-deps"),
    (".cargo/config", '[alias]\nmetadata = "run"\n', "cargo locate-project"),
    ("Cargo.toml", '[workspace]\nmembers = ["../other"]\n', "cargo metadata --no-deps"),
    ("Cargo.toml", '[package]\nworkspace = "/elsewhere"\n', "cargo metadata --no-deps"),
    ("go.mod", "module m\nreplace x => ../other\n", "go list -m all"),
    ("go.work", "go 1.22\nuse ../other\n", "go list ./..."),
    ("ruff.toml", "fix = true\n", "ruff check"),
    ("ruff.toml", "fix-only = true\n", "ruff check ."),
    ("pyproject.toml", "[tool.ruff]\nfix = true\n", "ruff check ."),
    ("ruff.toml", 'extend = "../secret.txt"\n', "ruff check"),
    ("ruff.toml", 'extend = "~/.aws/credentials"\n', "ruff format --check"),
    ("ruff.toml", 'extend = "$HOME/x.toml"\n', "ruff check"),
    ("deep/er/ruff.toml", 'extend = "../../../secret.txt"\n', "ruff check"),
    ("ruff.toml", "extend = [", "ruff check"),
    ("json.py", "x", "python3 -m json.tool data.json"),
    ("argparse/__init__.py", "x", "cat data.json | python -m json.tool"),
    ("_colorize.py", "x", "python3.14 -m json.tool data.json"),
    ("pip/__init__.py", "x", "python3 -m pip list"),
    ("org/python/core.py", "x", "python3.6 -m json.tool data.json"),
    ("sub/json.py", "x", "cd sub && python3 -m json.tool ../data.json"),
    (".ackrc", "--files-from=/etc/hosts", "ack main"),
    (".yamllint", "extends: /elsewhere/secret.yaml\n", "yamllint config.yaml"),
    (".shellcheckrc", "disable=SC1090\nexternal-sources=true\n", "shellcheck a.sh"),
    ("shellcheckrc", "source-path=/elsewhere\n", "cd sub && shellcheck ../a.sh"),
    (".yamllint.yml", 'rules: {}\n"ext\\x65nds": /elsewhere\n', "yamllint config.yaml"),
    (".yamllint.yaml", "ignore-from-file: ../../secret\n", "cd sub && yamllint ../config.yaml"),
    (".yarnrc.yml", "yarnPath: ./evil.cjs", "yarn --version"),
    (".pnpmfile.cjs", "x", "pnpm ls"),
    ("package.json", '{"packageManager": "pnpm@9.0.0"}', "pnpm -v"),
]


@pytest.mark.parametrize(("name", "text", "command"), STEERED)
def test_a_read_asks_where_a_file_of_the_folder_steers_it(workspace: Path, name: str, text: str, command: str) -> None:
    assert decide(workspace, command)["decision"] == "allow"
    file = workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    answer = decide(workspace, command)
    assert answer["decision"] == "ask"
    assert name.partition("/")[0] in answer["reason"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ruff.toml", "ruff check"),
        ("sub/pyproject.toml", "ruff check"),
        ("Cargo.toml", "cargo metadata --no-deps"),
        ("rustfmt.toml", "cargo fmt --check"),
        ("go.mod", "go list"),
        ("package.json", "npm pkg get name"),
        (".npmrc", "npm config get registry"),
        ("pyproject.toml", "black --check ."),
        (".yamllint", "yamllint config.yaml"),
        (".shellcheckrc", "shellcheck a.sh"),
        (".python-version", "python3 --version"),
        (".python-version", "pyenv local"),
        (".ruby-version", "rbenv version"),
        (".node-version", "node -v"),
    ],
)
def test_a_manifest_that_is_a_link_to_elsewhere_asks(workspace: Path, name: str, command: str) -> None:
    (workspace / name).symlink_to(workspace.parent / "secret.txt")
    assert decide(workspace, command)["decision"] == "ask"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        (".yamllint", "extends: relaxed\nrules:\n  line-length: {max: 120}\n", "yamllint config.yaml"),
        (".shellcheckrc", "# no sources\ndisable=SC1090,SC2034  # why\n\nshell=bash\n", "shellcheck a.sh"),
        ("rust-toolchain.toml", '[toolchain]\nchannel = "stable"\n', "cargo --version"),
        (".cargo/config.toml", "[net]\nretry = 2\n", "cargo metadata --no-deps"),
        ("rustfmt.toml", "max_width = 120\n", "cargo fmt --check"),
        (".terraform-version", "1.9.5\n", "terraform fmt -check"),
        (
            "Cargo.toml",
            '[workspace]\nmembers = ["crates/*", "sub/../sub"]\n# see ../README\n',
            "cargo metadata --no-deps",
        ),
        ("go.mod", "module m\n// https://example.com/../x\nreplace x => ./sub\n", "go list ./..."),
        ("ruff.toml", "fix = true\n", "ruff check --no-fix ."),
        ("ruff.toml", "fix = true\n", "ruff format --check ."),
        ("sub/ruff.toml", 'extend = "../ruff.toml"\n', "ruff check"),
        ("pyproject.toml", '[tool.ruff]\nline-length = 100\n[tool.other]\nextend = "/x"\n', "ruff check"),
    ],
)
def test_harmless_settings_cause_no_question(workspace: Path, name: str, text: str, command: str) -> None:
    file = workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    assert decide(workspace, command)["decision"] == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cd sub && cargo --version",
        "cd ./sub; cargo --version",
        "cd -- sub && cargo --version",
        "cd -P sub && cargo --version",
        'cd "su"b && cargo --version',
        "d=sub; cd $d; cargo --version",
        "pushd sub; cargo --version",
        "command cd sub && cargo --version",
        "builtin cd sub && cargo --version",
        "env -C sub cargo --version",
        "cd deep/../sub && cargo --version",
        "cd deep && cd ../sub && cargo --version",
        "(cd sub && cargo --version)",
        "if cd sub; then cargo --version; fi",
        "bash -c 'cd sub; cargo --version'",
        "cd $(echo sub) && cargo --version",
        "for d in sub; do cd $d; cargo --version; done",
        "cd link && cargo --version",
        "find sub -maxdepth 0 -execdir cargo --version \\;",
    ],
)
def test_a_pinned_tool_chain_is_seen_after_any_way_of_changing_folders(workspace: Path, command: str) -> None:
    (workspace / "link").symlink_to("sub")
    (workspace / "sub" / "rust-toolchain.toml").write_text('[toolchain]\npath = "evil"\n')
    assert decide(workspace, command)["decision"] != "allow"
    assert decide(workspace, "cargo --version")["decision"] == "allow"


@pytest.mark.parametrize("command", ["wc -l $(find . -type f)", "find . -type f | xargs cat", "cat $(rg --files)"])
def test_a_listing_with_a_blank_in_a_name_is_not_handed_on_unasked(workspace: Path, command: str) -> None:
    (workspace / "a.txt").write_text("x\n")
    assert decide(workspace, command)["decision"] == "allow"
    odd = workspace / "a " / "etc"
    odd.mkdir(parents=True)
    (odd / "passwd").write_text("x\n")
    assert decide(workspace, command)["decision"] == "ask"


def test_the_names_in_the_index_are_looked_at_before_a_listing_is_handed_on(workspace: Path) -> None:
    odd = workspace / "a " / "etc"
    odd.mkdir(parents=True)
    (odd / "passwd").write_text("x\n")
    commit_all(workspace)
    assert decide(workspace, "cat $(git ls-files)")["decision"] == "ask"
    (odd / "passwd").unlink()
    os.removedirs(odd)
    assert decide(workspace, "cat $(git ls-files)")["decision"] == "ask"  # it is still in the index
    commit_all(workspace)
    assert decide(workspace, "cat $(git ls-files)")["decision"] == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "printf '[core]\\nfsmonitor=./x\\n' > bare/config; git -C bare status",
        "cd bare; echo 'ref: refs/heads/main' > HEAD; git log",
        "{ git status; } > .gitattributes",
        "printf '[toolchain]\\npath=\"x\"\\n' > rust-toolchain.toml; cargo --version",
        "echo 'fix = true' > ruff.toml && ruff check",
        "echo 'import os' > json.py; python3 -m json.tool data.json",
        "echo 'import os' > json/__init__.py; python3 -m json.tool data.json",
    ],
)
def test_edits_that_are_accepted_cannot_steer_a_tool_of_the_same_line(workspace: Path, command: str) -> None:
    for name in ("bare/objects", "bare/refs", "json"):
        (workspace / name).mkdir(parents=True)
    found = decide(workspace, command, "accept-edits")
    assert found["decision"] == "ask"
    assert "which the same line writes, steers" in found["reason"]
    (workspace / "config").mkdir()
    harmless = "echo x > notes.md; echo x > config/app.yml; git status; cargo --version"
    assert decide(workspace, harmless, "accept-edits")["decision"] == "allow"
