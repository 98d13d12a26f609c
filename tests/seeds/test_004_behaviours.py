"""Document 004, the tools reference: every behaviour it lists, tool by tool, through the public door."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.loopback import Site, page
from tests.pictures import HEIC_TURNED

from surehand import Event, Settings, ToolResult
from surehand.shell.report import understand
from surehand.testing import ScriptedModel, scratch_app

# -- Bash -------------------------------------------------------------------------------------------------------------


def understood(command: str) -> dict[str, Any]:
    return understand(command, "/work").to_dict()


@pytest.mark.spec("SHELL-2")
@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("cat <<EOF\n$(date)\nEOF", ["cat", "date"]),
        ("cat <<'EOF'\n$(date)\nEOF", ["cat"]),
        ("cat <<-EOF\n\tx\n\tEOF", ["cat"]),
        ("diff <(sort a) <(sort b)", ["diff", "sort", "sort"]),
        ("echo $((1 << 2))", ["echo"]),
        ("cmd1 | cmd2", ["cmd1", "cmd2"]),
        ("cmd1 && cmd2 || cmd3", ["cmd1", "cmd2", "cmd3"]),
        ("VAR=value command_x", ["command_x"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("for x in *; do d; done", ["d"]),
        ("while e; do f; done", ["e", "f"]),
        ("case x in x) g;; esac", ["g"]),
    ],
)
def test_bash_parses_every_listed_construct(command: str, names: list[str]) -> None:
    shown = understood(command)
    assert shown["ok"], shown
    assert sorted(each["name"] for each in shown["commands"]) == sorted(names)


@pytest.mark.spec("SHELL-2")
@pytest.mark.parametrize("command", ["x > out", "x >> out", "x < in", "x 2>&1"])
def test_bash_finds_redirections(command: str) -> None:
    assert understood(command)["redirects"]


@pytest.mark.spec("SHELL-2")
@pytest.mark.parametrize("command", ["env A=1 rm x", "sudo rm x", "nohup rm x", "timeout 5 rm x"])
def test_bash_names_the_command_behind_a_prefix(command: str) -> None:
    assert "rm" in [each["name"] for each in understood(command)["commands"]]


@pytest.mark.spec("SHELL-3")
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *[(name + " x", "search") for name in ("grep", "rg", "find", "ag", "fd", "locate")],
        *[(name + " x", "read") for name in ("cat", "head", "tail", "less", "wc", "jq", "sort")],
        *[(name, "list") for name in ("ls", "tree", "du", "df", "ps", "stat x")],
        *[(name + " x y", "silent") for name in ("mv", "cp", "rm", "mkdir", "touch", "chmod")],
        ("make", "general"),
        ("cat x > y", "write"),
        ("grep x y | make", "general"),
        ("grep x y | wc -l", "read"),
        ("echo a | grep x", "search"),
        ("printf a | cat", "read"),
    ],
)
def test_bash_classifies_commands(command: str, kind: str) -> None:
    assert understood(command)["class"] == kind


@pytest.mark.spec("SHELL-8")
async def test_bash_runs_in_the_background(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        started = await app.call("Bash", {"command": "echo begun; sleep 60", "run_in_background": True})
        assert started.data["task_id"] == "bg_task_1"
        seen = ""
        while "begun" not in seen:
            seen += (await app.call("TaskOutput", {"id": "bg_task_1"})).output
        listed = await app.call("TaskList")
        assert "bg_task_1 [in_progress] (command)" in listed.output
        stopped = await app.call("TaskStop", {"id": "bg_task_1"})
    assert stopped.data["status"] == "cancelled"


@pytest.mark.spec("SHELL-8")
async def test_bash_ends_a_background_command_at_its_timeout(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        await app.call("Bash", {"command": "sleep 60", "run_in_background": True, "timeout": 200})
        status = "running"
        while status == "running":
            status = (await app.call("TaskOutput", {"id": "bg_task_1"})).data["details"]["status"]
    assert status == "timeout"


@pytest.mark.spec("SHELL-5")
async def test_bash_runs_in_a_process_group_of_its_own(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": "ps -o pgid= -p $$"})
    assert int(result.data["stdout"]) != os.getpgrp()


@pytest.mark.spec("SHELL-5")
async def test_bash_inherits_no_descriptors(tmp_path: Path) -> None:
    (tmp_path / "held").write_text("x")
    with (tmp_path / "held").open() as held:
        os.set_inheritable(held.fileno(), True)
        async with scratch_app(tmp_path) as app:
            result = await app.call("Bash", {"command": "ls -l /proc/self/fd"})
    assert "held" not in result.data["stdout"]


@pytest.mark.spec("SHELL-5")
async def test_bash_filters_secret_environment_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "AZURE_OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "GITHUB_TOKEN",
    ]
    for name in names:
        monkeypatch.setenv(name, "sesame-open")
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": "env"})
    assert "sesame-open" not in result.data["stdout"]
    assert "PATH=" in result.data["stdout"]


@pytest.mark.spec("SHELL-6")
async def test_bash_cuts_long_output_keeping_head_and_tail(tmp_path: Path) -> None:
    script = "import sys; print('A' + 'x' * 400_000 + 'Z'); print('B' + 'y' * 100_000 + 'Y', file=sys.stderr)"
    (tmp_path / "loud.py").write_text(script)
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": "python3 loud.py"})
    stdout, stderr = result.data["stdout"], result.data["stderr"]
    assert 190_000 < len(stdout) < 205_000
    assert 50_000 < len(stderr) < 60_000
    assert (stdout[0], stdout.rstrip()[-1]) == ("A", "Z")
    assert (stderr[0], stderr.rstrip()[-1]) == ("B", "Y")
    head = len(stdout) - len(stdout.lstrip("Ax"))
    assert 0.78 < head / 200_000 < 0.85
    assert result.meta["truncated"]


async def test_bash_marks_lines_of_stderr(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": "echo one; echo two >&2"})
    assert "[stderr] two" in result.output.splitlines()
    assert "one" in result.output.splitlines()


MAGIC = {
    "ELF": b"\x7fELF",
    "PNG": b"\x89PNG\r\n\x1a\n",
    "JPEG": b"\xff\xd8\xff\xe0",
    "PDF": b"%PDF-1.7\n",
    "GIF": b"GIF89a",
    "GZIP": b"\x1f\x8b\x08",
    "ZIP": b"PK\x03\x04",
    "TAR": b"name" + b"\0" * 253 + b"ustar",
    "WASM": b"\0asm\1\0\0\0",
    "Mach-O 32": b"\xce\xfa\xed\xfe",
    "Mach-O 64": b"\xcf\xfa\xed\xfe",
    "BMP": b"BM" + b"\0" * 12,
    "WEBP": b"RIFF\0\0\0\0WEBP",
    "null bytes": b"text\0text",
    "invalid UTF-8": b"\xc3\x28\xa0\xa1" * 8,
}


@pytest.mark.spec("SHELL-7")
async def test_bash_replaces_binary_output_by_a_note(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        for name, start in MAGIC.items():
            (tmp_path / "b").write_bytes(start + b"\x01\x02abc" * 100)
            result = await app.call("Bash", {"command": "cat b"})
            assert "binary" in result.output.lower(), name
            assert "abcabc" not in result.output, name


async def test_bash_reports_output_lines_as_progress(tmp_path: Path) -> None:
    seen: list[Event] = []
    async with scratch_app(tmp_path) as app:
        app.bus.subscribe(seen.append)
        await app.call("Bash", {"command": "echo first; echo second"})
    told = "".join(str(event.to_dict()["data"]) for event in seen if event.kind == "call_progress")
    assert "first" in told
    assert "second" in told


@pytest.mark.slow
async def test_bash_reports_the_time_of_a_command_over_five_seconds(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call("Bash", {"command": "sleep 5.2"})
    assert "5." in result.output


# -- Read -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("FILE-1")
async def test_read_numbers_lines_as_cat_does(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    async with scratch_app(tmp_path) as app:
        result = await app.call("Read", {"file_path": str(tmp_path / "a")})
    numbered = subprocess.run(["cat", "-n", tmp_path / "a"], capture_output=True, text=True, check=True).stdout
    assert result.output == numbered.rstrip("\n")


@pytest.mark.spec("FILE-1")
async def test_read_gives_two_thousand_lines_and_offset_is_zero_based(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"line {number}\n" for number in range(3000)))
    async with scratch_app(tmp_path) as app:
        first = await app.call("Read", {"file_path": "a"})
        later = await app.call("Read", {"file_path": "a", "offset": 1, "limit": 1})
    assert "line 1999" in first.output
    assert "line 2000\n" not in first.output
    assert later.output.splitlines()[0] == "     2\tline 1"


async def test_read_detects_a_binary_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc\0def")
    async with scratch_app(tmp_path) as app:
        result = await app.call("Read", {"file_path": "a"})
    assert not result.ok
    assert "binary" in result.output


@pytest.mark.spec("FILE-2")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "AVIF"])
async def test_read_shows_images_upright_as_base64(tmp_path: Path, kind: str) -> None:
    from PIL import Image

    picture, exif = Image.new("RGB", (40, 20), "red"), Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned = kind in ("JPEG", "PNG", "TIFF")
    target = io.BytesIO()
    try:
        picture.save(target, kind, **({"exif": exif} if turned else {}))
    except (KeyError, OSError):
        pytest.skip(f"this machine cannot write {kind}")
    (tmp_path / "a").write_bytes(target.getvalue())
    async with scratch_app(tmp_path) as app:
        result = await app.call("Read", {"file_path": "a"})
    assert result.ok, result.output
    block = next(each for each in result.to_dict()["content"] if each["type"] == "image")
    shown = Image.open(io.BytesIO(base64.b64decode(block["data"])))
    assert shown.format in ("JPEG", "PNG", "GIF", "WEBP")
    assert shown.size == ((20, 40) if turned else (40, 20))


async def test_read_shows_heic_upright_in_a_format_models_accept(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "a.heic").write_bytes(base64.b64decode(HEIC_TURNED))
    async with scratch_app(tmp_path) as app:
        result = await app.call("Read", {"file_path": "a.heic"})
    assert result.ok, result.output
    block = next(each for each in result.to_dict()["content"] if each["type"] == "image")
    shown = Image.open(io.BytesIO(base64.b64decode(block["data"])))
    assert (shown.format, shown.size) == ("JPEG", (32, 64))


async def test_read_says_that_a_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Read", {"file_path": "a"})).output == "File exists but is empty"


async def test_read_of_a_directory_points_to_ls(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        result = await app.call("Read", {"file_path": str(tmp_path)})
    assert not result.ok
    assert "`ls`" in result.output


@pytest.mark.spec("FILE-2")
async def test_read_of_a_pdf_tells_type_and_size(tmp_path: Path) -> None:
    import pypdfium2

    document: Any = pypdfium2.PdfDocument.new()
    document.new_page(200, 200)
    document.save(tmp_path / "a.pdf")
    async with scratch_app(tmp_path) as app:
        result = await app.call("Read", {"file_path": "a.pdf"})
    assert "PDF" in result.output
    assert "1 page" in result.output


# -- Edit and Write ---------------------------------------------------------------------------------------------------


async def edited(folder: Path, content: bytes, **args: Any) -> ToolResult:
    (folder / "a").write_bytes(content)
    async with scratch_app(folder) as app:
        await app.call("Read", {"file_path": "a"})
        return await app.call("Edit", {"file_path": "a", **args})


@pytest.mark.spec("FILE-4")
async def test_edit_lists_the_lines_of_several_matches(tmp_path: Path) -> None:
    result = await edited(tmp_path, b"x\ny\nx\n", old_string="x", new_string="z")
    assert not result.ok
    assert "1, 3" in result.output


async def test_edit_replaces_all_when_told(tmp_path: Path) -> None:
    assert (await edited(tmp_path, b"x\ny\nx\n", old_string="x", new_string="z", replace_all=True)).ok
    assert (tmp_path / "a").read_text() == "z\ny\nz\n"


async def test_edit_wants_two_different_strings(tmp_path: Path) -> None:
    assert not (await edited(tmp_path, b"x\n", old_string="x", new_string="x")).ok


@pytest.mark.parametrize("old", ["    y = 1", "y = 11"])
async def test_edit_says_what_is_close_to_a_miss(tmp_path: Path, old: str) -> None:
    result = await edited(tmp_path, b"x = 1\n\ty = 1\n", old_string=old, new_string="z")
    assert not result.ok
    assert "y = 1" in result.output.replace(repr(old), "")


@pytest.mark.spec("FILE-4")
async def test_edit_handles_line_ends(tmp_path: Path) -> None:
    assert (await edited(tmp_path, b"one\r\ntwo\r\n", old_string="one\ntwo", new_string="1\n2")).ok
    assert (tmp_path / "a").read_bytes() == b"1\r\n2\r\n"


async def test_edit_keeps_permission_bits(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0o700)
    assert (await edited(tmp_path, b"x", old_string="x", new_string="y")).ok
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


async def test_write_creates_overwrites_and_makes_parents(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Write", {"file_path": "d/e/a", "content": "one"})).ok
        assert (await app.call("FileWrite", {"file_path": "d/e/a", "content": "two"})).ok
    assert (tmp_path / "d/e/a").read_text() == "two"


# -- Glob and Grep ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("FIND-1")
async def test_glob_excludes_by_default_and_sorts_by_time(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    for number, name in enumerate(("old.txt", "new.txt", "ignored.txt")):
        (tmp_path / name).write_text("x" * 5)
        os.utime(tmp_path / name, (1000 + number, 1000 + number))
    for folder in ("node_modules", "__pycache__", "vendor", "dist", "build"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "in.txt").touch()
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "x.pyc").touch()
    async with scratch_app(tmp_path) as app:
        found = await app.call("Glob", {"pattern": "**/*.txt"})
        everything = await app.call("Glob", {"pattern": "**"})
        lifted = await app.call("Glob", {"pattern": "**/*.txt", "include_ignored": True})
    assert found.output.splitlines() == ["new.txt (5 bytes)", "old.txt (5 bytes)"]
    for left_out in (".DS_Store", "x.pyc", "node_modules", ".git/"):
        assert left_out not in everything.output
    assert "ignored.txt" in lifted.output
    assert "build/in.txt" in lifted.output
    assert ".git/" not in lifted.output


@pytest.mark.spec("FIND-1")
async def test_glob_is_cut_at_ten_thousand_and_says_so(tmp_path: Path) -> None:
    for number in range(10_001):
        (tmp_path / f"{number}.x").touch()
    async with scratch_app(tmp_path) as app:
        found = await app.call("Glob", {"pattern": "*.x"})
    assert found.output.count(".x (") == 10_000
    assert "10,001" in found.output or "10,000" in found.output
    assert found.meta["truncated"]


@pytest.mark.spec("FIND-2")
async def test_grep_marks_matches_and_skips_what_it_should(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("ignored.txt\n")
    for name in ("a.txt", "ignored.txt", "b.py"):
        (tmp_path / name).write_text("before\nthe needle here\nafter\n")
    (tmp_path / "c.txt").write_bytes(b"needle\0needle\n")
    async with scratch_app(tmp_path) as app:
        found = await app.call("Grep", {"pattern": "nee.le"})
        filtered = await app.call("Grep", {"pattern": "needle", "glob": "*.py"})
        around = await app.call("Grep", {"pattern": "needle", "glob": "*.py", "context": 1})
        upper = await app.call("Grep", {"pattern": "NEEDLE", "case_insensitive": True, "path": "a.txt"})
        files = await app.call("Grep", {"pattern": "needle", "output_mode": "files_with_matches"})
        counts = await app.call("Grep", {"pattern": "e", "output_mode": "count"})
    assert "the >>needle<< here" in found.output
    assert "ignored.txt" not in found.output
    assert "c.txt" not in found.output
    assert "a.txt" not in filtered.output
    assert "before" in around.output
    assert "after" in around.output
    assert ">>needle<<" in upper.output
    assert files.output.splitlines() == ["a.txt", "b.py"]
    assert "a.txt:3" in counts.output


@pytest.mark.parametrize("file", ["searched", None])
async def test_grep_refuses_a_broken_pattern_also_where_there_is_nothing_to_search(
    tmp_path: Path, file: str | None
) -> None:
    if file:
        (tmp_path / file).write_text("x\n")
    async with scratch_app(tmp_path) as app:
        broken = await app.call("Grep", {"pattern": "("})
        fine = await app.call("Grep", {"pattern": r"\p{Greek}+"})
    assert fine.ok
    assert broken.error is not None
    assert broken.error.code == "invalid_args"


@pytest.mark.spec("FIND-2")
async def test_grep_cuts_long_lines_and_long_output(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("needle" + "x" * 2000 + "\n")
    (tmp_path / "many").write_text("needle\n" * 1000)
    async with scratch_app(tmp_path) as app:
        cut = await app.call("Grep", {"pattern": "needle", "path": "long"})
        limited = await app.call("Grep", {"pattern": "needle", "path": "many"})
        fewer = await app.call("Grep", {"pattern": "needle", "path": "many", "head_limit": 5})
    assert len(max(cut.output.splitlines(), key=len)) < 600
    assert limited.output.count(">>needle<<") == 250
    assert fewer.output.count(">>needle<<") == 5


# -- the web ----------------------------------------------------------------------------------------------------------

LOCAL = Settings.parse({"web": {"allowed_hosts": ["127.0.0.1"]}})
HTML = (
    "<html><head><title>Tom &amp; Jerry</title><style>p{}</style><script>evil()</script></head><body><h1>Head</h1>"
    "<p>First &lt;p&gt; &eacute;</p><ul><li>one</li><li>two</li></ul></body></html>"
)


@pytest.mark.spec("WEB-1")
async def test_web_fetch_turns_pages_into_text() -> None:
    async with Site({"/": page(HTML)}) as site, scratch_app(settings=LOCAL) as app:
        result = await app.call("WebFetch", {"url": site.url()})
    assert result.ok, result.output
    text = result.output[result.output.index("Tom & Jerry") :]
    for part in ("Head", "First <p> é", "one", "two"):
        assert part in text
    assert "evil" not in result.output
    assert "p{}" not in result.output


async def test_web_fetch_lays_out_json_and_fails_on_other_statuses() -> None:
    answers = {
        "/json": page(json.dumps({"a": [1]}), "application/json"),
        "/gone": page("no", status="404 Not Found"),
    }
    async with Site(dict(answers)) as site, scratch_app(settings=LOCAL) as app:
        shown = await app.call("WebFetch", {"url": site.url("/json")})
        gone = await app.call("WebFetch", {"url": site.url("/gone")})
    assert '{\n  "a": [' in shown.output
    assert not gone.ok
    assert "404" in gone.output


@pytest.mark.spec("WEB-1")
async def test_web_fetch_is_limited_to_a_megabyte() -> None:
    big = page("word " * 400_000, "text/plain")
    async with Site({"/": big}) as site, scratch_app(settings=LOCAL) as app:
        result = await app.call("WebFetch", {"url": site.url()})
    assert result.ok
    assert len(result.output) < 1_100_000
    assert result.meta["truncated"]


@pytest.mark.parametrize(("seconds", "ok"), [(120, True), (0, False)])
async def test_web_fetch_bounds_its_timeout(seconds: int, ok: bool) -> None:
    async with Site({"/": page("hello", "text/plain")}) as site, scratch_app(settings=LOCAL) as app:
        result = await app.call("WebFetch", {"url": site.url(), "timeout": seconds})
    assert result.ok is ok


@pytest.mark.spec("WEB-2")
async def test_web_search_says_how_to_set_up_an_engine() -> None:
    async with scratch_app() as app:
        result = await app.call("WebSearch", {"query": "x"})
    assert not result.ok
    for name in ("searxng", "brave", "google"):
        assert name in result.output


# -- Agent ------------------------------------------------------------------------------------------------------------


def parent_and_child(args: dict[str, Any], child: list[Any]) -> ScriptedModel:
    """A model that delegates once, and plays the child as told."""
    steps = iter(child)

    def step(request: Any) -> Any:
        if request.messages[0].text == "delegate":
            return [("Agent", {"prompt": "work", **args})] if len(request.messages) == 1 else "done"
        return next(steps)

    return ScriptedModel(*[step] * 8)


@pytest.mark.spec("AGENT-1")
async def test_agent_sync_waits_for_the_answer(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        outcome = await app.conversation(parent_and_child({"mode": "sync"}, ["the answer"])).ask("delegate")
    assert outcome.results[0].output == "the answer"


@pytest.mark.spec("AGENT-1")
async def test_agent_background_returns_a_task_at_once(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        outcome = await app.conversation(parent_and_child({"mode": "background"}, ["later"])).ask("delegate")
        listed = await app.call("TaskList")
    assert outcome.results[0].ok
    assert "(agent)" in listed.output


@pytest.mark.spec("AGENT-3")
async def test_agent_worktree_keeps_the_child_out_of_the_parent_repository(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("worktrees")))  # it stays: it has changes
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)
    calls: list[Any] = [
        [
            ("Write", {"file_path": "made.txt", "content": "by the child\n"}),
            ("Bash", {"command": "pwd"}),
            ("Gitignore", {"action": "add", "dir": ".", "patterns": ["*.log"]}),
        ],
        "made it",
    ]
    args = {"mode": "worktree", "branch_name": "its-own"}
    async with scratch_app(tmp_path) as app:
        outcome = await app.conversation(parent_and_child(args, calls)).ask("delegate")
    assert outcome.results[0].ok, outcome.results[0].output
    assert "its-own" in outcome.results[0].output
    assert not (tmp_path / "made.txt").exists()
    assert not (tmp_path / ".gitignore").exists()
    branches = subprocess.run(["git", "branch"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "its-own" in branches


@pytest.mark.spec("AGENT-4")
async def test_agent_is_seen_through_the_events_of_its_parent(tmp_path: Path) -> None:
    seen: list[Event] = []
    async with scratch_app(tmp_path) as app:
        app.bus.subscribe(seen.append)
        await app.conversation(parent_and_child({}, [[("time.now", {})], "x"])).ask("delegate")
    kinds = [event.kind for event in seen if event.kind.startswith("subagent_")]
    assert kinds[0] == "subagent_start"
    assert kinds[-1] == "subagent_end"
    assert "subagent_event" in kinds
    assert len({event.data["subagent_id"] for event in seen if event.kind.startswith("subagent_")}) == 1


# -- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("TASK-1")
@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_task_goes_from_pending_over_in_progress_to_its_end(end: str) -> None:
    async with scratch_app() as app:
        made = await app.call("TaskCreate", {"title": "T"})
        assert made.data["status"] == "pending"
        for status in ("in_progress", end):
            moved = await app.call("TaskUpdate", {"id": made.data["id"], "status": status})
            assert moved.data["status"] == status
        again = await app.call("TaskUpdate", {"id": made.data["id"], "status": "in_progress"})
    assert not again.ok


@pytest.mark.spec("TASK-1")
async def test_tasks_share_one_store_and_end_with_the_session(tmp_path: Path) -> None:
    async with scratch_app(tmp_path) as app:
        await app.call("TaskCreate", {"title": "remember me"})
        assert "remember me" in (await app.call("TaskList", {})).output
    async with scratch_app(tmp_path) as app:
        assert "remember me" not in (await app.call("TaskList", {})).output


# -- Gitignore --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("FIND-3")
async def test_gitignore_adds_once_and_checks(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    args = {"action": "add", "dir": str(tmp_path), "patterns": ["*.log", "dist/"]}
    async with scratch_app(tmp_path) as app:
        assert (await app.call("Gitignore", args)).ok
        once = (tmp_path / ".gitignore").read_text()
        assert (await app.call("Gitignore", args)).ok
        ignored = await app.call("Gitignore", {"action": "check", "dir": str(tmp_path), "path": "a.log"})
        free = await app.call("Gitignore", {"action": "check", "dir": str(tmp_path), "path": "build/output.bin"})
    assert once == "*.log\ndist/\n" == (tmp_path / ".gitignore").read_text()
    assert ignored.data["ignored"] is True
    assert free.data["ignored"] is False
