"""Trust covers the packages and put-together names that a trusted command runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from surehand import Surehand
from surehand.core.settings import Settings
from surehand.policy import packages, trust

SITE = ".venv/lib/python3.11/site-packages"
VENV = {".venv/pyvenv.cfg": "home = /usr\n", "link .venv/bin/python": sys.executable}


def server(command: str) -> dict[str, str]:
    first, *others = command.split()
    return {".mcp.json": json.dumps({"mcpServers": {"s": {"command": first, "args": others}}})}


def node(name: str, *needs: str) -> dict[str, str]:
    about = {"name": name, "dependencies": dict.fromkeys(needs, "*")}
    return {f"node_modules/{name}/package.json": json.dumps(about), f"node_modules/{name}/lib/deep.js": "1"}


def distribution(name: str, *requires: str) -> dict[str, str]:
    info = f"{SITE}/{name}-1.0.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    return {
        f"{info}/METADATA": f"Name: {name}\n{needs}\nText.\n",
        f"{info}/RECORD": f"{name}/__init__.py,,\n{info}/METADATA,,\n",
        f"{SITE}/{name}/__init__.py": "",
        f"{SITE}/{name}/deep.py": "1",
    }


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name.removeprefix("link ")
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("link "):
            path.symlink_to(text)
        else:
            path.write_text(text)


# What a server is started with, the files there are, what changes, and what `surehand trust` names then.
CASES: dict[str, tuple[str, dict[str, str], str, str]] = {
    "the program of a package": (
        "npx serve",
        {**node("serve"), "link node_modules/.bin/serve": "../serve/lib/deep.js"},
        "node_modules/serve/package.json",
        "node_modules/serve/",
    ),
    "a package with a scope and a version": (
        "npx -y @acme/serve@1.2",
        node("@acme/serve"),
        "node_modules/@acme/serve/lib/deep.js",
        "node_modules/@acme/serve/",
    ),
    "what an imported package needs": (
        "node main.js",
        {"main.js": "import {a,\n b} from 'one/sub'", **node("one", "two"), **node("two")},
        "node_modules/two/lib/deep.js",
        "node_modules/two/",
    ),
    "a program that a script of package.json starts": (
        "npm start",
        {
            "package.json": '{"scripts": {"start": "serve", "lint": "lint"}}',
            **node("serve"),
            **node("lint"),
            "link node_modules/.bin/serve": "../serve/lib/deep.js",
            "link node_modules/.bin/lint": "../lint/lib/deep.js",
        },
        "node_modules/serve/package.json",
        "node_modules/serve/",
    ),
    "a package of the workspace itself": (
        "node main.js",
        {"main.js": "require('own')", "packages/own/lib/x.js": "1", "link node_modules/own": "../packages/own"},
        "packages/own/lib/x.js",
        "node_modules/own/",
    ),
    "the shared store of pnpm": (
        "node main.js",
        {
            "main.js": "require('a')",
            "node_modules/.pnpm/a@1/node_modules/a/package.json": '{"dependencies": {"b": "1"}}',
            "node_modules/.pnpm/b@1/node_modules/b/index.js": "1",
            "link node_modules/a": ".pnpm/a@1/node_modules/a",
            "link node_modules/.pnpm/a@1/node_modules/b": "../../b@1/node_modules/b",
        },
        "node_modules/.pnpm/b@1/node_modules/b/index.js",
        "node_modules/.pnpm/a@1/node_modules/b/",
    ),
    "a module of an environment": (
        ".venv/bin/python -m srv",
        {**VENV, **distribution("srv")},
        f"{SITE}/srv/deep.py",
        f"{SITE}/srv/",
    ),
    "what an imported module needs": (
        ".venv/bin/python main.py",
        {**VENV, "main.py": "import one", **distribution("one", "two[fast]>=1"), **distribution("two")}
        | {**distribution("two", 'three; extra == "fast"', 'four; extra == "dev"'), **distribution("three")},
        f"{SITE}/three/deep.py",
        f"{SITE}/three/",
    ),
    "a program of an environment": (
        "uv run serve",
        {**VENV, ".venv/bin/serve": "#!/x/.venv/bin/python\nfrom srv.cli import main\n", **distribution("srv")},
        f"{SITE}/srv/deep.py",
        f"{SITE}/srv/",
    ),
    "an environment that a script enters": (
        "sh run.sh",
        {**VENV, "run.sh": ". .venv/bin/activate\npython -m srv\n", ".venv/bin/activate": "", **distribution("srv")},
        f"{SITE}/srv/deep.py",
        f"{SITE}/srv/",
    ),
    "what each start of an environment runs": (
        ".venv/bin/python main.py",
        {**VENV, "main.py": "", f"{SITE}/x.pth": "import os\n"},
        f"{SITE}/x.pth",
        f"{SITE}/x.pth",
    ),
    "an entry point": (
        "uvx --from ./tool serve",
        {"tool/pyproject.toml": '[project.scripts]\nserve = "srv.cli:main"\n', "tool/src/srv/cli.py": "1"},
        "tool/src/srv/cli.py",
        "tool/src/srv/cli.py",
    ),
    "code in a data file": ("python3 a.py", {"a.py": "exec(open('x.txt').read())", "x.txt": ""}, "x.txt", "x.txt"),
    "data that a shell evaluates": ("sh a.sh", {"a.sh": 'eval "$(cat x.conf)"\n', "x.conf": ""}, "x.conf", "x.conf"),
    "a name joined of parts": (
        "python3 a.py",
        {"a.py": "import os, runpy\nrunpy.run_path(os.path.join('plug', 'x.py'))", "plug/x.py": ""},
        "plug/x.py",
        "plug/x.py",
    ),
    "a path divided by pathlib": (
        "python3 a.py",
        {
            "a.py": "from pathlib import Path\nexec((Path(__file__).parent / 'plug' / 'x.py').read_text())",
            "plug/x.py": "",
        },
        "plug/x.py",
        "plug/x.py",
    ),
    "a name with an unknown part": (
        "python3 a.py",
        {"a.py": "import os, sys\nos.system(f'sh plug/{sys.argv[1]}.sh')", "plug/x.sh": ""},
        "plug/x.sh",
        "plug/x.sh",
    ),
    "a module with an unknown part": (
        "python3 a.py",
        {"a.py": "import importlib, sys\nimportlib.import_module('plug.' + sys.argv[1])", "plug/x.py": ""},
        "plug/x.py",
        "plug/x.py",
    ),
    "a file JavaScript puts together": (
        "node a.js",
        {"a.js": "require('./plug/' + name)", "plug/x.js": ""},
        "plug/x.js",
        "plug/x.js",
    ),
    "a package of Go": (
        "go run ./cmd/srv",
        {"go.mod": "module ex.com/m\n", "cmd/srv/main.go": 'import "ex.com/m/in/x"', "in/x/x.go": ""},
        "in/x/x.go",
        "in/x/x.go",
    ),
    "a module of Rust": (
        "cargo run",
        {"Cargo.toml": "[package]", "src/main.rs": "mod a;", "src/a.rs": "pub mod b;", "src/a/b.rs": ""},
        "src/a/b.rs",
        "src/a/b.rs",
    ),
    "a file of a runner": ("nox -s srv", {"noxfile.py": ""}, "noxfile.py", "noxfile.py"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_what_a_server_runs_in_packages_or_by_a_made_up_name_asks_again(case: str, tmp_path: Path) -> None:
    command, files, changes, named = CASES[case]
    lay(tmp_path, {**server(command), **files, "notes.md": ""} | node("unused") | {f"{SITE}/unused/x.py": ""})
    trust.add_trust(str(tmp_path))
    unused = {"notes.md": "x", f"{SITE}/unused/x.py": "x"}
    unused |= {f"node_modules/{each}/lib/deep.js": "x" for each in ("unused", "lint")}
    lay(tmp_path, {**unused, f"{SITE}/srv/__pycache__/deep.cpython-311.pyc": "x"})
    assert trust.is_trusted(str(tmp_path))
    (tmp_path / changes).write_text("changed = 2\n")
    assert trust.changed_since_trusted(str(tmp_path)) == (named,)


def test_of_what_a_module_needs_only_what_is_wanted_counts(tmp_path: Path) -> None:
    needs = {**distribution("one", "two"), **distribution("two", 'dev; extra == "dev"'), **distribution("dev")}
    lay(tmp_path, {**server(".venv/bin/python main.py"), **VENV, "main.py": "import one", **needs})
    assert [name for name in trust.add_trust(str(tmp_path)).files if name.endswith("/")] == [
        f"{SITE}/{each}/" for each in ("one", "two")
    ]


def test_a_file_that_comes_into_a_package_and_a_link_that_leads_elsewhere_ask_again(tmp_path: Path) -> None:
    lay(tmp_path, {**server("node main.js"), "main.js": "require('own')", "a/x.js": "", "b/x.js": ""})
    lay(tmp_path, {"link node_modules/own": "../a"})
    trust.add_trust(str(tmp_path))
    lay(tmp_path, {"a/new.js": ""})
    assert trust.changed_since_trusted(str(tmp_path)) == ("node_modules/own/",)
    (tmp_path / "a/new.js").unlink()
    assert trust.is_trusted(str(tmp_path))
    (tmp_path / "node_modules/own").unlink()
    lay(tmp_path, {"link node_modules/own": "../b"})
    assert trust.changed_since_trusted(str(tmp_path)) == ("node_modules/own/",)


def test_a_change_with_the_old_time_and_size_is_noticed_and_the_same_contents_anew_are_not(tmp_path: Path) -> None:
    lay(tmp_path, {**server("node main.js"), "main.js": "require('one')", **node("one")})
    file = tmp_path / "node_modules/one/lib/deep.js"
    for each in (file, file.parent.parent / "package.json"):
        os.utime(each, (1, 1))
    trust.add_trust(str(tmp_path))
    file.unlink()
    file.write_text("1")
    assert trust.is_trusted(str(tmp_path))
    file.write_text("2")
    os.utime(file, (1, 1))
    assert trust.changed_since_trusted(str(tmp_path)) == ("node_modules/one/",)


def test_a_package_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, {**server("node main.js"), "main.js": "require('one')", **node("one")})
    monkeypatch.setattr(trust, "_SETTLED_S", -60.0)
    trust.add_trust(str(tmp_path))
    read: list[str] = []
    contents = packages._digest_contents  # pyright: ignore[reportPrivateUsage]

    def note(folder: str, files: Any) -> str:
        read.append(folder)
        return contents(folder, files)

    monkeypatch.setattr(packages, "_digest_contents", note)
    assert trust.is_trusted(str(tmp_path))
    assert read == []
    lay(tmp_path, {"node_modules/one/lib/deep.js": "2"})
    assert not trust.is_trusted(str(tmp_path))
    assert read == [str(tmp_path / "node_modules/one")]


async def test_an_edit_in_a_package_that_a_trusted_folder_runs_asks_also_in_accept_edits(tmp_path: Path) -> None:
    lay(tmp_path, {**server("node main.js"), "main.js": "require('own')", "packages/own/x.js": "1"})
    lay(tmp_path, {"link node_modules/own": "../packages/own", "packages/free/x.js": "1"})
    trust.add_trust(str(tmp_path))
    asked: list[str] = []

    def refuse(question: Any) -> str:
        asked.append(question.decision.reason)
        return "no"

    async with Surehand(tmp_path, keep_state=False, mode="accept-edits", approver=refuse) as app:
        free = await app.call("Write", {"file_path": str(tmp_path / "packages/free/y.js"), "content": "x"})
        assert free.ok, free.error
        for path in ("packages/own/y.js", "node_modules/own/y.js"):
            done = await app.call("Write", {"file_path": str(tmp_path / path), "content": "x"})
            assert not done.ok
    assert ["trusted with" in each for each in asked] == [True, True]


@pytest.mark.parametrize("path", ["packages/own/x.js", "node_modules/one/lib/deep.js"])
async def test_no_command_changes_a_package_that_a_trusted_folder_runs(path: str, tmp_path: Path) -> None:
    lay(tmp_path, {**server("node main.js"), "main.js": "require('own'); require('one')", **node("one")})
    lay(tmp_path, {"link node_modules/own": "../packages/own", "packages/own/x.js": "1"})
    trust.add_trust(str(tmp_path))
    settings = Settings.parse({"permissions": {"allow": ["Bash(python3:*)"]}})
    code = f"open('{path[:-2]}' + '{path[-2:]}', 'w').write('x')"
    async with Surehand(tmp_path, keep_state=False, settings=settings) as app:
        await app.call("Bash", {"command": f'python3 -c "{code}"'})
    assert (tmp_path / path).read_text() == "1"
