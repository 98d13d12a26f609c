"""The process that reads shell scripts: started ahead, bounded, and never left behind."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from surehand.shell import syntax
from surehand.shell.syntax import PARSERS, ParserFailure, ParserProcess, Parsers, SyntaxFault, parse_full, parser_path

ARGV = (parser_path(), "--to-json", "-ln", "bash")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_many_threads_get_the_tree_of_their_own_script() -> None:
    def name_in(number: int) -> str:
        tree = parse_full(f"if true; then echo word{number}; fi")
        return (str(tree).count(f"word{number}") and f"word{number}") or ""

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(name_in, range(40))) == [f"word{number}" for number in range(40)]
    PARSERS.end()


def test_a_script_larger_than_a_pipe_is_read_whole() -> None:
    assert len(parse_full("cat <<'EOF'\n" + "x" * 90_000 + "\nEOF")["Stmts"]) == 1


def test_what_prints_too_much_or_takes_too_long_is_ended_and_told() -> None:
    slow = ParserProcess(("/bin/sh", "-c", "cat >/dev/null; exec sleep 60"))
    with pytest.raises(ParserFailure, match="did not finish within"):
        slow.parse(b"x", 0.2, 1000)
    assert not alive(slow.pid)
    loud = ParserProcess(("/bin/sh", "-c", "exec yes"))
    with pytest.raises(ParserFailure, match="too large"):
        loud.parse(b"x", 30, 100_000)
    assert not alive(loud.pid)
    with pytest.raises(ParserFailure, match="cannot be started"):
        ParserProcess(("/nonexistent/parser",))


def test_a_dense_script_of_eighty_kilobytes_is_refused_before_it_costs_much() -> None:
    with pytest.raises(SyntaxFault, match="too large"):
        parse_full("\n".join(f'if [ -f a{n} ]; then echo "$HOME {n}" | head -1; fi' for n in range(1600)))


def program_of(pid: str) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except FileNotFoundError:  # it ended this moment, or has ended and nobody has asked for how
        return ""


def test_the_parser_that_waits_ends_when_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "WAITS_S", 0.05)
    parsers = Parsers()
    pids = [parsers.take(ARGV) for _ in range(3)]
    for process in pids:
        process.end()
    for thread in threading.enumerate():
        if thread.name == "shell-parser":
            thread.join(30)
    assert parsers.take(ARGV).parse(b"echo x", 120, 100_000)[0] == 0
    parsers.end()
    mine = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    assert not [pid for pid in mine if "shfmt" in program_of(pid)]
