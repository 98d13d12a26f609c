"""Secrets in the history are asked about where a command can reach them, and nothing else is."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.engine.checking import Checker
from surehand.sandbox import protocol
from surehand.testing import scratch_app


def git(*words: str, cwd: Path) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(["git", *identity, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, message: str, **files: str | None) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", message, cwd=folder)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One secret that was committed second and taken away third; four commits."""
    git("init", "-q", "-b", "main", cwd=tmp_path)
    commit(tmp_path, "one", a="1\n")
    git("branch", "clean", cwd=tmp_path)
    commit(tmp_path, "two", conf___DOT_env="KEY=canary\n")
    git("tag", "dirty", cwd=tmp_path)
    commit(tmp_path, "three", conf___DOT_env=None)
    commit(tmp_path, "four", a="2\n")
    return tmp_path


def make(folder: Path) -> Path:
    """Make a repository with one commit."""
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    commit(folder, "one", a="1\n")
    return folder


def verdict(app: Surehand, command: str, mode: str = "default") -> str:
    return Checker(app.policy, app.session, app.registry).check("Bash", {"command": command}, mode)["decision"]


async def test_a_command_that_can_print_a_committed_secret_asks(repository: Path) -> None:
    blob = git("rev-parse", "dirty:conf/.env", cwd=repository).strip()
    async with scratch_app(repository) as app:
        for command in (
            "git log -p",
            "git log -p -- ':!a'",
            "git log --patch --all",
            "git log -U1 clean..",
            "git show dirty",
            "git show HEAD~1",
            "git show clean dirty",
            "git grep KEY dirty",
            "git grep -e KEY dirty -- .",
            f"git cat-file -p {blob}",
            f"git cat-file blob {blob[:10]}",
            "git cat-file --batch",
            "git cat-file -p dirty:conf/.env",
            "git cat-file blob dirty:conf/.env",
            "git diff --text dirty",
            "git diff -aw dirty",
            "git grep -eKEl dirty",
            "git grep -e -l -e KEY dirty",
            "git show -S -s dirty",
            "git log -p --max-count=3",
            "cd conf; git log -p",
            "git log -p | head",
        ):
            assert verdict(app, command) in ("ask", "deny"), command
            assert verdict(app, command, "plan") in ("ask", "deny"), command


async def test_a_note_that_is_the_content_of_a_secret_asks_where_notes_are_printed(repository: Path) -> None:
    commands = ("git log", "git log -1 clean", "git show --stat clean", "git notes show clean", "git log --notes=x -1")
    git("notes", "add", "-m", "a remark", "HEAD", cwd=repository)
    async with scratch_app(repository) as app:
        assert {verdict(app, command) for command in commands} == {"allow"}
        git("notes", "--ref=x", "add", "-C", "dirty:conf/.env", "clean", cwd=repository)
        assert {verdict(app, command) for command in commands} == {"ask"}
        git("pack-refs", "--all", cwd=repository)
        assert {verdict(app, command, "plan") for command in commands} <= {"ask", "deny"}
        assert verdict(app, "git status && git notes list && git diff") == "allow"


async def test_a_folder_that_the_index_holds_as_one_entry_is_looked_into(tmp_path: Path) -> None:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    commit(tmp_path, "one", a="1\n", src__b="1\n", conf__deep___DOT_env="KEY=canary\n", docs__c="KEY\n")
    git("sparse-checkout", "set", "--cone", "--sparse-index", "src", cwd=tmp_path)
    async with scratch_app(tmp_path) as app:
        assert verdict(app, "git grep --cached KEY") == "ask"
        assert verdict(app, "git grep --cached -l KEY") == "allow"
        assert verdict(app, "git grep KEY && git status") == "allow"


async def test_more_folders_in_an_index_than_can_be_looked_into_ask(tmp_path: Path) -> None:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    commit(tmp_path, "one", src__b="1\n", **{f"d{number}__c": "KEY\n" for number in range(51)})
    git("sparse-checkout", "set", "--cone", "--sparse-index", "src", cwd=tmp_path)
    async with scratch_app(tmp_path) as app:
        assert verdict(app, "git grep --cached KEY") == "ask"
        git("sparse-checkout", "set", "--cone", "--sparse-index", "src", "d1", cwd=tmp_path)
        assert verdict(app, "git grep --cached KEY") == "allow"


async def test_a_command_that_cannot_is_not_asked_about(repository: Path) -> None:
    blob = git("rev-parse", "HEAD:a", cwd=repository).strip()
    async with scratch_app(repository) as app:
        for command in (
            "git log",
            "git log --oneline --all",
            "git log --stat",
            "git show HEAD",
            "git show --stat dirty",
            "git show clean",
            "git log -p clean",
            "git log -p -1",
            "git log -p HEAD~1..",
            "git grep 2 HEAD",
            "git grep -l KEY dirty",
            f"git cat-file -p {blob}",
            "git cat-file -p HEAD",
            "git cat-file -p HEAD:a",
            "git cat-file blob HEAD:a",
            "git cat-file -p dirty^{tree}",
            "git cat-file -t dirty",
            "git diff HEAD~3",
            "git status",
        ):
            assert verdict(app, command) == "allow", command


async def test_a_repository_without_secrets_asks_nothing_and_what_is_added_is_seen(tmp_path: Path) -> None:
    git("init", "-q", cwd=tmp_path)
    commit(tmp_path, "one", a="1\n", _DOT_env_DOT_example="KEY=\n")
    async with scratch_app(tmp_path) as app:
        assert verdict(app, "git log -p") == "allow"
        assert verdict(app, "git show") == "allow"
        every = ("git log -p --all", "git log -p --branches", "git reflog -p", "git show HEAD@{0}")
        for command in every:
            assert verdict(app, command) == "allow", command
        shutil.rmtree(tmp_path / ".git" / "logs")  # as in many a clone made for a build
        assert verdict(app, "git log -p --all") == "allow"
        commit(tmp_path, "two", id_rsa="key\n")
        for command in every:
            assert verdict(app, command) == "ask", command
        assert verdict(app, "git log -p") == "ask"
        assert verdict(app, "git show") == "ask"


REACHING = """
git log -p .
git log -p ./
git log -p ':!a'
git log -p --full-diff a
git show :/two
git log -p :/four
git log -p -1 --skip=1
git log -1 -p --grep=two
git log -n1 -p -S KEY
git log -1 -p --author=t HEAD~1
git log -1 -p -- '*env*'
git log -p --branches=main clean
git log -p --glob=heads clean
git log -p --tags=dirty clean
git show ORIG_HEAD
git log -p ORIG_HEAD
git log -p 'nosuch*'
git grep KEY ':/two'
"""


@pytest.mark.parametrize("command", REACHING.strip().splitlines())
async def test_revisions_and_paths_are_taken_as_git_takes_them(repository: Path, command: str) -> None:
    (repository / ".git" / "ORIG_HEAD").write_text(git("rev-parse", "dirty", cwd=repository))
    async with scratch_app(repository) as app:
        assert verdict(app, command) != "allow"
        for plain in ("git log -p a", "git show :a", "git log -p -1", "git log -p -1 --stat", "git show HEAD -- a"):
            assert verdict(app, plain) == "allow", plain


AS_GIT_PARSES = """
git grep -ieKEY dirty
git grep -ive -l dirty
git grep -ie -q dirty
git grep -- KEY dirty
git grep -i -- KEY dirty -- .
git log -p --decorate-refs-exclude clean
git log -p --ignore-matching-lines clean
git log -p --grep-reflog clean
git log --output-indicator-new 1 -p
git log -pl 30
git log -pS clean
git show -3
git show -n 3 HEAD
git show --max-count=3
git show -s --tags
git stash show -p -S stash@{1}
git stash show --skip-to stash@{1}
"""


@pytest.mark.parametrize("command", AS_GIT_PARSES.strip().splitlines())
async def test_values_of_options_are_told_from_revisions_as_git_tells_them(repository: Path, command: str) -> None:
    git("tag", "content", "dirty:conf/.env", cwd=repository)
    for name in (".env", "a"):
        (repository / name).write_text("KEY=canary\n")
        git("add", "-f", name, cwd=repository)
        git("stash", "-q", cwd=repository)
    async with scratch_app(repository) as app:
        assert verdict(app, command) == "ask"
        for plain in (
            "git grep -ie KEY HEAD",
            "git grep -n -e -l HEAD",
            "git grep -le KEY dirty",
            "git grep -- KEY",
            "git grep KEY -- dirty",
            "git log -p --since 2000-01-01 clean",
            "git log -p --decorate-refs-exclude dirty clean",
            "git show -1",
            "git show -n 1 HEAD",
            "git stash show -p",
            "git stash show stash@{0} -p --skip-to=a",
        ):
            assert verdict(app, plain) == "allow", plain


async def test_what_git_does_not_know_either_is_not_asked_about(repository: Path) -> None:
    unknown = [
        "nosuch",
        "HEAD~50",
        "main~50..main",
        "abc1234",
        "v9:a",
        "stash",
        "stash@{0}",
        "nosuch...main",
        "^nosuch",
        "refs/heads/nosuch",
    ]
    async with scratch_app(repository) as app:
        for name in unknown:
            failed = subprocess.run(["git", "log", "-p", name], cwd=repository, capture_output=True, text=True)
            assert (failed.returncode, failed.stdout) == (128, ""), name
            assert verdict(app, f"git log -p {name}") == "allow", name
        assert verdict(app, "git stash show -p") == "allow"
        # Of these the repository itself may know more: its settings, a file in its own folder, other parents.
        assert verdict(app, "git log -p @{upstream}") == "ask"
        (repository / ".git" / "nosuch").write_text(git("rev-parse", "dirty", cwd=repository))
        assert verdict(app, "git log -p nosuch") == "ask"
        (repository / ".git" / "info" / "grafts").write_text("")
        assert verdict(app, "git log -p HEAD~50") == "ask"


async def test_the_log_of_head_is_that_of_the_worktree(tmp_path: Path) -> None:
    main, other = tmp_path / "main", tmp_path / "other"
    main.mkdir()
    git("init", "-q", "-b", "main", cwd=main)
    commit(main, "one", a="1\n")
    commit(main, "two", a="2\n")
    git("worktree", "add", "-q", "--detach", str(other), cwd=main)
    commit(other, "three", _DOT_env="KEY=canary\n")
    git("reset", "-q", "--hard", "HEAD~1", cwd=other)
    async with scratch_app(other) as app:
        assert verdict(app, "git log -p") == "allow"
        assert verdict(app, "git show HEAD@{1}") == "ask"
        assert verdict(app, "git log -p --reflog") == "ask"


async def test_what_is_only_staged_or_only_in_the_reflog_is_reached_too(tmp_path: Path) -> None:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    commit(tmp_path, "one", a="1\n")
    commit(tmp_path, "two", _DOT_env="KEY=canary\n")
    git("reset", "-q", "--hard", "HEAD~1", cwd=tmp_path)
    async with scratch_app(tmp_path) as app:
        assert verdict(app, "git log -p") == "allow"
        assert verdict(app, "git grep --cached KEY") == "allow"
        for command in ("git log -g -p", "git reflog -p", "git log -p --reflog", "git show HEAD@{1}"):
            assert verdict(app, command) != "allow", command
        (tmp_path / ".env").write_text("KEY=canary\n")
        git("add", "-f", ".env", cwd=tmp_path)
        assert verdict(app, "git grep --cached KEY") != "allow"


async def test_content_is_known_by_every_path_it_had_and_asked_about_where_it_had_none(tmp_path: Path) -> None:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    commit(tmp_path, "one", a="1\n")
    commit(tmp_path, "two", _DOT_env="KEY=canary\n")
    blob = git("rev-parse", "HEAD:.env", cwd=tmp_path).strip()
    git("rm", "-q", ".env", cwd=tmp_path)
    git("commit", "-q", "--amend", "--allow-empty", "-m", "two", cwd=tmp_path)
    (tmp_path / "left").write_text("of no tree")
    lost = git("hash-object", "-w", "left", cwd=tmp_path).strip()
    async with scratch_app(tmp_path) as app:
        for command in (
            f"git cat-file -p {blob}",
            f"git cat-file blob {blob[:9]}",
            f"git cat-file -p {lost}",
            f"git diff {blob} :a",
        ):
            assert verdict(app, command) != "allow", command
        assert verdict(app, f"git diff {git('rev-parse', 'HEAD', cwd=tmp_path).strip()}") == "allow"
        assert verdict(app, "git log -p --stdin") != "allow"
        assert verdict(app, f"git cat-file -p {git('rev-parse', ':a', cwd=tmp_path).strip()}") == "allow"


async def test_what_other_worktrees_and_stashes_hold_is_reached_by_what_names_everything(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    main.mkdir()
    git("init", "-q", "-b", "main", cwd=main)
    commit(main, "one", a="1\n")
    commit(main, "two", a="2\n")
    async with scratch_app(main) as app:
        for command in ("git log -p --all", "git log -p --reflog", "git log -g -p", "git stash list -p"):
            assert verdict(app, command) == "allow", command
        for command in (
            "git stash show -p",
            "git show main~9",
            "git log -p main~9..main",
            "git stash show -p stash@{0}",
        ):
            assert verdict(app, command) == "allow", f"nothing is there: {command}"
        git("config", "extensions.refStorage", "reftable", cwd=main)
        assert verdict(app, "git log -p") != "allow", "references that cannot be read"
        git("config", "-f", ".git/config", "--unset", "extensions.refStorage", cwd=main)
    git("worktree", "add", "-q", "--detach", str(linked), cwd=main)
    commit(linked, "three", _DOT_env="KEY=canary\n")
    commit(linked, "four", _DOT_env=None)
    async with scratch_app(main) as app:
        for command in ("git log -p --all", "git show worktrees/linked/HEAD~1", "git stash list -p"):
            assert verdict(app, command) != "allow", command
        assert verdict(app, "git log -p") == "allow"
    async with scratch_app(linked) as app:
        assert verdict(app, "git show HEAD@{1}") != "allow"
        assert verdict(app, "git show HEAD") != "allow", "it shows what was taken away"
        assert verdict(app, "git show HEAD~2") == "allow"
        assert verdict(app, "git show HEAD@{2}") == "allow"


async def test_where_no_sandbox_leaves_them_out_staged_secrets_and_both_ends_of_a_difference_count(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    can = replace(protocol.abilities(), private_view=False)
    monkeypatch.setattr(protocol, "abilities", lambda: can)
    async with scratch_app(repository) as app:
        assert verdict(app, "git diff --cached") == "allow"
        for command in ("git diff dirty..HEAD", "git diff dirty...clean"):
            assert verdict(app, command) != "allow", command
        (repository / ".env").write_text("KEY=canary\n")
        git("add", "-f", ".env", cwd=repository)
        for command in ("git diff --cached", "git diff --staged -- .", "git diff HEAD", "git diff-index -p HEAD"):
            assert verdict(app, command) != "allow", command
        assert verdict(app, "git diff a") == "allow"


async def test_content_that_is_named_by_itself_is_printed_whatever_the_options_say(repository: Path) -> None:
    blob = git("rev-parse", "dirty:conf/.env", cwd=repository).strip()
    git("tag", "content", blob, cwd=repository)
    harmless = git("rev-parse", "HEAD:a", cwd=repository).strip()
    async with scratch_app(repository) as app:
        for command in (
            f"git show {blob}",
            f"git show -s {blob[:12]}",
            "git show --stat content",
            "git show --name-only content HEAD",
            "git tag -l --format='%(raw)'",
            "git for-each-ref --format='%(*raw)'",
            f"git diff -a {blob} HEAD:a",
        ):
            assert verdict(app, command) != "allow", command
        for command in (f"git show {harmless}", "git show --stat HEAD", "git show --stat clean -- a", "git show -s"):
            assert verdict(app, command) == "allow", command


async def test_which_commits_are_shown_is_taken_as_git_takes_it(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    git("checkout", "-q", "-b", "side", cwd=repository)
    commit(repository, "two", _DOT_env="KEY=canary \n")
    commit(repository, "three", _DOT_env=None)
    git("checkout", "-q", "main", cwd=repository)
    for number in range(3):
        commit(repository, f"later {number}", a=str(number))
    async with scratch_app(repository) as app:
        assert verdict(app, "git log -p -2") == "allow"
        for command in (
            "git log -p main --not ^side",
            "git log -p --not side..main",
            "git log -p side -1 -n 5",
            "git log -p side -n -1",
            "git log --check side",
        ):
            assert verdict(app, command) != "allow", command
        git("merge", "-q", "-m", "merge", "side", cwd=repository)
        assert verdict(app, "git log -p -2") == "allow"
        assert verdict(app, "git log -p -2 --graph") != "allow", "it shows the branch before what is newer"


@pytest.mark.parametrize("how", ["replace", "grafts"])
async def test_commits_that_stand_for_others_ask(tmp_path: Path, how: str) -> None:
    repository = make(tmp_path / "r")
    clean = git("rev-parse", "HEAD", cwd=repository).strip()
    git("checkout", "-q", "--orphan", "other", cwd=repository)
    commit(repository, "other", _DOT_env="KEY=canary\n")
    other = git("rev-parse", "HEAD", cwd=repository).strip()
    git("checkout", "-q", "main", cwd=repository)
    async with scratch_app(repository) as app:
        assert verdict(app, "git log -p") == "allow"
        if how == "replace":
            git("replace", clean, other, cwd=repository)
        else:
            (repository / ".git/info/grafts").write_text(f"{clean} {other}\n")
        for command in ("git log -p", "git --no-replace-objects show HEAD"):
            assert verdict(app, command) != "allow", command


async def test_what_git_takes_for_unchanged_is_searched_in_the_index(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    commit(repository, "two", _DOT_env="KEY=canary\n")
    async with scratch_app(repository) as app:
        assert verdict(app, "git grep KEY") == "allow"
        git("update-index", "--assume-unchanged", ".env", cwd=repository)
        assert verdict(app, "git grep KEY") != "allow"
        assert verdict(app, "git grep -l KEY") == "allow"


async def test_secrets_of_submodules_count_where_their_changes_are_printed(tmp_path: Path) -> None:
    repository = make(tmp_path / "r")
    commit(make(repository / "inner"), "two", _DOT_env="KEY=canary\n")
    git("add", "-A", cwd=repository)
    git("commit", "-q", "-m", "three", cwd=repository)
    async with scratch_app(repository) as app:
        for command in ("git log -p --submodule=diff", "git show --submodule=diff"):
            assert verdict(app, command) != "allow", command
        for command in ("git log -p", "git show", "git show --submodule=log"):
            assert verdict(app, command) == "allow", command


@pytest.mark.parametrize("name", [".ENV", ".env~", "id_rsa.bak", "keys/Server.PEM", "x/.AWS/credentials"])
async def test_a_difference_asks_about_secrets_whose_names_git_cannot_be_told(tmp_path: Path, name: str) -> None:
    repository = make(tmp_path / "r")
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    for text in ("KEY=canary\n", ""):
        (repository / name).write_text(text)
        git("add", "-A", "-f", cwd=repository)
        git("commit", "-q", "-m", "x", cwd=repository)
    async with scratch_app(repository) as app:
        for command in ("git diff HEAD~1", "git diff HEAD~1 HEAD -- .", "git diff-index -p HEAD~1"):
            assert verdict(app, command) != "allow", command
        for command in ("git diff", "git diff a", "git diff HEAD~2 HEAD~2"):
            assert verdict(app, command) == "allow", command


async def test_a_revision_that_a_substitution_prints_may_be_any(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commands = (
        "git diff $(git merge-base main clean)",
        "git show $(git rev-parse HEAD~1)",
        'base=$(git merge-base main clean); git log -p "$base"..HEAD',
        "git log -p $(git describe --tags)..HEAD",
    )
    async with scratch_app(repository) as app:
        assert {verdict(app, command) for command in commands} == {"ask"}
        assert verdict(app, "git log --oneline $(git merge-base main clean)..HEAD") == "allow"
    async with scratch_app(make(tmp_path_factory.mktemp("other") / "clean")) as app:
        assert {verdict(app, command) for command in commands} == {"allow"}


@pytest.mark.parametrize("kind", ["refs/tags/--output=x", "refs/heads/-x", "packed-refs", "HEAD", "reftable"])
async def test_a_reference_named_like_an_option_makes_a_substitution_ask(tmp_path: Path, kind: str) -> None:
    folder = make(tmp_path / "cloned")
    commit_id = git("rev-parse", "HEAD", cwd=folder)
    path = folder / ".git" / kind
    command = 'git log "$(git describe --tags)"'
    async with scratch_app(folder) as app:
        assert verdict(app, command) == "allow"
        if kind == "reftable":
            path.mkdir()
        else:
            path.write_text(
                {"packed-refs": f"{commit_id.strip()} refs/tags/--output=x\n", "HEAD": "ref: refs/heads/-x\n"}.get(
                    kind, commit_id
                )
            )
        assert verdict(app, command) == "ask"


async def test_notes_that_may_be_kept_in_a_reftable_are_asked_about(tmp_path: Path) -> None:
    folder = make(tmp_path / "cloned")
    async with scratch_app(folder) as app:
        assert verdict(app, "git log -1") == "allow"
        git("config", "core.repositoryFormatVersion", "1", cwd=folder)
        with (folder / ".git" / "config").open("a") as file:
            file.write("[extensions]\n\trefStorage = reftable\n")
        (folder / ".git" / "reftable").mkdir()
        assert verdict(app, "git log -1") == "ask"
