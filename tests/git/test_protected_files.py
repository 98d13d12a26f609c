"""A contained command cannot leave anything in a repository that later runs as the user; what is found is said."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.core.call import ToolResult
from surehand.sandbox import protocol
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(not protocol.available(), reason="nothing contains commands here")

CANARY = "touch canary"


def run(*words: str, cwd: Path) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always")
    return subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    run("init", "-q", "-b", "main", cwd=folder)
    (folder / "a.txt").write_text("a\n")
    run("add", "-A", cwd=folder)
    run("commit", "-q", "-m", "one", cwd=folder)
    return folder


async def sh(app: Surehand, command: str) -> ToolResult:
    return await app.call("Bash", {"command": command})


async def script(app: Surehand, text: str) -> ToolResult:
    """Run a script out of a file, of which nobody can see before what it does."""
    path = Path(app.session.workspace) / "script.sh"
    path.write_text(text)
    try:
        result = await sh(app, "sh script.sh")
    finally:
        path.unlink()
    assert result.error is None or result.error.code != "permission_denied"
    return result


# What a command writes into the repository it stands in, and what must not be there afterwards.
PLANTED = {
    "commondir": ("mkdir .git/evil; cp -r .git/objects .git/refs .git/evil/; echo evil > .git/commondir", "commondir"),
    "config.worktree": (
        "git config extensions.worktreeConfig true; printf '[core]\\n\\tpager = x\\n' > .git/config.worktree",
        "config.worktree",
    ),
    "hook": ("mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
             "hooks/pre-commit"),
    "module": ("mkdir -p .git/modules; cp -r .git .. 2>/dev/null; git init -q --bare .git/modules/x; "
               "git -C .git/modules/x config core.sshCommand x", ""),
    "attributes": ("mkdir -p .git/info; echo '* filter=x' > .git/info/attributes", "info/attributes"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
async def test_nothing_is_planted_in_a_repository_that_was_there(tmp_path: Path, sandbox: str, name: str) -> None:
    repository(tmp_path)
    before = (tmp_path / ".git/config").read_text()
    command, planted = PLANTED[name]
    async with scratch_app(tmp_path) as app:
        await script(app, command)
    if planted:
        assert not (tmp_path / ".git" / planted).exists()
    assert (tmp_path / ".git/config").read_text() == before
    for config in (tmp_path / ".git").rglob("config*"):
        assert "sshcommand" not in config.read_text().lower()


@pytest.mark.parametrize(
    "setting",
    [
        "core.pager", "core.editor", "core.sshCommand", "core.hooksPath", "core.fsmonitor", "core.askPass", "alias.st",
        "credential.helper", "remote.o.uploadpack", "remote.o.receivepack", "filter.x.clean", "filter.x.smudge",
        "diff.x.textconv", "diff.external", "merge.x.driver", "gpg.program", "sequence.editor", "pager.log",
        "include.path", "core.gitProxy", "interactive.diffFilter", "mergetool.x.cmd", "browser.x.cmd",
        "some.unknownSetting",
    ],
)  # fmt: skip
async def test_a_repository_that_a_command_makes_keeps_no_setting_that_is_not_harmless(
    tmp_path: Path, setting: str
) -> None:
    async with scratch_app(tmp_path) as app:
        result = await sh(
            app, f"git init -q sub && git -C sub config user.name n && git -C sub config {setting} '{CANARY}'"
        )
    config = (tmp_path / "sub/.git/config").read_text()
    assert CANARY not in config
    assert "name = n" in config
    assert result.data["put_back"] == [f"{tmp_path}/sub/.git/config ({setting.lower()})"]
    assert setting.lower() in result.output.lower()


async def test_a_plain_folder_that_is_a_repository_is_looked_through_too(tmp_path: Path, sandbox: str) -> None:
    async with scratch_app(tmp_path) as app:
        result = await script(
            app,
            "mkdir -p b/objects b/refs b/hooks && echo 'ref: refs/heads/main' > b/HEAD && "
            f"printf '[core]\\n\\tbare = true\\n\\tfsmonitor = {CANARY}\\n' > b/config && "
            "printf '#!/bin/sh\\n' > b/hooks/post-index-change",
        )
    assert "fsmonitor" not in (tmp_path / "b/config").read_text()
    assert not (tmp_path / "b/hooks/post-index-change").exists()
    assert len(result.data["put_back"]) == 2


async def test_a_git_file_that_leads_into_the_workspace_brings_no_settings(tmp_path: Path, sandbox: str) -> None:
    async with scratch_app(tmp_path) as app:
        await script(
            app,
            "mkdir -p s store/objects store/refs && echo 'gitdir: ../store' > s/.git && "
            f"echo 'ref: refs/heads/main' > store/HEAD && printf '[core]\\n\\tpager = {CANARY}\\n' > store/config",
        )
    assert "pager" not in (tmp_path / "store/config").read_text()


async def test_hooks_stay_as_they_are_wherever_the_settings_look_for_them(tmp_path: Path, sandbox: str) -> None:
    repository(tmp_path)
    run("config", "core.hooksPath", ".githooks", cwd=tmp_path)
    (tmp_path / ".githooks").mkdir()
    (tmp_path / ".githooks/pre-commit").write_text("#!/bin/sh\n")
    async with scratch_app(tmp_path) as app:
        await script(app, f"echo '{CANARY}' >> .githooks/pre-commit; echo '{CANARY}' > .githooks/pre-push")
    assert (tmp_path / ".githooks/pre-commit").read_text() == "#!/bin/sh\n"
    assert not (tmp_path / ".githooks/pre-push").exists()


@pytest.mark.parametrize(
    ("named", "key", "value"),
    [
        ("more", "include.path", "../more"),
        ("inner", "include.path", "../outer"),
        ("link", "include.path", "../link"),
        ("of-worktree", "extensions.worktreeConfig", "true"),
        ("monitor", "core.fsmonitor", "./monitor"),
        ("clean.sh", "filter.x.clean", "sh clean.sh --all;true"),
        ("run", "alias.x", "!./run"),
    ],
)
async def test_files_that_the_settings_include_or_run_stay_as_they_are(
    tmp_path: Path, sandbox: str, named: str, key: str, value: str
) -> None:
    repository(tmp_path)
    for name in ("more", "inner", "of-worktree", "monitor", "clean.sh", "run", "target"):
        (tmp_path / name).write_text("# old\n")
    (tmp_path / "outer").write_text("[include]\n\tpath = inner\n")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / ".git/config.worktree").write_text("[include]\n\tpath = ../of-worktree\n")
    run("config", key, value, cwd=tmp_path)
    async with scratch_app(tmp_path) as app:
        await script(app, f"echo '[core]' >> {named}; rm -f {named}; echo '[core]' > {named}; echo x > other")
    assert (tmp_path / named).read_text() == "# old\n"
    assert (tmp_path / named).is_symlink() == (named == "link")
    assert (tmp_path / "other").exists(), "what is not named may be written"


async def test_a_repository_beside_an_empty_dot_git_is_looked_through(tmp_path: Path, sandbox: str) -> None:
    async with scratch_app(tmp_path) as app:
        await script(app, f"git init -q --bare sub; mkdir sub/.git; git --git-dir=sub config core.pager '{CANARY}'")
    assert "pager" not in (tmp_path / "sub/config").read_text()


async def test_a_worktree_a_command_makes_works_and_takes_its_settings_from_nowhere_else(
    tmp_path: Path, sandbox: str
) -> None:
    repository(tmp_path)
    async with scratch_app(tmp_path) as app:
        made = await sh(app, "git worktree add -q w && git -C w status --short")
        assert made.ok, made.output
        await sh(
            app,
            "mkdir -p evil && cp -r .git/objects .git/refs evil/ && echo ../../../evil > .git/worktrees/w/commondir",
        )
    commondir = tmp_path / ".git/worktrees/w/commondir"
    assert not commondir.exists() or commondir.read_text() == "../..\n"


async def test_a_submodule_a_command_adds_keeps_only_harmless_settings(tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    workspace = repository(tmp_path / "ws")
    async with scratch_app(workspace) as app:
        added = await sh(
            app,
            f"git -c protocol.file.allow=always submodule add -q {library} lib; "
            f"git -C lib config core.pager '{CANARY}'; git -C lib status --short",
        )
    assert CANARY not in (workspace / ".git/modules/lib/config").read_text(), added.output
    assert run("-C", "lib", "log", "--oneline", cwd=workspace)


HOOK = "printf '#!/bin/sh\\n' > {0}; chmod +x {0}"
BAD_HOOK = f"printf '#!/bin/sh\\n{CANARY}\\n' > {{0}}; chmod +x {{0}}"
BAD_SETTING = f"printf '[core]\\n\\tfsmonitor = {CANARY}\\n' >> "
REBASE = (
    "mkdir .git/rebase-merge; cd .git/rebase-merge; echo refs/heads/main > head-name; git rev-parse HEAD > onto; "
    "git rev-parse HEAD > orig-head; : > done; : > interactive; echo 1 > msgnum; echo 1 > end; "
)
PROGRAM = "mkdir git-merge-x; " + BAD_HOOK.format("git-merge-x/y") + "; "
# What the user has, what a command does, and what the user does afterwards: none of it may run the canary.
LATER = {
    "a link to the settings": ("mv .git/config own; ln -s ../own .git/config", BAD_SETTING + "own", "git status"),
    "a hook that is a link": (
        "mkdir s; " + HOOK.format("s/h") + "; mkdir -p .git/hooks; ln -s ../../s/h .git/hooks/pre-commit",
        f"echo '{CANARY}' >> s/h",
        "git commit --allow-empty -m x",
    ),
    "hooks in a folder that is a link": (
        "mkdir s; rm -rf .git/hooks; ln -s ../s .git/hooks",
        BAD_HOOK.format("s/pre-commit"),
        "git commit --allow-empty -m x",
    ),
    "a link on the way to what is included": (
        "mkdir d1 d2; : > d1/inc; ln -s d1 d; git config include.path ../d/inc",
        BAD_SETTING + "d2/inc; ln -sfn d2 d",
        "git status",
    ),
    "a folder around what is included": (
        "mkdir -p t/u; : > t/u/inc; git config include.path ../t/u/inc",
        f"mv t v; mkdir -p t/u; {BAD_SETTING} t/u/inc",
        "git status",
    ),
    "a folder around the hooks": (
        "mkdir -p t/u; git config core.hooksPath t/u",
        "mv t v; mkdir -p t/u; " + BAD_HOOK.format("t/u/pre-commit"),
        "git commit --allow-empty -m x",
    ),
    "another name of the settings": ("ln .git/config own", BAD_SETTING + "own", "git status"),
    "a new name of the settings": (":", f"ln .git/config own; {BAD_SETTING} own; rm own", "git status"),
    "a new name of a hook": (
        "mkdir -p .git/hooks; " + HOOK.format(".git/hooks/pre-commit"),
        f"ln .git/hooks/pre-commit own; echo '{CANARY}' >> own; rm own",
        "git commit --allow-empty -m x",
    ),
    "what the user's settings include": (
        ": > team; git config --global include.path $PWD/team",
        BAD_SETTING + "team",
        "git status",
    ),
    "what the user's settings would include": (
        "git config --global includeIf.gitdir:$PWD/.path $PWD/new/team",
        f"mkdir new; {BAD_SETTING} new/team",
        "git status",
    ),
    "a program that the user's settings name": (
        "git config --global alias.go '!./s/go'; mkdir s; " + HOOK.format("s/go"),
        f"echo '{CANARY}' >> s/go",
        "git go",
    ),
    "what a rebase will run": (":", f"{REBASE} echo 'exec {CANARY}' > git-rebase-todo", "git rebase --continue"),
    "how a rebase will merge": (
        ":",
        f'{PROGRAM} {REBASE} echo "pick $(git rev-parse side)" > git-rebase-todo; echo x/y > strategy',
        "git rebase --continue; git rebase --skip",
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, with who commits."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    run("config", "--global", "user.name", "t", cwd=folder)
    run("config", "--global", "user.email", "t@example.com", cwd=folder)
    return folder


def does(command: str, cwd: Path) -> None:
    """Have the user run a command, whatever comes of it."""
    subprocess.run(["bash", "-c", command], cwd=cwd, check=False, capture_output=True, stdin=subprocess.DEVNULL)


def two_branches(folder: Path) -> Path:
    repository(folder)
    run("checkout", "-q", "-b", "side", cwd=folder)
    (folder / "b.txt").write_text("b\n")
    run("add", "-A", cwd=folder)
    run("commit", "-q", "-m", "b", cwd=folder)
    run("checkout", "-q", "main", cwd=folder)
    return folder


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", LATER)
async def test_nothing_a_command_leaves_runs_when_the_user_goes_on(tmp_path: Path, sandbox: str, name: str) -> None:
    before, command, after = LATER[name]
    workspace = two_branches(tmp_path / "ws")
    does(before, workspace)
    async with scratch_app(workspace) as app:
        done = await script(app, command)
    does(after, workspace)
    assert not (workspace / "canary").exists(), done.output


@pytest.mark.usefixtures("home")
async def test_what_the_users_own_rebase_will_run_stays(tmp_path: Path, sandbox: str) -> None:
    workspace = two_branches(tmp_path / "ws")
    does("GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -i --exec 'touch ran' --root side", workspace)
    async with scratch_app(workspace) as app:
        done = await script(app, "touch new; git add new; git reset -q; git status")
    assert done.ok, done.output
    does("git rebase --continue", workspace)
    assert (workspace / "ran").exists()
