"""The offline model, a small planner for a machine with no model: it knows a dozen kinds of request, and says so.

It is no language model: it matches a request against patterns, makes one call, and shows the result.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from surehand.core.call import ToolCall
from surehand.core.model import Message, ModelEvent, ModelRequest, TextDelta, Turn

LABEL: Final = "offline planner (no language model)"
_EXAMPLES: Final = """\
  what time is it                    2 + 3 * 4
  read README.md lines 1-20          list the python files
  find TODO in src                   list files in docs
  run the tests                      run `git status`
  fetch https://example.com          where am I
  how many lines are in README.md    undo

For everything else, set up a model: `surehand models` says how."""
HELP: Final = f"I am the {LABEL}. I understand requests such as:\n{_EXAMPLES}"
NOT_UNDERSTOOD: Final = f"I do not understand this. I am the {LABEL}; I know requests such as:\n{_EXAMPLES}"
NO_TOOLS: Final = f"I am the {LABEL}. All I can do is call tools, and this conversation has none."
_GREETINGS: Final = ("", "help", "hello", "hi", "hey", "who are you", "what can you do")
_NOTICE: Final = "[notice]"


class OfflineModel:
    """Makes one call for each request that matches a pattern, and answers with its result."""

    provider = "offline"
    caches_prompts = False
    name = LABEL
    context_tokens = 1_000_000

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request as it comes; the last event is the turn."""
        last = request.messages[-1]
        if last.role == "tool":
            said = "\n\n".join(result.output for result in last.results)
        elif not request.tools:
            said = NO_TOOLS
        elif plan := plan_call(asked := _without_notices(last.text)):
            yield Turn(Message("assistant", "", (ToolCall(*plan, source="model"),)), "tool_use")
            return
        else:
            said = HELP if asked.lower().rstrip("?!. ") in _GREETINGS else NOT_UNDERSTOOD
        yield TextDelta(said)
        yield Turn(Message("assistant", said))

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def _without_notices(text: str) -> str:
    """Return the user's own text, without the notices that come before it."""
    parts = text.strip().split("\n\n")
    while len(parts) > 1 and parts[0].startswith(_NOTICE):
        del parts[0]
    return "\n\n".join(parts).strip()


# Patterns of the offline planner: one for each kind of request, with the call to make.

Plan = tuple[str, dict[str, Any]]

_KINDS: Final = {
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
_HERE: Final = re.compile(r"here|this|there|it|current", re.IGNORECASE)
_LONGEST: Final = 500
"""Longest request that is parsed."""
_IN_SIGNS: Final = (
    (r"%\s*of\b", "/100*"),
    (r"\b(?:multiplied by|times)\b", "*"),
    (r"\b(?:divided by|over)\b", "/"),
    (r"\bplus\b", "+"),
    (r"\bminus\b", "-"),
    (r"\bto the power of\b|\^", "**"),
)
"""Operators in words, and as symbols."""


def _time(match: re.Match[str]) -> Plan:
    return "time.now", {}


def _sum(match: re.Match[str]) -> Plan | None:
    sum = match["sum"]
    for words, sign in _IN_SIGNS:
        sum = re.sub(words, sign, sum, flags=re.IGNORECASE)
    left = re.sub(r"[a-z]\w*\(|\bpi\b|\be\b|\d[\d_.]*(?:e[-+]?\d+)?|[-+*/%.,()\s]", "", sum, flags=re.IGNORECASE)
    return ("calculate", {"expression": sum.strip()}) if not left else None


def _read(match: re.Match[str]) -> Plan:
    given = match.groupdict()
    args: dict[str, Any] = {"file_path": given["path"]}
    first, last, count = (int(given[name]) if given.get(name) else 0 for name in ("first", "last", "count"))
    if count:
        args["limit"] = count
    elif first:
        args["offset"] = first - 1
        if last or not given.get("on"):
            args["limit"] = max(1, (last or first) - first + 1)
    return "Read", args


def _grep(match: re.Match[str]) -> Plan:
    word = match["quoted"] or re.sub(r"(?<=[A-Z]{2})s$", "", match["word"])  # find all TODOs
    return "Grep", {"pattern": re.escape(word)} | _path(match)


def _glob(match: re.Match[str]) -> Plan:
    kind = match["kind"].lower()
    return "Glob", {"pattern": _KINDS.get(kind) or f"**/*.{kind.lstrip('.')}"} | _path(match)


def _find(match: re.Match[str]) -> Plan:
    name = match["name"]
    return "Glob", {"pattern": name if "/" in name else f"**/{name}"} | _path(match)


def _list(match: re.Match[str]) -> Plan:
    return "fs.list_dir", {"path": "."} | _path(match)


def _count(match: re.Match[str]) -> Plan:
    return "Bash", {"command": f"wc -l -- {shlex.quote(match['path'])}"}


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


def _path(match: re.Match[str]) -> dict[str, str]:
    """Return the path argument, unless it means the current directory."""
    where = match.groupdict().get("where")
    return {} if not where or _HERE.fullmatch(where) else {"path": where}


_POLITE: Final = r"(?:(?:please|kindly|now|can you|could you|would you|will you|let's|let us)[\s,]+)*"
_AFTER: Final = r"(?:[\s,]+(?:please|for me|now))?\s*[?.!]*"
_THE: Final = r"(?:(?:all|every|the|of|my|me|some|any)\s+)*"
_PLACE: Final = r"(?:folder\s+|directory\s+)?[`'\"]?(?P<where>[^\s?`'\"]+?)[`'\"]?(?:\s+(?:folder|directory))?"
_WHERE: Final = rf"(?:\s+(?:are\s+)?(?:in|under|below|inside|from)\s+{_THE}{_PLACE}|\s+(?:are\s+)?(?:here|there))?"
_SHOW: Final = r"(?:read|show|print|cat|open|display|view|what(?:'s| is) in|what does)"
_FILE: Final = r"(?:file\s+)?[`'\"]?(?P<path>[^\s`'\"?]+?)[`'\"]?"
_LINES: Final = r"lines?\s+(?P<first>\d+)(?:\s*(?:-|–|to|until|through)\s*(?:line\s+)?(?P<last>\d+)|(?P<on>\s+on))?"
_SOUGHT: Final = r"(?:[`'\"](?P<quoted>[^`'\"]+)[`'\"]|(?P<word>\S+?))"
_OCCURS: Final = r"(?:(?:word|text|string|occurrences?|uses?|mentions?)\s+(?:of\s+)?)?"
_FILES: Final = r"(?:files?|folders?|director(?:y|ies)|contents?)"
# The first that matches the whole request is used: "list the python files" is not a file to read.
PATTERNS: Final[tuple[tuple[str, Callable[[re.Match[str]], Plan | None]], ...]] = (
    (r"(?:what(?:'s| is)?\s+|tell me\s+)?(?:the\s+)?(?:current\s+)?time(?: is it)?(?: now)?|现在几点.*", _time),
    (
        r"(?:what(?:'s| is)?\s+|tell me\s+)?(?:the\s+)?(?:(?:current|today's)\s+)?(?:date|day|today)(?: is it| today)*",
        _time,
    ),
    (r"(?:what(?:'s| is)\s+|calculate\s+|compute\s+|how much is\s+)?(?P<sum>[^=?]*\d[^=?]*)=?", _sum),
    (r"(?:fetch|get|download|open|read)?\s*(?P<url>https?://\S+?)", _fetch),
    (rf"(?:run|execute)\s+{_THE}(?:unit\s+)?tests?(?:\s+suite)?", _test),
    (rf"(?:list|show|find|what|which)\s+{_THE}(?P<kind>(?!the\b|all\b|my\b|current\b)\.?\w+)\s+files{_WHERE}", _glob),
    (rf"(?:find|list|where is|where are)\s+{_THE}(?:files?\s+)?(?:named|called)\s+(?P<name>\S+?){_WHERE}", _find),
    (rf"(?:find|list|show|ls)\s+{_THE}(?:files?\s+)?(?P<name>[\w./-]*\*[\w./*{{}},-]*){_WHERE}", _find),
    (rf"(?:list|show|what)\s+{_THE}(?:current\s+)?{_FILES}{_WHERE}", _list),
    (rf"(?:list|ls)\s+(?!-){_THE}(?:{_FILES}\s+(?:in\s+|of\s+)?)?{_PLACE}", _list),
    (r"what(?:'s| is)\s+(?:in\s+)?(?:(?:this|the current)\s+(?:folder|directory)|(?P<where>here))|list|ls", _list),
    (r"what(?:'s| is)\s+(?:in|inside|under)\s+(?:the\s+)?(?P<where>[^\s?.]+)(?:\s+(?:folder|directory))?", _list),
    (rf"{_SHOW}\s+{_THE}first\s+(?P<count>\d+)\s+lines\s+of\s+{_THE}{_FILE}", _read),
    (rf"{_SHOW}\s+{_THE}{_LINES}\s+(?:of|in|from)\s+{_THE}{_FILE}", _read),
    (rf"{_SHOW}\s+{_THE}{_FILE}(?:[,\s]+(?:from\s+)?{_LINES})?(?:\s+(?:say|contain))?", _read),
    (rf"how many lines\s+(?:are\s+(?:there\s+)?in|in|has|does)\s+{_THE}{_FILE}(?:\s+have)?", _count),
    (
        rf"(?:find|search(?: for)?|grep(?: -\w+)*(?: for)?|look for|where (?:is|are))\s+{_THE}{_OCCURS}{_SOUGHT}"
        rf"(?:\s+(?:defined|used))?{_WHERE}",
        _grep,
    ),
    (rf"search\s+{_THE}{_PLACE}\s+for\s+{_THE}{_OCCURS}{_SOUGHT}", _grep),
    (rf"grep\s+(?:-\w+\s+)*{_SOUGHT}\s+{_PLACE}", _grep),
    (r"(?:run|execute|\$)\s+[`'\"](?P<command>[^`'\"]+)[`'\"]", _run),
    (r"(?:run|execute|\$)\s+(?P<command>[^`]+)", _run),
    (r"(?:show\s+(?:me\s+)?|what(?:'s| is)\s+)?(?:the\s+)?(?P<command>git\s+(?:status|log|diff|branch)\b.*?)", _run),
    (r"(?P<command>ls\s+-.*)", _run),
    (r"where am i|pwd|what(?:'s| is) the (?:current|working) (?:folder|directory)", _here),
    (r"undo(?: (?:that|it|this|the last change))?", _undo),
    (r"(?:say|echo|repeat)\s+(?P<text>.+)", _echo),
)


def plan_call(text: str) -> Plan | None:
    """Return the call for a request; None if no pattern matches all of it."""
    if len(text) > _LONGEST:
        return None
    for pattern, plan in PATTERNS:
        found = re.fullmatch(rf"\s*{_POLITE}(?:{pattern}){_AFTER}\s*", text, re.IGNORECASE | re.DOTALL)
        if found and (made := plan(found)):
            return made
    return None
