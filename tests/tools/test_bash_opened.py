"""Allow rules on folders beside the workspace hold for the programs that commands start, not only for their words."""

from __future__ import annotations

from pathlib import Path

import pytest

from surehand import Settings
from surehand.policy.paths import Roots
from surehand.policy.policy import list_opened_folders
from surehand.policy.rules import Origin, parse_rule
from surehand.sandbox import protocol
from surehand.testing import scratch_app

contained = pytest.mark.skipif(not protocol.available(), reason="this system cannot contain commands")


def writes(path: Path) -> dict[str, str]:
    return {"command": f"""python3 -c "open('{path}', 'w').write('x')" """}


@contained
async def test_a_program_may_write_in_a_folder_that_an_allow_rule_opens(tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (other := tmp_path / "other").mkdir()
    (work := tmp_path / "work").mkdir()
    settings = Settings.parse({"permissions": {"allow": ["Bash(python3:*)", f"Edit({shared}/**)"]}})
    async with scratch_app(work, settings=settings) as app:
        assert (await app.call("Bash", writes(shared / "a"))).ok
        await app.call("Bash", writes(other / "a"))
    assert (shared / "a").read_text() == "x"
    assert not (other / "a").exists()


@contained
async def test_what_is_granted_in_mid_session_holds_for_the_next_command(tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (work := tmp_path / "work").mkdir()
    settings = Settings.parse({"permissions": {"allow": ["Bash(python3:*)"]}})
    async with scratch_app(work, settings=settings) as app:
        await app.call("Bash", writes(shared / "a"))
        assert not (shared / "a").exists()
        app.session.grants.append(f"Edit({shared}/**)")
        assert (await app.call("Bash", writes(shared / "a"))).ok
    assert (shared / "a").exists()


@contained
async def test_a_pipe_does_not_hide_that_the_sandbox_said_no(tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text("""raise SystemExit("OSError: [Errno 30] Read-only file system: '/opt/x'")""")
    settings = Settings.parse({"permissions": {"allow": ["Bash"]}})
    async with scratch_app(tmp_path, settings=settings) as app:
        result = await app.call("Bash", {"command": "python3 make.py 2>&1 | tail -1"})
        shown = await app.call("Bash", {"command": "cat make.py"})
    assert result.ok
    assert "/opt/x is outside. A rule such as Edit(/that/folder/**) opens a folder to commands" in result.output
    assert "opens a folder" not in shown.output


def rule(text: str, verdict: str = "allow", source: str = "user") -> object:
    return parse_rule(verdict, text, Origin(source))  # type: ignore[arg-type]


def test_only_whole_folders_that_nothing_protects_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home / ".cache/uv", home / ".ssh", home / ".aws", work, tmp_path / "a", tmp_path / "b/deep"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SUREHAND_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    roots = Roots(str(work))

    def opens(*rules: object) -> tuple[str, ...]:
        return list_opened_folders(rules, (), roots)  # type: ignore[arg-type]

    assert opens(rule("Edit(~/.cache/uv/**)")) == (str(home / ".cache/uv"),)
    assert opens(rule(f"Edit({tmp_path}/a/**)")) == (str(tmp_path / "a"),)
    nothing = ["Edit", "Edit(**)", "Edit(/**)", "Edit(~/**)", "Edit(/etc/**)", "Edit(/usr/**)", "Edit(~/.ssh/**)"]
    nothing += ["Edit(~/.aws/**)", "Edit(src/**)", f"Edit({work}/**)", f"Edit({tmp_path}/a/*.txt)"]
    nothing += [f"Edit({tmp_path}/state/**)", f"Edit({tmp_path}/missing/**)", f"Edit({tmp_path}/[ab]/**)"]
    for text in nothing:
        assert opens(rule(text)) == (), text
    assert opens(rule(f"Edit({tmp_path}/a/**)", source="project")) == ()
    assert opens(rule(f"Edit({tmp_path}/a/**)", "ask")) == ()
    assert opens(rule(f"Edit({tmp_path}/b/**)"), rule(f"Edit({tmp_path}/b/deep/**)", "deny")) == ()
    assert opens(rule(f"Edit({tmp_path}/a/**)"), rule("Edit", "deny")) == ()
