"""What the offline planner understands, in the words people use; and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.providers.offline import HELP, NO_TOOLS, NOT_UNDERSTOOD, OfflineModel, plan_call
from surehand.testing import scratch_app

READ = {"file_path": "README.md"}
UNDERSTOOD: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {
    ("what time is it", "What's the time?", "tell me the time", "what is the date", "what day is it today"): (
        "time.now",
        {},
    ),
    ("2+3*4", "what is 2+3*4?", "calculate 2+3*4", "2+3*4 ="): ("calculate", {"expression": "2+3*4"}),
    ("2 plus 3", "how much is 2 plus 3?"): ("calculate", {"expression": "2 + 3"}),
    ("what is 15% of 200?",): ("calculate", {"expression": "15/100* 200"}),
    ("sqrt(2)", "what is sqrt(2)?"): ("calculate", {"expression": "sqrt(2)"}),
    ("2^10",): ("calculate", {"expression": "2**10"}),
    ("read README.md", "Could you please read README.md?", "show me the file README.md", "cat README.md"): (
        "Read",
        READ,
    ),
    ("what is in README.md", "what does README.md say?", "read `README.md`, please"): ("Read", READ),
    ("read README.md lines 1-20", "read lines 1 to 20 of README.md", "show README.md from line 1 to 20"): (
        "Read",
        READ | {"offset": 0, "limit": 20},
    ),
    ("read line 3 of README.md", "read README.md line 3"): ("Read", READ | {"offset": 2, "limit": 1}),
    ("read README.md from line 3 on",): ("Read", READ | {"offset": 2}),
    ("read the first 5 lines of README.md",): ("Read", READ | {"limit": 5}),
    ("find TODO in src", "find all TODOs in src", "grep -rn TODO src", "search src for TODO"): (
        "Grep",
        {"pattern": "TODO", "path": "src"},
    ),
    ("find TODO", "search for TODO", "grep TODO", "find every TODO here", "where is TODO?"): (
        "Grep",
        {"pattern": "TODO"},
    ),
    ("search for 'a b(1)' in src",): ("Grep", {"pattern": r"a\ b\(1\)", "path": "src"}),
    ("where is main defined?",): ("Grep", {"pattern": "main"}),
    ("list the python files", "which python files are there?", "please list all python files."): (
        "Glob",
        {"pattern": "**/*.py"},
    ),
    ("list the python files in the src folder", "what python files are in src"): (
        "Glob",
        {"pattern": "**/*.py", "path": "src"},
    ),
    ("list all .cfg files",): ("Glob", {"pattern": "**/*.cfg"}),
    ("find files named a.py", "where is the file called a.py?"): ("Glob", {"pattern": "**/a.py"}),
    ("find *.py in src",): ("Glob", {"pattern": "**/*.py", "path": "src"}),
    ("ls", "list the files", "list all files", "what files are here?", "what is in this folder?", "show the files"): (
        "fs.list_dir",
        {"path": "."},
    ),
    ("ls src", "list src", "list the files in src", "what's in src", "list the folder src"): (
        "fs.list_dir",
        {"path": "src"},
    ),
    ("ls -la",): ("Bash", {"command": "ls -la"}),
    ("run `git status`", "run git status", "git status", "show me the git status"): ("Bash", {"command": "git status"}),
    ("run ls .",): ("Bash", {"command": "ls ."}),
    ("run echo now",): ("Bash", {"command": "echo now"}),
    ("how many lines are in README.md", "how many lines does README.md have?"): (
        "Bash",
        {"command": "wc -l -- README.md"},
    ),
    ("fetch https://example.com/a.", "read https://example.com/a"): ("WebFetch", {"url": "https://example.com/a"}),
    ("where am I?", "pwd"): ("shell.pwd", {}),
    ("undo", "undo the last change"): ("Undo", {}),
    ("say hello.",): ("tools.echo", {"text": "hello."}),
}


@pytest.mark.parametrize(("request_", "plan"), [(words, plan) for every, plan in UNDERSTOOD.items() for words in every])
def test_a_request_in_plain_words_becomes_the_call_it_stands_for(
    request_: str, plan: tuple[str, dict[str, Any]]
) -> None:
    assert plan_call(request_) == plan


@pytest.mark.parametrize("words", ["run the tests", "run my tests", "Please run the test suite!", "run all unit tests"])
def test_the_tests_are_run_by_whatever_the_project_uses(words: str) -> None:
    made = plan_call(words)
    assert made is not None
    assert made[0] == "Bash"
    assert "make test" in made[1]["command"]


@pytest.mark.parametrize(
    "words",
    [
        "write a poem",
        "find out why the tests fail",
        "explain the code",
        "what is love",
        "what is e",
        "time to go",
        "x" * 600,
    ],
)
def test_what_it_cannot_do_is_not_taken_for_something_else(words: str) -> None:
    assert plan_call(words) is None


async def test_it_says_what_it_is_and_what_it_knows() -> None:
    async with scratch_app() as app:
        loop = app.conversation(OfflineModel())
        assert (await loop.ask("Hello!")).text == HELP
        assert (await loop.ask("write a poem")).text == NOT_UNDERSTOOD
        assert (await app.conversation(OfflineModel(), with_tools=False).ask("2+2")).text == NO_TOOLS


async def test_a_notice_before_the_request_is_no_part_of_it() -> None:
    async with scratch_app() as app:
        app.session.notices.append("[notice] Background agent agent_1 (look) done: nothing here")
        assert (await app.conversation(OfflineModel()).ask("2+2")).text == "2+2 = 4.00"
