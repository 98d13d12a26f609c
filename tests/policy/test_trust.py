"""Trust: what a folder brings counts once the user trusts exactly that, and only to narrow."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import re
from pathlib import Path
from typing import Any

import pytest
from tests.policy.policy_requests import request

from surehand import Surehand
from surehand.core.effects import RunCommand
from surehand.core.errors import RuleError, StateError
from surehand.core.settings import Settings
from surehand.policy import packages, trust
from surehand.policy.policy import Policy


def test_a_folder_with_nothing_of_its_own_has_nothing_to_trust(tmp_path: Path) -> None:
    assert trust.state_of(str(tmp_path)).state == "nothing"
    assert not trust.is_trusted(str(tmp_path))


@pytest.mark.parametrize("name", ["surehand.toml", ".mcp.json", ".surehand/tools/x.py", ".surehand/agents/a.md"])
def test_a_change_in_any_file_that_counts_asks_again(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a")
    assert trust.state_of(str(tmp_path)).state == "untrusted"
    assert trust.add_trust(str(tmp_path)).state == "trusted"
    assert trust.is_trusted(str(tmp_path))
    status = os.stat(file)
    file.write_text("b")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = trust.state_of(str(tmp_path))
    assert (now.state, now.changed) == ("changed", (name,))
    trust.add_trust(str(tmp_path))
    file.unlink()
    assert not trust.is_trusted(str(tmp_path))


def test_a_file_that_appears_later_asks_again(tmp_path: Path) -> None:
    trust.add_trust(str(tmp_path))
    assert trust.is_trusted(str(tmp_path))
    (tmp_path / ".mcp.json").write_text("{}")
    assert trust.state_of(str(tmp_path)).changed == (".mcp.json",)


def test_a_link_is_trusted_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("same")
    (tmp_path / "b").write_text("same")
    folder = tmp_path / ".surehand"
    folder.mkdir()
    (folder / "x.py").symlink_to(tmp_path / "a")
    trust.add_trust(str(tmp_path))
    (folder / "x.py").unlink()
    (folder / "x.py").symlink_to(tmp_path / "b")
    assert not trust.is_trusted(str(tmp_path))


def test_trust_is_for_one_folder_and_not_for_those_inside_it(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "surehand.toml").write_text("")
    trust.add_trust(str(tmp_path))
    assert not trust.is_trusted(str(inner))


def test_trust_can_be_taken_back_and_is_kept_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "surehand.toml").write_text("")
    trust.add_trust(str(tmp_path))
    assert trust.trusted_folders() == [str(tmp_path)]
    assert sorted(os.listdir(tmp_path)) == ["surehand.toml"]
    assert trust.remove_trust(str(tmp_path))
    assert not trust.remove_trust(str(tmp_path))
    assert not trust.is_trusted(str(tmp_path))


def test_a_broken_store_trusts_nothing(tmp_path: Path) -> None:
    trust.add_trust(str(tmp_path))
    store = Path(os.environ["SUREHAND_HOME"]) / "trust.json"
    store.write_text("{")
    with pytest.raises(StateError, match="nothing is trusted"):
        trust.is_trusted(str(tmp_path))


def test_a_projects_rules_narrow_always_and_widen_never(tmp_path: Path) -> None:
    (tmp_path / "surehand.toml").write_text(
        '[permissions]\nallow = ["Bash(make:*)"]\ndeny = ["Bash(curl:*)"]\n'
        '[[permissions.rules]]\nallow = "Bash(touch:*)"\n[[permissions.rules]]\nask = "Bash(ls:*)"\n'
    )
    for trusted in (False, True):
        if trusted:
            trust.add_trust(str(tmp_path))
        found = Policy.from_settings(Settings(), str(tmp_path))

        def judged(*words: str, read_only: bool = False, found: Policy = found) -> str:
            return found.judge(request(tmp_path, RunCommand(words, read_only), tool="Bash")).verdict

        assert judged("make") == "ask"
        assert judged("touch", "x") == "ask"
        assert judged("curl", "x") == "deny"
        assert judged("ls", read_only=True) == "ask"


def test_a_projects_rule_is_reported_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "surehand.toml"
    file.write_text('[permissions]\ndeny = [\n    "Bash(curl:*)",\n]\n')
    found = Policy.from_settings(Settings(), str(tmp_path))
    decision = found.judge(request(tmp_path, RunCommand(("curl",), False), tool="Bash"))
    assert decision.rules[0].to_dict() == {
        "verdict": "deny",
        "rule": "Bash(curl:*)",
        "source": "project",
        "file": str(file),
        "line": 3,
        "decided": True,
    }


def test_a_project_file_that_is_a_link_or_wrong_closes_the_door(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("")
    (tmp_path / "surehand.toml").symlink_to(tmp_path / "other.toml")
    with pytest.raises(RuleError, match="is a link"):
        Policy.from_settings(Settings(), str(tmp_path))
    (tmp_path / "surehand.toml").unlink()
    (tmp_path / "surehand.toml").write_text('[permissions]\ndeny = ["Bash("]\n')
    with pytest.raises(RuleError, match=r"surehand.toml:2: the rule 'Bash\('"):
        Policy.from_settings(Settings(), str(tmp_path))


NAMED = {
    "hook": (
        "surehand.toml",
        '[[hooks]]\nevent = "before"\ncommand = "python3 scripts/check.py --all"\n',
        "scripts/check.py",
    ),
    "hook by a shell": ("surehand.toml", '[[hooks]]\nevent = "after"\ncommand = "./run.sh"\n', "scripts/inner.sh"),
    "server": (".mcp.json", '{"mcpServers": {"s": {"command": "node", "args": ["srv/main.js"]}}}', "srv/util.js"),
    "server by a module": (
        ".mcp.json",
        '{"mcpServers": {"s": {"command": "python3", "args": ["-m", "pkg.srv"]}}}',
        "pkg/dep.py",
    ),
    "server by npm": (".mcp.json", '{"mcpServers": {"s": {"command": "npm", "args": ["start"]}}}', "package.json"),
    "tool": (".surehand/tools/t.py", "import sys; sys.path.insert(0, 'scripts'); import helper\n", "scripts/helper.py"),
    "tool by its neighbour": (".surehand/tools/t.py", "from pkg import dep\n", "pkg/dep.py"),
}
FILES = {
    "scripts/check.py": "print(1)\n",
    "scripts/helper.py": "y = 1\n",
    "scripts/inner.sh": "true\n",
    "run.sh": "#!/bin/sh\n. ./scripts/inner.sh\n",
    "srv/main.js": "const u = require('./util');\n",
    "srv/util.js": "module.exports = 1;\n",
    "pkg/__init__.py": "",
    "pkg/srv.py": "from . import dep\n",
    "pkg/dep.py": "x = 1\n",
    "package.json": '{"scripts": {"start": "node srv/main.js"}}',
    "README.md": "scripts/check.py\n",
}


def trusted_project(folder: Path, case: str) -> str:
    """Make a project, trust it, and return the file it runs."""
    own, text, named = NAMED[case]
    for name, content in {**FILES, own: text}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    trust.add_trust(str(folder))
    return named


@pytest.mark.parametrize("case", NAMED)
def test_a_change_of_a_file_that_trusted_ones_name_asks_again_and_says_which(tmp_path: Path, case: str) -> None:
    named = trusted_project(tmp_path, case)
    assert trust.state_of(str(tmp_path)).state == "trusted"
    (tmp_path / "README.md").write_text("changed")
    assert trust.is_trusted(str(tmp_path))
    (tmp_path / named).write_text("other = 1\n")
    now = trust.state_of(str(tmp_path))
    assert now.state == "changed"
    assert named in now.changed
    assert "README.md" not in now.changed


@pytest.mark.parametrize("case", NAMED)
async def test_an_edit_of_what_a_trusted_folder_runs_asks_also_in_accept_edits(tmp_path: Path, case: str) -> None:
    named = trusted_project(tmp_path, case)
    asked: list[str] = []

    def refuse(question: Any) -> str:
        asked.append(question.decision.reason)
        return "no"

    async with Surehand(tmp_path, keep_state=False, mode="accept-edits", approver=refuse) as app:
        (tmp_path / "free.txt").write_text("x")
        await app.call("Write", {"file_path": str(tmp_path / "new.txt"), "content": "x"})
        assert not asked
        await app.call("Read", {"file_path": str(tmp_path / named)})
        done = await app.call("Write", {"file_path": str(tmp_path / named), "content": "x"})
        gone = await app.call("Bash", {"command": f"rm -r {(tmp_path / named).parent.name}"}) if "/" in named else done
    assert not done.ok
    assert not gone.ok
    assert "trusted with" in asked[0]
    assert (tmp_path / named).read_text() == FILES[named]


@pytest.mark.parametrize("case", ["hook", "tool", "server"])
async def test_no_command_changes_what_a_trusted_folder_runs(tmp_path: Path, case: str) -> None:
    named = trusted_project(tmp_path, case)
    settings = Settings.parse({"permissions": {"allow": ["Bash(python3:*)"]}})
    code = f"open('{named[:-2]}' + '{named[-2:]}', 'w').write('x')"
    async with Surehand(tmp_path, keep_state=False, settings=settings) as app:
        done = await app.call("Bash", {"command": f'python3 -c "{code}"'})
    assert not done.ok
    assert (tmp_path / named).read_text() == FILES[named]


LED_TO = {
    "a folder of modules": ({"command": "python", "args": ["-m", "srv"], "env": {"PYTHONPATH": "lib"}}, "lib/srv.py"),
    "what runs at every start": ({"command": "python", "env": {"PYTHONPATH": "lib"}}, "lib/sitecustomize.py"),
    "a directory of its own": ({"command": "python", "args": ["run.py"], "cwd": "sub"}, "sub/run.py"),
    "cd": ({"command": "sh", "args": ["-c", "cd sub && . ./env.sh"]}, "sub/env.sh"),
    "make in a folder": ({"command": "make", "args": ["-C", "sub", "serve"]}, "sub/GNUmakefile"),
    "a program of packages": ({"command": "npx", "args": ["serve-it"]}, "node_modules/.bin/serve-it"),
    "a script of npm that makes": ({"command": "npm", "args": ["start"]}, "Makefile"),
    "a module in a script": ({"command": "sh", "args": ["start.sh"]}, "pkg/tool.py"),
    "a module by its name": ({"command": "python", "args": ["byname.py"]}, "pkg/late.py"),
}


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


# What a server is started with, the files it leads through, and the one that changes or comes.
LED_THROUGH: dict[str, tuple[list[str], dict[str, str], str]] = {
    "the first line of a script": (["./run"], {"run": "#!tools/interpreter\n"}, "tools/interpreter"),
    "a first line with a whole path": (["./run"], {"run": "#!{}/tools/interpreter -x\n"}, "tools/interpreter"),
    "a variable": (["sh", "-c", "exec $PWD/tools/start"], {}, "tools/start"),
    "a variable in braces": (["node", "${workspaceFolder}/srv/main.js"], {}, "srv/main.js"),
    "the folder of a script": (
        ["sh", "bin/run.sh"],
        {"bin/run.sh": '. "$(dirname "$0")"/common.sh\n'},
        "bin/common.sh",
    ),
    "a script without an ending": (["npm", "start"], {"package.json": '{"scripts": {"start": "node cli"}}'}, "cli"),
    "what make includes": (["make", "serve"], {"Makefile": "include mk/rules.mk\n"}, "mk/rules.mk"),
    "a folder beside the script": (
        ["python", "srv/main.py"],
        {"srv/main.py": "import sys, os.path as p\nsys.path = [p.join(p.dirname(__file__), 'lib')]\nimport inner\n"},
        "srv/lib/inner.py",
    ),
    "a folder in the environment": (
        ["env", "PYTHONPATH=lib", "python", "srv/main.py"],
        {"srv/main.py": "import inner\n", "lib/other.py": ""},
        "lib/inner.py",
    ),
    "a compiled module": (
        ["python", "srv/main.py"],
        {"srv/main.py": "import inner\n", "srv/inner.py": ""},
        "srv/inner.cpython-311-x86_64-linux-gnu.so",
    ),
    "a module in place of Python's": (["python", "srv/main.py"], {"srv/main.py": "import json\n"}, "srv/re.py"),
}


@pytest.mark.parametrize("comes", [False, True])
@pytest.mark.parametrize("how", LED_THROUGH)
def test_a_change_behind_what_a_server_names_is_noticed(how: str, comes: bool, tmp_path: Path) -> None:
    words, files, path = LED_THROUGH[how]
    server = {"command": words[0], "args": words[1:]}
    lay(tmp_path, {name: text.replace("{}", str(tmp_path)) for name, text in files.items()})
    lay(tmp_path, {".mcp.json": json.dumps({"mcpServers": {"s": server}}), "notes.md": "", "data.json": "{}"})
    lay(tmp_path, {} if comes else {path: "one\n"})
    trust.add_trust(str(tmp_path))
    lay(tmp_path, {"notes.md": "changed", "data.json": "[]", "new.txt": ""})
    assert trust.is_trusted(str(tmp_path))
    lay(tmp_path, {path: "two\n"})
    assert trust.changed_since_trusted(str(tmp_path)) == (path,)


def test_a_text_that_is_no_path_does_not_keep_a_folder_from_being_trusted(tmp_path: Path) -> None:
    lay(tmp_path, {"hook.py": "x = ['\\ud800', 'a\\0b', 'no/\\ud800/x.py']\n", "surehand.toml": HOOKED})
    assert trust.add_trust(str(tmp_path)).files == ("surehand.toml", "hook.py")


def test_a_script_that_is_a_link_imports_what_lies_beside_the_file_it_leads_to(tmp_path: Path) -> None:
    lay(tmp_path, {"lib/real.py": "import inner\n", "lib/inner.py": "", "surehand.toml": HOOKED})
    (tmp_path / "hook.py").symlink_to("lib/real.py")
    trust.add_trust(str(tmp_path))
    lay(tmp_path, {"lib/inner.py": "changed = 1\n"})
    assert trust.changed_since_trusted(str(tmp_path)) == ("lib/inner.py",)


def test_a_path_through_a_link_to_the_workspace_is_one_in_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "ws")
    lay(tmp_path / "ws", {"hook.py": "", "surehand.toml": HOOKED.replace("hook.py", f"{tmp_path}/link/hook.py")})
    trust.add_trust(str(tmp_path / "link"))
    lay(tmp_path / "ws", {"hook.py": "changed = 1\n"})
    assert trust.changed_since_trusted(str(tmp_path / "ws")) == ("hook.py",)


# A script, what it says, and the file it runs that way.
SAID_BY_A_SCRIPT = {
    "after a NUL": ("exec sh run/x.sh\n#\0\n", "run/x.sh"),
    "after much text": ("# so it goes on\n" * 50_000 + "exec sh run/x.sh\n", "run/x.sh"),
    "as one of 600": ("".join(f"sh run/{each}.sh\n" for each in range(600)), "run/599.sh"),
    "in quotes, with a blank": ("sh 'my run/x.sh'\n", "my run/x.sh"),
    "with a blank after a backslash": ("sh my\\ run/x.sh\n", "my run/x.sh"),
    "by a pattern": ('for each in run.d/*; do . "$each"; done\n', "run.d/x"),
    "by a variable": ('. "$here"/lib/$name.sh\n', "lib/x.sh"),
    "with any ending": (". ./x.settings\n", "x.settings"),
    "in a folder of a list of folders": ("PYTHONPATH=a:b:c python3 -m x\n", "c/x.py"),
}


@pytest.mark.parametrize("how", SAID_BY_A_SCRIPT)
def test_a_change_of_what_a_script_runs_is_noticed_however_it_says_so(how: str, tmp_path: Path) -> None:
    text, path = SAID_BY_A_SCRIPT[how]
    lay(tmp_path, {"surehand.toml": HOOKED.replace("python3 hook.py", "sh hook.sh"), "hook.sh": text, path: "one\n"})
    if how == "in a folder of a list of folders":
        lay(tmp_path, {"surehand.toml": HOOKED.replace("python3 hook.py", text.strip())})
    for number in range(600 if how == "as one of 600" else 0):
        lay(tmp_path, {f"run/{number}.sh": ""})
    trust.add_trust(str(tmp_path))
    lay(tmp_path, {path: "two\n"})
    assert trust.changed_since_trusted(str(tmp_path)) == (path,)


def _lead_to_many(folder: Path) -> None:
    lay(folder, {"hook.sh": "".join(f"sh run/{each}.sh\n" for each in range(packages.MOST_FILES))})
    lay(folder, {f"run/{each}.sh": "" for each in range(packages.MOST_FILES)})


def _lead_to_much(folder: Path) -> None:
    (folder / "program").write_bytes(b"\x7fELF")
    os.truncate(folder / "program", packages.MOST_BYTES)
    lay(folder, {"hook.sh": "./program\n"})


def _link_to_a_folder(folder: Path) -> None:
    lay(folder, {"conf/x.py": "", ".surehand/x.md": ""})
    (folder / ".surehand/tools").symlink_to("../conf")


@pytest.mark.parametrize(
    ("lead", "why"),
    [
        (_lead_to_many, "more than 2,000 files"),
        (_lead_to_much, "more than 268,435,456 bytes"),
        (_link_to_a_folder, r"\.surehand/tools is a link to a folder"),
    ],
)
async def test_a_folder_that_leads_to_too_much_is_not_trusted_and_says_so(lead: Any, why: str, tmp_path: Path) -> None:
    lay(tmp_path, {"surehand.toml": HOOKED.replace("python3 hook.py", "sh hook.sh"), "hook.sh": ""})
    trust.add_trust(str(tmp_path))
    lead(tmp_path)
    assert not trust.is_trusted(str(tmp_path))
    async with Surehand(tmp_path, keep_state=False) as app:
        assert not app.trusted
        assert re.search(why, "\n".join(app.warnings))
    with pytest.raises(StateError, match=why):
        trust.add_trust(str(tmp_path))


async def test_a_compiled_module_never_stands_for_the_source_that_was_trusted(tmp_path: Path) -> None:
    tool = "import sys\nsys.path.insert(0, {!r})\nimport helper_of_trust\nfrom surehand import tool\n@tool\n"
    tool += "def said() -> str:\n    'Say it.'\n    return helper_of_trust.WORD\n"
    lay(tmp_path, {".surehand/tools/t.py": tool.format(str(tmp_path / "lib"))})
    lay(tmp_path, {"lib/helper_of_trust.py": "WORD = 'trusted'\n", "evil.py": "WORD = 'evil'\n"})
    trust.add_trust(str(tmp_path))
    copy = importlib.util.cache_from_source(str(tmp_path / "lib/helper_of_trust.py"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tmp_path / "evil.py"), copy, invalidation_mode=mode)
    async with Surehand(tmp_path, keep_state=False, allow=["said"]) as app:
        assert (await app.call("said", {})).output == "trusted"


HOOKED = '[[hooks]]\nevent = "before"\ncommand = "python3 hook.py"\n'


@pytest.mark.parametrize("how", LED_TO)
def test_a_change_of_what_a_server_leads_to_is_noticed(how: str, tmp_path: Path) -> None:
    server, path = LED_TO[how]
    files = {
        "package.json": '{"scripts": {"start": "make serve"}}',
        "start.sh": "#!/bin/sh\nexec python3 -um pkg.tool\n",
        "byname.py": "import importlib\nimportlib.import_module('pkg.late')\n",
        ".mcp.json": json.dumps({"mcpServers": {"s": server}}),
        path: "one\n",
    }
    lay(tmp_path, files)
    trust.add_trust(str(tmp_path))
    assert trust.is_trusted(str(tmp_path))
    (tmp_path / path).write_text("two\n")
    assert not trust.is_trusted(str(tmp_path))
    assert path in str(trust.changed_since_trusted(str(tmp_path)))
