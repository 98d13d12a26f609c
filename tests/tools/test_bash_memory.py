"""A shell with memory: what it remembers is judged with what follows, and no session is left without a shell."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from surehand.app import Surehand
from surehand.commands.session import SHELLS
from surehand.core.call import ToolResult
from surehand.core.settings import Settings
from surehand.testing import Says, scratch_app

PERSISTENT = {"tools": {"Bash": {"custom": {"persistent": True}}}}


class Remembering:
    """A session with such a shell, in which every question is answered with yes."""

    def __init__(self, app: Surehand, says: Says) -> None:
        self.app = app
        self._says = says

    async def __call__(self, command: str) -> ToolResult:
        return await self.app.call("Bash", {"command": command, "timeout": 20_000})

    async def asks(self, command: str) -> bool:
        before = len(self._says.asked)
        await self(command)
        return len(self._says.asked) > before


@asynccontextmanager
async def remembering(workspace: Path) -> AsyncGenerator[Remembering]:
    says = Says("once")
    async with scratch_app(workspace, settings=Settings.parse(PERSISTENT), approver=says) as app:
        yield Remembering(app, says)


@pytest.fixture
async def sh(tmp_path: Path) -> AsyncIterator[Remembering]:
    (tmp_path / "x").write_text("text\n")
    (tmp_path / "sub").mkdir()
    async with remembering(tmp_path) as session:
        yield session


@pytest.mark.spec("SHELL-10")
@pytest.mark.parametrize(
    ("change", "undone"),
    [
        ("cat() { touch made; }", "unset -f cat"),
        ("shopt -s expand_aliases; alias cat='touch made #'", "unalias cat"),
        ("BASH_ALIASES[cat]=touch", "unalias cat"),
        ("mkdir bin; cp /bin/true bin/cat; OLD=$PATH; export PATH=$PWD/bin:$PATH", "PATH=$OLD"),
        ("mkdir bin; cp /bin/true bin/cat; OLD=$PATH; PATH=bin:$PATH", "PATH=$OLD"),
        ("hash -p /bin/true cat", "hash -r"),
        ("trap 'touch made' DEBUG", "trap - DEBUG"),
        ("trap $'touch made\\n:' DEBUG", "trap - DEBUG"),
        ("OLD=$PATH; cp /bin/true cat; unset PATH", "export PATH=$OLD"),
        ("PWD=/etc", "cd .; x=1"),
        ("unset PWD", "cd .; x=1"),
        ("export LD_PRELOAD=/nowhere/x.so", "unset LD_PRELOAD"),
        ("printf 'cat() { touch made; }' > f; . ./f", "unset -f cat"),
        ("OLD=$HOME; HOME=/etc", "HOME=$OLD"),
        ("CDPATH=/etc", "unset CDPATH"),
        ("PS4='$(touch made)'", "PS4='+ '"),
        ("IFS=/", "IFS=$' \\t\\n'"),
        ("command_not_found_handle() { touch made; }", "unset -f command_not_found_handle"),
        ("enable -n echo", "enable echo"),
        ("shopt -s dotglob", "shopt -u dotglob"),
        ("shopt -s extglob", "shopt -u extglob"),
        ("set -k", "set +k"),
        ("set -f", "set +f"),
        ("declare -n x=PATH", "unset -n x"),
        ("declare -i x", "declare +i x"),
    ],
)
async def test_what_the_shell_remembers_makes_a_question_of_a_read(sh: Remembering, change: str, undone: str) -> None:
    assert not await sh.asks("cat x")
    await sh(change)
    assert await sh.asks("cat x")
    await sh(undone)
    assert not await sh.asks("cat x")


@pytest.mark.parametrize(
    "change",
    [
        "export COUNT=1 NAME='a b'",
        "f() { :; }; g=3",
        "export PYTHONPATH=src",
        "mkdir bin; export PATH=$PWD/bin:$PATH VIRTUAL_ENV=$PWD PS1='(env) '",
        "set -e; set -u; set -o pipefail",
        "export LANG=C",
        "trap 'true' EXIT",
        "declare -i count=3; declare -n other=count; declare -a list=(1 2); declare -r fixed=1",
        "SRC_FILE=x; MY_OPTS='-v'; set -x; set +x",
    ],
)
async def test_what_changes_no_meaning_makes_none(sh: Remembering, change: str) -> None:
    await sh(change)
    assert not await sh.asks("cat x && ls | head -2; pwd")


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("readonly n='a[$(touch made)]'", "n=5\necho $((n))"),
        ("declare -l f", "f=X; cat $f"),
        ("declare -u f", "f=x; cat $f"),
        ("declare -i MAPFILE", "mapfile -t < x"),
        ("declare -n _='a[$(touch made)]'", "cat x"),
        ("declare -n OLDPWD=other", "cd ."),
        ("exec 7< /etc/hostname", "cat <&7"),
        ("exec 7< /etc/hostname", "head -1 /dev/fd/7"),
        ("exec 7< /etc/hostname", "head -1 /proc/self/fd/7"),
        ("exec 7> made", "echo more >&7"),
        ("trap 'touch made' EXIT", "cat x; exit"),
        ("trap 'touch made' EXIT", "echo ${nope?}"),
        ("trap 'touch made' EXIT; set -e", "grep nothing x"),
        ("trap 'touch made' EXIT", "break 3"),
    ],
)
async def test_attributes_and_open_files_count_for_whoever_meets_them(sh: Remembering, change: str, read: str) -> None:
    assert await sh.asks(change)
    assert await sh.asks(read)


@pytest.mark.parametrize(
    ("change", "heeds"),
    [
        ("export PYTHONPATH=src", "python3 --version"),
        ("export PYTHONPATH=src", "csvlook x"),
        ("export PERL5OPT=-Msrc", "shasum x"),
        ("export NODE_OPTIONS='--require ./x'", "eslint --version"),
    ],
)
async def test_a_variable_counts_for_those_who_heed_it(sh: Remembering, change: str, heeds: str) -> None:
    await sh(change)
    assert not await sh.asks("ls && cat x | sort | uniq -c; git status; sha512sum x")
    assert await sh.asks(heeds)


async def test_a_list_stays_one_whatever_is_declared(sh: Remembering) -> None:
    assert not await sh.asks("m=(1); k='a[$(touch made)]'; declare -A n")
    assert not await sh.asks("declare -A other; other[k]=1; echo ${other[k]}")
    assert await sh.asks("declare -A m; echo ${m[k]}")
    assert await sh.asks("f() { local m=$(cat x); }; f")
    assert await sh.asks('n=(echo deploy); "${n[@]}"')


async def test_a_report_that_cannot_be_read_ends_the_shell(sh: Remembering) -> None:
    await sh("BASH_XTRACEFD=1; kept=1")
    result = await sh("set -x; true")
    assert "its variables are gone" in result.output
    after = await sh("echo [$kept]")
    assert after.data["stdout"] == "[]\n"
    assert "variables are gone" not in after.output  # said once


async def test_a_shell_that_was_killed_between_two_commands_is_not_replaced_in_silence(sh: Remembering) -> None:
    await sh("kept=1")
    shell, _ = await sh.app.session.keep(SHELLS).persistent_shell()
    os.kill(shell._run.supervisor_pid, signal.SIGKILL)  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(60):
        while shell.alive:
            await asyncio.sleep(0.01)
    result = await sh("echo [$kept]")
    assert result.data["stdout"] == "[]\n"
    assert "its variables are gone" in result.output


async def test_a_directory_left_in_an_earlier_command_is_not_known(sh: Remembering) -> None:
    assert not await sh.asks("cd sub; cd ..")
    assert await sh.asks("cd - && ls")


@pytest.mark.parametrize("leaving", ["continue", "break", "continue 7", "echo a; continue; echo b"])
async def test_leaving_a_loop_that_is_none_of_its_own_keeps_the_shell(sh: Remembering, leaving: str) -> None:
    await sh("kept=1")
    assert (await sh(leaving)).ok
    assert (await sh("echo [$kept]")).data["stdout"] == "[1]\n"


async def test_where_the_shell_is_no_variable_tells(sh: Remembering, tmp_path: Path) -> None:
    await sh("mkdir -p a b && cd a")
    await sh(f"PWD={tmp_path}/b")
    assert sh.app.session.cwd == f"{tmp_path}/a"


@pytest.mark.parametrize("define", ["builtin()", "function builtin"])
async def test_a_function_that_answers_for_the_shell_is_not_believed(sh: Remembering, define: str) -> None:
    forged = """{ case $1 in declare) command echo 'declare -- z="1"';; *) command builtin "$@";; esac; }"""
    await sh(f"{define} {forged}; cat() {{ touch made; }}")
    assert await sh.asks("cat x")
    await sh("z=2")
    assert await sh.asks("cat x")


async def test_what_a_hidden_function_changes_is_in_the_history(sh: Remembering) -> None:
    await sh("ls() { touch made; }")
    result = await sh("ls")
    assert [each["path"].rpartition("/")[2] for each in result.data["changes"]] == ["made"]


async def test_a_new_shell_remembers_nothing(sh: Remembering) -> None:
    await sh("cat() { touch made; }")
    await sh("exit 3")
    assert not await sh.asks("cat x")


@pytest.mark.parametrize(
    "name", ["printf", "eval", "read", "mapfile", "cd", "declare", "alias", "exit", "trap", "hash"]
)
async def test_functions_named_as_what_the_shell_itself_uses_do_no_harm(sh: Remembering, name: str) -> None:
    await sh(f"{name}() {{ :; }}")
    assert (await sh("echo here")).data["stdout"] == "here\n"
    assert (await sh("false")).data["exit_code"] == 1
    assert await sh.asks(f"{name} x")


async def test_set_x_shows_the_command_and_not_what_runs_it(sh: Remembering) -> None:
    result = await sh("set -x; echo a")
    assert result.data["stderr"].lstrip("+") == " echo a\n"


async def test_a_directory_that_is_gone_is_told_and_left_behind(sh: Remembering, tmp_path: Path) -> None:
    await sh("mkdir -p a/b && cd a/b && rm -r ../../a")
    gone = await sh("touch made")
    assert gone.error is not None
    assert gone.error.code == "precondition_failed"
    assert f"{tmp_path}/a/b no longer exists" in gone.error.message
    assert not (tmp_path / "made").exists()
    assert (await sh("pwd")).data["stdout"] == f"{tmp_path}\n"


async def test_a_command_does_not_run_where_the_shell_cannot_go(sh: Remembering, tmp_path: Path) -> None:
    await sh("true")
    shell, _ = await sh.app.session.keep(SHELLS).persistent_shell()
    said: list[bytes] = []
    step = await shell.run("touch made", f"{tmp_path}/nowhere", said.append, said.append, 20)
    assert step.ended.exit_code == 1
    assert b"nowhere: No such file or directory" in b"".join(said)
    assert not (tmp_path / "made").exists()


async def test_a_workspace_that_was_made_anew_is_the_one_commands_see(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with remembering(workspace) as sh:
        await sh("touch old; export KEPT=1")
        shutil.rmtree(workspace)
        missing = await sh("ls")
        assert missing.error is not None
        assert "no longer exists" in missing.error.message
        workspace.mkdir()
        result = await sh("touch new; ls; echo [$KEPT]")
        assert result.data["stdout"] == "new\n[]\n"
        assert "started anew" in result.output
    assert [each.name for each in workspace.iterdir()] == ["new"]


async def test_git_runs_no_hook_in_a_read_of_a_persistent_shell(sh: Remembering, tmp_path: Path) -> None:
    await sh("git init -q . && git -c user.name=n -c user.email=e commit -q --allow-empty -m m")
    hook = tmp_path / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    await sh("touch x && git add x")
    (tmp_path / "ran").unlink(missing_ok=True)
    (tmp_path / "x").touch()
    assert not await sh.asks("git status --short; git diff")
    assert not (tmp_path / "ran").exists()
