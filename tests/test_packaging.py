"""The package as it is installed: a small core, extras named where they are missing, a wheel that works."""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from surehand.core.installation import EXTRA_OF

ROOT = Path(__file__).parents[1]
_CORE_ONLY = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(EXTRA_OF)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from surehand.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def core_only(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line as if no extra were installed."""
    command = [sys.executable, "-c", _CORE_ONLY, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRA_OF.values()) <= set(project["optional-dependencies"])


def test_the_core_does_its_work_without_any_extra(tmp_path: Path) -> None:
    toured = core_only("tour", cwd=tmp_path)
    assert toured.returncode == 0, toured.stdout + toured.stderr
    assert core_only("tools", "list", cwd=tmp_path).returncode == 0
    assert core_only("doctor", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("name", "content", "extra"),
    [("a.png", b"\x89PNG\r\n\x1a\n0000", "documents"), ("a.pdf", b"%PDF-1.4\n", "documents")],
)
def test_a_file_that_needs_an_extra_names_it(name: str, content: bytes, extra: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    shown = core_only("tools", "invoke", "Read", "--text", "--args", f'{{"file_path": "{name}"}}', cwd=tmp_path)
    assert shown.returncode == 1
    assert f"pip install 'surehand[{extra}]'" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("serve", "--stdio"), "serve"),
        (("tools", "invoke", "WebFetch", "--allow", "WebFetch", "--args", '{"url": "http://example.com/"}'), "web"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(words: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    shown = core_only(*words, cwd=tmp_path)
    assert shown.returncode == 1
    assert f"pip install 'surehand[{extra}]'" in shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_server_that_needs_the_missing_extra_says_so(tmp_path: Path) -> None:
    assert core_only("mcp", "add", "time", "--", sys.executable, "-c", "pass", cwd=tmp_path).returncode == 0
    listed = core_only("mcp", "list", "--json", cwd=tmp_path)
    assert "surehand[serve]" in listed.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(ROOT)], check=True, timeout=110)
    return next(directory.glob("*.whl"))


def test_the_wheel_holds_the_pages_the_types_and_the_prompts(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"surehand/py.typed", "surehand/catalog.json", "surehand/docs/concepts.md"} <= names
    assert any(name.startswith("surehand/tools/prompts/") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def _pythons() -> list[str]:
    """Return the interpreters on this machine that the package supports, one of each version."""
    found: dict[str, str] = {"this": sys.executable}
    directories = os.environ.get("PATH", "").split(os.pathsep)
    directories += glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin"))
    for minor in (11, 12, 13, 14):
        for directory in directories:
            path = os.path.join(directory, f"python3.{minor}")
            if os.access(path, os.X_OK) and _runs(path, minor):
                found.setdefault(f"3.{minor}", path)
    return list(found.values())


def _runs(path: str, minor: int) -> bool:
    code = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
    return subprocess.run([path, "-c", code], capture_output=True, timeout=300, check=False).returncode == 0


@pytest.mark.parametrize("python", _pythons())
def test_the_wheel_is_installed_and_opens_its_pages_on_every_python(python: str, wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for words in (["--version"], ["help", "policy"]):
        shown = subprocess.run(
            [python, "-m", "surehand", *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.strip()


def test_the_image_runs_as_an_ordinary_user_and_copies_what_is_there() -> None:
    lines = (ROOT / "packaging" / "docker" / "Dockerfile").read_text().splitlines()
    commands = [line.split() for line in lines if line and line[0] not in "# "]
    assert [words[1] for words in commands if words[0] == "USER"] == ["1000"]
    assert [words[0] for words in commands].index("USER") < [words[0] for words in commands].index("ENTRYPOINT")
    for words in commands:
        if words[0] == "COPY":
            assert all((ROOT / source).exists() for source in words[1:-1]), words


def test_the_action_uses_what_it_declares_and_puts_no_input_into_a_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    text = (ROOT / "action.yml").read_text()
    assert set(re.findall(r"inputs\.(\w+)", text)) == set(action["inputs"])
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])  # an input is data, not shell
    assert all(step.get("uses") or step.get("shell") for step in action["runs"]["steps"])


def test_the_hook_for_pre_commit_runs_a_command_that_exists(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *words = hook["entry"].split()
    assert program == "surehand"
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder, rule in ((good, "Bash(make test)"), (bad, "Bash((")):
        folder.mkdir()
        (folder / "surehand.toml").write_text(f'[permissions]\nallow = ["{rule}"]\n')
    assert core_only(*words, cwd=good).returncode == 0
    assert core_only(*words, cwd=bad).returncode == 2


@pytest.mark.parametrize("version", ["3.10", "2.7", ""], ids=["old", "older", "none"])
def test_setting_up_with_the_wrong_python_says_so_and_leaves_nothing(tmp_path: Path, version: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    fake = tmp_path / "python"
    if version:  # this Python, which says of itself that it is another
        pretend = f"import sys; sys.version_info = (*map(int, '{version}'.split('.')), 0); exec(sys.argv[1])"
        fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$2"\n')
        fake.chmod(0o755)
    words = ["make", "run", f"PYTHON={fake}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Name Python 3.11 or newer: make run PYTHON=" in done.stdout
    assert not version or f"This is Python {version}." in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_devcontainer_sets_up_by_the_verb_of_the_makefile() -> None:
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert settings["postCreateCommand"] == "make setup"
