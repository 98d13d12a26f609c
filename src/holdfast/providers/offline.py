"""A small planner for a machine with no model: it knows a dozen kinds of request, and says so.

It is no language model. It reads a request by patterns, makes the calls they stand for, and shows what came back.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from holdfast.core.call import ToolCall
from holdfast.core.model import Message, ModelEvent, ModelRequest, TextDelta, Turn

Plan = tuple[str, dict[str, Any]]
LABEL: Final = "offline planner (no language model)"

HELP: Final = f"""\
I am the {LABEL}. I understand requests such as:
  what time is it                    2 + 3 * 4
  read README.md lines 1-20          list the python files
  find TODO in src                   list files in docs
  run the tests                      run `git status`
  fetch https://example.com          where am I
  undo

For everything else, set up a model: `holdfast models` says how."""

_NAMES: Final = {
    "python": "**/*.py",
    "markdown": "**/*.md",
    "javascript": "**/*.js",
    "typescript": "**/*.{ts,tsx}",
    "rust": "**/*.rs",
    "go": "**/*.go",
    "java": "**/*.java",
    "c": "**/*.{c,h}",
    "toml": "**/*.toml",
    "yaml": "**/*.{yml,yaml}",
    "json": "**/*.json",
    "text": "**/*.txt",
    "shell": "**/*.sh",
    "html": "**/*.html",
}
_TESTS: Final = (
    "if [ -f Makefile ] && grep -q '^test:' Makefile; then make test;"
    " elif [ -f package.json ]; then npm test; elif [ -f Cargo.toml ]; then cargo test;"
    " elif [ -f go.mod ]; then go test ./...; else python -m pytest -q; fi"
)


def _time(match: re.Match[str]) -> Plan:
    return "time.now", {}


def _sum(match: re.Match[str]) -> Plan:
    return "calculate", {"expression": match["sum"].strip().replace("^", "**")}


def _read(match: re.Match[str]) -> Plan:
    args: dict[str, Any] = {"file_path": match["path"]}
    if match["first"]:
        first, last = int(match["first"]), int(match["last"] or match["first"])
        args |= {"offset": max(0, first - 1), "limit": max(1, last - first + 1)}
    elif match["count"]:
        args["limit"] = max(1, int(match["count"]))
    return "Read", args


def _grep(match: re.Match[str]) -> Plan:
    pattern = match["quoted"] or match["word"]
    return "Grep", {"pattern": re.escape(pattern)} | ({"path": match["where"]} if match["where"] else {})


def _glob(match: re.Match[str]) -> Plan:
    kind = match["kind"].lower()
    pattern = _NAMES.get(kind) or f"**/*.{kind.lstrip('.')}"
    return "Glob", {"pattern": pattern} | ({"path": match["where"]} if match["where"] else {})


def _list(match: re.Match[str]) -> Plan:
    return "fs.list_dir", {"path": match["where"] or "."}


def _test(match: re.Match[str]) -> Plan:
    return "Bash", {"command": _TESTS, "timeout": 600_000}


def _run(match: re.Match[str]) -> Plan:
    return "Bash", {"command": match["command"].strip()}


def _fetch(match: re.Match[str]) -> Plan:
    return "WebFetch", {"url": match["url"]}


def _here(match: re.Match[str]) -> Plan:
    return "shell.pwd", {}


def _undo(match: re.Match[str]) -> Plan:
    return "Undo", {}


def _echo(match: re.Match[str]) -> Plan:
    return "tools.echo", {"text": match["text"]}


_WHERE: Final = r"(?:\s+(?:in|under|below|inside)\s+(?P<where>[^\s?]+))?"
_POLITE: Final = r"\s*(?:please\s+|can you\s+|could you\s+)?"
_LINES: Final = r"(?:[, ]+lines?\s+(?P<first>\d+)(?:\s*(?:-|to|–)\s*(?P<last>\d+))?)?"
# The first that fits the whole request counts: "list the python files" must not be taken for a file to read.
PATTERNS: Final[tuple[tuple[str, Callable[[re.Match[str]], Plan]], ...]] = (
    (r"(?:what(?:'s| is)? (?:the )?)?(?:current )?time(?: is it)?(?: now)?|what time is it(?: now)?|现在几点.*", _time),
    (r"(?:what(?:'s| is) )?(?:today(?:'s date)?|the date(?: today)?)", _time),
    (
        r"(?:what(?:'s| is)\s+|calculate\s+|compute\s+|how much is\s+)?(?P<sum>[-+(]*\s*[\d.][\d\s.+\-*/%()^,e]*)=?",
        _sum,
    ),
    (r"(?:fetch|get|download|open|read)?\s*(?P<url>https?://\S+?)", _fetch),
    (r"(?:list|show|find)\s+(?:me\s+)?(?:all\s+)?(?:the\s+)?(?P<kind>\.?\w+)\s+files" + _WHERE, _glob),
    (
        r"(?:read|show|print|cat|open|display)\s+(?:me\s+)?(?:the\s+)?(?:first\s+(?P<count>\d+)\s+lines\s+of\s+)?"
        r"(?:file\s+)?[`'\"]?(?P<path>[^\s`'\"?]+)[`'\"]?" + _LINES,
        _read,
    ),
    (
        r"(?:find|search(?: for)?|grep(?: for)?|look for|where is)\s+(?:the (?:word|text)\s+)?"
        r"(?:[`'\"](?P<quoted>[^`'\"]+)[`'\"]|(?P<word>\S+))" + _WHERE,
        _grep,
    ),
    (
        r"(?:list|show)(?:\s+(?:all\s+)?(?:the\s+)?(?:files|folder|directory|contents))?"
        r"(?:\s+(?:in|of|under)\s+(?P<where>[^\s?]+))?|ls",
        _list,
    ),
    (r"(?:run|execute)\s+(?:the\s+|all\s+)*tests?", _test),
    (r"(?:run|execute|\$)\s+[`'\"]?(?P<command>[^`]+?)[`'\"]?", _run),
    (r"(?P<command>git\s+(?:status|log|diff|branch)\b.*)", _run),
    (r"where am i|pwd|what(?:'s| is) the (?:current|working) (?:folder|directory)", _here),
    (r"undo(?: (?:that|it|the last change))?", _undo),
    (r"(?:say|echo|repeat)\s+(?P<text>.+)", _echo),
)


def planned(text: str) -> Plan | None:
    """Return the call a request stands for, or None when no pattern fits it whole."""
    for pattern, plan in PATTERNS:
        if found := re.fullmatch(rf"{_POLITE}(?:{pattern})\s*[?.!]*\s*", text, re.IGNORECASE | re.DOTALL):
            return plan(found)
    return None


class OfflineModel:
    """Answers without a model: one call for one understood request, then its result as the answer."""

    provider = "offline"
    name = LABEL
    context_tokens = 1_000_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        if last.role == "tool":
            text = "\n\n".join(result.output for result in last.results)
            yield TextDelta(text)
            yield Turn(Message("assistant", text))
            return
        plan = planned(last.text.strip())
        known = {tool.name for tool in request.tools}
        if plan is None or not known:
            yield TextDelta(HELP)
            yield Turn(Message("assistant", HELP))
            return
        yield Turn(Message("assistant", "", (ToolCall(*plan, source="model"),)), "tool_use")

    async def close(self) -> None:
        pass
