"""Approval of a call: the question, shown safe to print; who answers; the answer, bound to exactly what would run.

With a question comes the narrowest rule that would answer it for good: `Bash(git commit:*)`, never plain `Bash`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import json
import posixpath
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast, get_args

from surehand.core.call import ToolCall
from surehand.core.effects import (
    Connect,
    DeletePath,
    Effect,
    ReadPath,
    RemoteCall,
    RunCommand,
    StartAgent,
    Unreadable,
    WritePath,
)
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.core.tool import Preview
from surehand.files.sanitize import mark_lookalikes, visible
from surehand.policy.rules import PROGRAM_FOLDERS, Decision

if TYPE_CHECKING:
    from surehand.policy.paths import Roots
    from surehand.policy.policy import JudgedEffect, Request

AnswerKind = Literal["once", "session", "always", "no"]
KINDS: Final = get_args(AnswerKind)
SHOWN_CHARACTERS = 20_000
_LONG_TEXT: Final = 1 << 20
_FACTS: Final = json.JSONEncoder(sort_keys=True, default=repr)


@frozen
class Question:
    """A call that needs permission, with all that a person needs to decide."""

    call: ToolCall
    tool: str
    decision: Decision
    preview: Preview | None
    digest: str
    origins: tuple[str, ...] = ()
    """Where text in this session came from; anything but the workspace may have put words into the model's mouth."""
    cwd: str = ""
    agent: str = ""
    """Which sub-agent asks; empty for the conversation itself."""
    try_first: Callable[[], Awaitable[Preview | None]] | None = None
    """Runs the call on a copy and shows the difference, where that is possible but too costly to do unasked. What it
    returns has a `dry_run` whose id an answer may name."""

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of the call."""
        return self.call.args

    @property
    def reason(self) -> str:
        """Why permission is needed."""
        return self.decision.reason

    def text(self) -> str:
        """Return the text a person is shown, with control and invisible characters sanitized."""
        return question_text(self)

    def arguments_text(self) -> str:
        """Return the arguments as a person is shown them, printable; what the diff shows is named by its size."""
        return _arguments(self.call.args, in_diff=bool(self.preview and self.preview.diff))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "call": self.call.to_dict(),
            "tool": self.tool,
            "decision": self.decision.to_dict(),
            "digest": self.digest,
            "origins": list(self.origins),
            "cwd": self.cwd,
            "agent": self.agent,
            "text": self.text(),
        }


@frozen
class Answer:
    """What the approver said. `args` are changed arguments, judged again; `rule` is what to remember instead of the
    suggestion.

    A yes to a call that had a dry run applies what that showed, without running it again: `dry_run` names it,
    None is the one the question itself shows, and an empty text has the call run anew.
    """

    kind: AnswerKind
    reason: str = ""
    args: Mapping[str, Any] | None = None
    rule: str | None = None
    dry_run: str | None = None
    by: str = ""
    """Who answered, where that was somebody else than the approver itself."""
    unasked: bool = False
    """Whether nobody could be asked at all: a no, unless somebody who reaches the session from elsewhere answers."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:  # whatever is not a no would let the call run: Answer("deny") must not
            raise ValueError(f"an answer is once, session, always or no, not {self.kind!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown: dict[str, Any] = {"kind": self.kind, "reason": self.reason, "rule": self.rule, "dry_run": self.dry_run}
        shown |= {"args": dict(self.args)} if self.args is not None else {}
        return shown | ({"by": self.by} if self.by else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Answer:
        """Decode plain data."""
        if data.get("kind") not in KINDS:
            return cls("no", f"the answer {data.get('kind')!r} is none of once, session, always, no")
        given = (data.get(name) for name in ("args", "rule", "dry_run"))
        return cls(data["kind"], str(data.get("reason") or ""), *given, by=str(data.get("by") or ""))


class Approver(Protocol):
    """Answers questions: a terminal, a console, a client, a function."""

    async def ask(self, question: Question) -> Answer:
        """Return the answer to a question."""
        ...


def digest(tool: str, version: str, args: Mapping[str, Any], cwd: str) -> str:
    """Return the digest an approval is bound to: it covers everything that determines what runs."""
    # Of a long text its own digest stands beside the rest: spelled out, it would be held three times over.
    long = {name: _text_digest(text) for name, text in args.items() if isinstance(text, str) and len(text) > _LONG_TEXT}
    known = [tool, version, {name: "" if name in long else each for name, each in args.items()}, cwd]
    facts = _FACTS.encode([*known, long] if long else known)
    return hashlib.sha256(facts.encode()).hexdigest()


def _text_digest(text: str) -> str:
    hasher = hashlib.sha256()
    for start in range(0, len(text), _LONG_TEXT):
        hasher.update(text[start : start + _LONG_TEXT].encode("utf-8", "surrogatepass"))
    return hasher.hexdigest()


# -- the words of a question ------------------------------------------------------------------------------------------


def question_text(question: Question) -> str:
    """Format the whole question in printable characters."""
    decision = question.decision
    parts = [f"{one_line(question.tool)} asks for permission: {one_line(decision.reason)}"]
    if kind := _command_class(decision):
        parts.append(f"The command {kind}.")
    if question.call.source not in ("user", "cli"):
        agent = f" (sub-agent: {one_line(question.agent)})" if question.agent else ""
        parts.append(f"Asked by: {question.call.source}{agent}")
    foreign = sorted(origin for origin in question.origins if origin != "workspace")
    if foreign:
        parts.append(f"Text from {one_line(', '.join(foreign))} has entered this session.")
    parts.append(question.arguments_text())
    effects = [f"  {effect_line(each.effect)}" for each in decision.judged if each.effect is not None]
    if effects:
        parts.append("It would:\n" + "\n".join(dict.fromkeys(effects)))
    if question.preview is not None:
        shown = question.preview.diff or question.preview.text
        parts.append(_truncate(printable(shown.rstrip("\n"))))
    return "\n".join(part for part in parts if part)


def _command_class(decision: Decision) -> str:
    """Describe a shell command by the class of its least safe part."""
    effects = [each.effect for each in decision.judged]
    commands = [effect for effect in effects if isinstance(effect, RunCommand)]
    implied = {effect for command in commands for effect in command.implies}
    kinds = {command.kind for command in commands if command.kind}
    if commands and any(isinstance(effect, WritePath) and effect not in implied for effect in effects):
        kinds.add("write")  # by a redirection
    if not kinds:
        return ""
    from surehand.shell.report import MEANINGS  # lazy: the package of the shell, about 30 ms; commands alone need it

    return [meaning for kind, meaning in MEANINGS.items() if kind in kinds][-1]


def _arguments(args: Any, *, in_diff: bool) -> str:
    command = args.get("command")
    if isinstance(command, str):
        rest = {key: value for key, value in args.items() if key != "command"}
        shown = "\n".join(
            f"  $ {line}" if not at else f"    {line}" for at, line in enumerate(_argument_lines(command))
        )
        return shown + (f"\n  with {_plain_argument(rest)}" if rest else "")
    return "\n".join(f"  {one_line(str(key))}: {_argument(value, in_diff)}" for key, value in args.items())


def printable(text: str) -> str:
    """Sanitize lines of text: hidden and look-alike characters are written out."""
    return mark_lookalikes(visible(text), prose=True)


def one_line(text: str) -> str:
    """Sanitize one line of text: hidden and look-alike characters are written out."""
    return mark_lookalikes(visible(text, lines=False))


def _argument(value: Any, in_diff: bool) -> str:
    """Return an argument as it is; what the diff shows anyway is named by its size."""
    if in_diff and isinstance(value, str) and ("\n" in value or len(value) > 200):
        return f"({len(value):,} characters, see the changes below)"
    return _plain_argument(value)


def _argument_lines(text: str) -> list[str]:
    # Only a real line feed may begin a line on the screen: other breaks are written out.
    return [one_line(line) for line in _truncate(text).split("\n")]


def _plain_argument(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    lines = _argument_lines(text)
    return lines[0] if len(lines) == 1 else "\n" + "\n".join(f"    {line}" for line in lines)


def _truncate(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters not shown ...]\n{text[-half:]}"


def effect_line(effect: Effect) -> str:
    """Return one effect in words."""
    match effect:
        case ReadPath(path, recursive):
            line = f"read {path}" + (" and all below it" if recursive else "")
        case WritePath(path, recursive):
            line = f"write {path}" + (" and anything below it" if recursive else "")
        case DeletePath(path, recursive):
            line = f"delete {path}" + (" and all below it" if recursive else "")
        case Connect(host, port, url):
            line = f"connect to {url or (f'{host}:{port}' if port else host)}"
        case RunCommand(words):
            line = f"run {shlex.join(words)}"
        case Unreadable(reason):
            line = f"do something that cannot be known beforehand: {reason}"
        case RemoteCall(server, tool):
            line = f"call {tool} on the server {server}"
        case StartAgent(profile):
            line = f"start the sub-agent {profile}"
    return one_line(line)


# Approvers: who answers when a call needs permission.
#
# Nobody to ask means no; an approver that hangs or fails means no.


class Nobody:
    """There is nobody to ask, and that means no; `instead` says what would help."""

    def __init__(self, instead: str = "") -> None:
        self.reason = "nobody can be asked here" + (f"; {instead}" if instead else "")

    async def ask(self, question: Question) -> Answer:
        """Answer no."""
        del question
        return Answer("no", self.reason, unasked=True)


AnswerFunction: TypeAlias = Callable[[Question], Answer | str | bool | Awaitable[Answer | str | bool]]
"""A function, plain or async, that returns an Answer, its kind, or a boolean."""


def approver_of(answers: Approver | AnswerFunction) -> Approver:
    """Wrap a plain function as an Approver; an approver stays as it is."""
    if hasattr(answers, "ask"):
        return cast("Approver", answers)
    if not callable(answers):
        raise TypeError(f"an approver is a function of the question, or has `async def ask(question)`; not {answers!r}")
    return Callback(answers)


class Callback:
    """An approver made of a function, plain or async, that returns an Answer, its kind, or a boolean."""

    def __init__(self, function: AnswerFunction) -> None:
        self.function = function

    async def ask(self, question: Question) -> Answer:
        """Ask the function."""
        said = self.function(question)
        if inspect.isawaitable(said):
            said = await said
        return _read_answer(said)


def _read_answer(said: object) -> Answer:
    if isinstance(said, Answer):
        return said
    if isinstance(said, bool):
        return Answer("once") if said else Answer("no")
    return Answer.from_dict({"kind": said})


class First:
    """Asks several approvers; the first answer counts, and the question is withdrawn from the others."""

    def __init__(self, *approvers: Approver) -> None:
        self.approvers = approvers

    async def ask(self, question: Question) -> Answer:
        """Ask all approvers concurrently and return the first answer."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask_approver(each, question)) for each in self.approvers]
            if not tasks:
                return Answer("no", "nobody can be asked here")
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        return next(iter(done)).result()

    def withdraw(self, question: Question, answer: Answer) -> None:
        """Notify the other approvers that one has answered."""
        for each in self.approvers:
            if (withdraw := getattr(each, "withdraw", None)) is not None:
                withdraw(question, answer)


async def ask_approver(approver: Approver, question: Question, timeout_s: float | None = None) -> Answer:
    """Return the approver's answer; a timeout or an exception is a no."""
    try:
        if type(approver) is Callback:  # a plain function has answered before any time could be up
            said = approver.function(question)
            if not inspect.isawaitable(said):
                return _read_answer(said)
            async with asyncio.timeout(timeout_s):
                return _read_answer(await said)
        async with asyncio.timeout(timeout_s):
            answer: object = await approver.ask(question)
    except TimeoutError:
        return Answer("no", f"nobody answered within {timeout_s:g} s" if timeout_s else "nobody answered in time")
    except Exception as problem:  # an approver may be anybody's code, and its failure is no permission
        return Answer("no", f"the approver failed: {type(problem).__name__}: {problem}")
    return answer if isinstance(answer, Answer) else Answer("no", f"the approver gave {answer!r}, which is no Answer")


_ELSEWHERE: Final = {"Mailbox": "mailbox", "Terminal": "terminal"}


def __getattr__(name: str) -> Any:
    """Import an approver on first use, so that calls without a question do not pay for it."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"surehand.policy.{_ELSEWHERE[name]}"), name)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a program does with the word after its name, where further words only say to what: a rule may leave those free.
# Whatever runs other programs, installs code of anybody's choice or changes settings is not here: `git config`,
# `git rebase -x`, `npm install`, `docker run`, `docker build`, `poetry run`, `mvn` and `gradle` (whose further words
# may be goals of any plug-in, or a script). A program that is not here gets its very words; so do those whose words
# may name code (`pylint --init-hook`, `mypy --python-executable`, `uv lock --python`, `apt list -o`, `brew info x.rb`),
# and those that print what a program was started with (`docker inspect`, `docker compose config`).
_DEEDS: dict[str, frozenset[str]] = {
    "git": _words(
        "add commit push pull fetch checkout switch merge stash tag branch reset restore rm mv cherry-pick revert "
        "clean status log diff show blame"
    ),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _words("test build start lint outdated")),
    "cargo": _words("build check test clippy fmt doc clean bench tree update"),
    "go": _words("build vet fmt mod clean"),
    "dotnet": _words("build test restore clean format"),
    "docker": _words("ps images logs pull stop start restart"),
    "kubectl": _words("logs top"),
    "gh": _words("pr issue release label"),
    "terraform": _words("fmt validate"),
    "ruff": _words("check format"),
    "poetry": _words("lock check show"),
    "make": frozenset(),
}
# Deeds whose own next word says what they do, and that leave the rest free.
_DEEPER = {
    *((manager, "run") for manager in ("npm", "pnpm", "yarn", "bun")),
    ("docker", "compose"),
    ("git", "stash"),
    ("git", "worktree"),
    *(("gh", what) for what in ("pr", "issue", "release", "label")),
    *(("kubectl", deed) for deed in ("get", "describe")),  # of secrets, among others
    ("go", "mod"),
}
_COMPOSED = _words("down ps logs stop start restart pull")
# Programs without deeds that do one thing to the files they are given, each of which is judged besides.
_PLAIN_PROGRAMS = _words(
    "mkdir touch rmdir mktemp black isort shellcheck rustfmt gofmt clang-format shfmt tsc jest vitest pytest"
)
MOST_RULES = 100
"""Most rules in a suggestion: each is matched in every later judgement."""
_PLAIN = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]*")


def suggestion(request: Request, judged: Sequence[JudgedEffect], roots: Roots) -> str | None:
    """Return the suggested rules, one a line; None if no rule would prevent the question."""
    asked = [each for each in judged if each.verdict == "ask"]
    if len(asked) > MOST_RULES or any(_asks_anyway(each) for each in asked):
        return None  # nobody reads them all, or a rule would promise what it does not keep
    covering = [each.effect for each in asked if isinstance(each.effect, RunCommand)]
    implied = {id(each) for command in covering for each in command.implies}
    texts = [
        text
        for each in asked
        if id(each.effect) not in implied or not _inside(roots, each.effect)
        for text in _rules_for(request, each.effect, roots)
    ]
    return "\n".join(dict.fromkeys(texts)) or None


def _asks_anyway(judged: JudgedEffect) -> bool:
    """Whether no allow rule would prevent the question; default protections yield to a rule that names the file."""
    asking = (rule for rule in judged.rules if rule.verdict == "ask" and rule.origin.source != "built-in")
    return isinstance(judged.effect, Unreadable) or any(asking)


def _inside(roots: Roots, effect: Effect | None) -> bool:
    if not isinstance(effect, ReadPath | WritePath | DeletePath):
        return True
    return roots.resolve(effect.path).inside


def _rules_for(request: Request, effect: Effect | None, roots: Roots) -> list[str]:
    match effect:
        case RunCommand(words):
            rule = command_rule(words)
            return [rule] if rule else []
        case ReadPath(path):
            return _path_rules("Read", roots, path)
        case WritePath(path) | DeletePath(path):
            return _path_rules("Edit", roots, path)
        case Connect(host):
            return [f"WebFetch(domain:{host})"]
        case RemoteCall(server, tool):
            return [f"mcp__{server}__{tool}"]
        case _:
            return [request.tool]


def _path_rules(name: str, roots: Roots, path: str) -> list[str]:
    """Return a rule for the absolute path: a relative one, once saved, would hold in every workspace."""
    return [f"{name}({_literal(each)})" for each in roots.resolve(path).names]


def _literal(path: str) -> str:
    return re.sub(r"([*?\[\\{])", r"\\\1", path)


def command_rule(words: Sequence[str]) -> str | None:
    """Return the rule for one command: what it does, with free arguments, or these very words when that is too much."""
    if not words or any(char in word for word in words for char in "\n\r\0"):
        return None
    folder, name = posixpath.split(words[0])
    words = (name if folder in PROGRAM_FOLDERS else words[0], *words[1:])
    name, deed = words[0], words[1] if len(words) > 1 else ""
    count = 0
    if name in _PLAIN_PROGRAMS:
        count = 1
    elif (name, deed) in _DEEPER:
        count = 3 if len(words) > 2 and (deed != "compose" or words[2] in _COMPOSED) else 0
    elif deed in _DEEDS.get(name, ()):
        count = 2
    free = count and all(_PLAIN.fullmatch(word) for word in words[:count])
    return f"Bash({' '.join(words[:count])}:*)" if free else f"Bash({_exact(words)})"


def _exact(words: Sequence[str]) -> str:
    text = shlex.join(words)
    # A word that ends the rule in `*` or `:*` would read as a wildcard.
    return text if not text.endswith("*") else text + " ''"
