"""`surehand doctor`: check what works on this machine, by trying it. To add a section, add it to `SECTIONS`.

The linter of tool schemas is at the end: a provider that refuses one tool refuses the whole list, and its message
rarely says which tool it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import urlsplit

from surehand import config
from surehand.agent.prompt import ALL_BYTES, find_instructions
from surehand.app import Surehand
from surehand.cli import render
from surehand.commands.session import SHELLS, in_force
from surehand.core.errors import SurehandError
from surehand.core.frozen import field, frozen
from surehand.core.installation import WHAT_FOR, find_missing
from surehand.core.names import provider_safe, split_full_name
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.core.text import format_count
from surehand.core.tool import ToolInfo
from surehand.models import choose, server_address
from surehand.policy.trust import is_trusted
from surehand.sandbox import protocol
from surehand.sandbox.command import Command, bash
from surehand.state import locations
from surehand.web.search_engines import web_status

if TYPE_CHECKING:
    from surehand.sandbox.command import Abilities


_REACH_S = 3.0


@frozen
class Check:
    """One check: whether it passed, and what was found."""

    name: str
    ok: bool
    found: str
    hint: str = ""


@frozen
class Section:
    """A heading, the checks under it, and facts for programs."""

    title: str
    checks: tuple[Check, ...]
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "section", nargs="?", metavar="SECTION", help=f"only one of: {', '.join(each.__name__ for each in SECTIONS)}"
    )


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    chosen = [each for each in SECTIONS if options.section in (None, each.__name__)]
    if not chosen:
        render.error(
            f"there is no section {options.section!r}", "`surehand doctor --help` lists them.", code="invalid_args"
        )
        return 2
    sections = [each(options) for each in chosen]
    render.facts(options, [_data(each) for each in sections], lambda: "\n\n".join(_text(each) for each in sections))
    return 0 if all(check.ok for section in sections for check in section.checks) else 1


def _data(section: Section) -> dict[str, Any]:
    checks = [{"name": c.name, "ok": c.ok, "found": c.found, "hint": c.hint} for c in section.checks]
    return {"section": section.title, "checks": checks, **section.facts}


def _text(section: Section) -> str:
    lines = [render.paint(section.title, "bold")]
    width = max((len(check.name) for check in section.checks), default=0)
    for check in section.checks:
        mark = render.paint("ok", "green") if check.ok else render.paint("--", "yellow")
        lines.append(f"  {mark}  {check.name.ljust(width)}  {render.wrap_indented(check.found, width + 8)}")
        if check.hint and not check.ok:
            lines.append(f"      {render.wrap_indented(check.hint, 6)}")
    return "\n".join(lines)


def settings(options: Namespace) -> Section:
    """Check that the settings load and the state folder is writable; list the settings that were ignored."""
    try:
        loaded = config.load(options.cwd, trusted=is_trusted(options.cwd))
    except SurehandError as problem:
        return Section(
            "Settings", (Check("files and variables", False, str(problem), "Mend it; nothing runs until then."),)
        )
    left_out = [Check("left out", False, each) for each in loaded.warnings] or [Check("left out", True, "nothing")]
    checks = (
        Check(
            "files and variables",
            True,
            f"{format_count(len(loaded.origins), 'value')} set; `surehand config show` lists them",
        ),
        *left_out,
        _check_state(),
    )
    return Section("Settings", checks)


def _check_state() -> Check:
    """Check that the state folder is writable: without it there is no history, and tools do not edit files."""
    folder = locations.home()
    try:
        with tempfile.TemporaryFile(dir=locations.private_dir(folder)) as file:
            file.write(bytes(65536))
    except OSError as problem:
        hint = "Let the folder be written, or name another with SUREHAND_HOME; until then no tool changes a file."
        return Check("state", False, f"{folder} cannot be written: {problem.strerror}", hint)
    return Check("state", True, f"kept in {folder}")


def model(options: Namespace) -> Section:
    """Report which model is used and why, and whether its server answers."""
    settings = _load_settings(options)
    choice = choose(settings)
    found = f"{choice.provider}/{choice.name}: {choice.why}"
    address = server_address(settings, choice)
    problem = _why_unreachable(address) if address else ""
    chosen = Check("chosen", True, found)
    if not address:
        return Section("Model", (chosen,), choice.to_dict())
    hint = "Start the server, or set [model] base_url; behind a proxy this may be wrong."
    answers = Check("answers", not problem, problem or f"{address} takes connections", hint)
    return Section("Model", (chosen, answers), choice.to_dict() | {"server": address, "problem": problem})


def instructions(options: Namespace) -> Section:
    """List the project's instruction files for the model, and whether they are trusted."""
    found, problems = find_instructions(options.cwd)
    trusted = is_trusted(options.cwd)
    standing = "given as instructions" if trusted else "given as untrusted text; `surehand trust` changes that"
    checks = [
        Check(each.path, True, f"{each.size:,} bytes, {'truncated, ' if each.truncated else ''}{standing}")
        for each in found
    ]
    checks += [Check("left out", False, problem) for problem in problems]
    nothing = Check("none", True, f"no AGENTS.md or CLAUDE.md here or above (up to {ALL_BYTES:,} bytes would be given)")
    facts = [{"path": each.path, "size": each.size, "truncated": each.truncated} for each in found]
    return Section("Instructions", tuple(checks) or (nothing,), {"files": facts, "trusted": trusted})


def _why_unreachable(address: str) -> str:
    """Return why the model's server cannot be reached; empty if it can."""
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=_REACH_S).close()
    except OSError as problem:
        return f"nothing answers at {address}: {problem.strerror or problem}"
    return ""


def web(options: Namespace) -> Section:
    """Report which search engine the web tools use, and which hosts are opened."""
    status = web_status(_load_settings(options).web)
    engine = status["search_engine"]
    search = engine or "not set up; `surehand help web` says how"
    if engine and status["search_problem"]:
        search = f"{engine} is not set up: {status['search_problem']}"
    opened = ", ".join(status["opened_hosts"]) or "none"
    checks = (Check("search", not (engine and status["search_problem"]), search), Check("opened hosts", True, opened))
    return Section("Web", checks, status)


def servers(options: Namespace) -> Section:
    """Connect to every MCP server, and report which ones answer."""
    return asyncio.run(_try_servers(options))


async def _try_servers(options: Namespace) -> Section:
    async with Surehand(options.cwd, settings=_load_settings(options), keep_state=False) as app:
        failed = await app.connect_servers()
        remote = (split_full_name(name) for name in app.registry)  # tools that are not of a server have no prefix
        names = sorted({found[0] for found in remote if found})
        checks = [Check(name, True, "answers") for name in names]
        checks += [Check(name, False, why, f"`surehand mcp test {name}` shows more.") for name, why in failed.items()]
    return Section("MCP servers", tuple(checks) or (Check("configured", True, "none"),))


def _load_settings(options: Namespace) -> Settings:
    try:
        return config.load(options.cwd, trusted=is_trusted(options.cwd)).settings
    except SurehandError:
        return Settings()


@frozen
class Attempt:
    """A promise of the sandbox, a command that tests it, and whether it holds by the command's exit code."""

    promise: str
    command: str
    holds: Callable[[int], bool]


def _fails(code: int) -> bool:
    return code != 0


def _succeeds(code: int) -> bool:
    return code == 0


_ATTEMPTS: Final = (
    Attempt("the disk can be read", "cat /etc/passwd > /dev/null", _succeeds),
    Attempt("the workspace can be written", "echo x > file", _succeeds),
    Attempt("a private temp can be written", 'echo x > "$TMPDIR/file"', _succeeds),
    Attempt(
        "nothing else can be written", "touch /etc/surehand-doctor 2> /dev/null || touch ~/.surehand-doctor", _fails
    ),
    Attempt("secrets cannot be read", "cat .env", _fails),
    Attempt("there is no network", "exec 3<> /dev/tcp/192.0.2.1/9", _fails),
    Attempt("no new privileges", "grep -q 'NoNewPrivs:.1' /proc/self/status", _succeeds),
    Attempt("processes outside cannot be seen", f"test -e /proc/{os.getpid()}/cwd", _fails),
    Attempt("mounts cannot be changed", "mount -t tmpfs none /mnt", _fails),
)


_MEMORY: Final = {
    True: "by a look four times a second, /tmp and /dev/shm by their size; no cgroup is delegated to you",
    False: "by a look four times a second, files in /dev/shm only while mapped; no cgroup is delegated to you",
}


def sandbox(options: Namespace) -> Section:
    """Report the sandbox settings, what the system supports, and which promises hold in a scratch workspace."""
    settings = config.load(options.cwd, trusted=False).settings
    abilities = protocol.abilities()
    facts: dict[str, Any] = {
        "mode": settings.sandbox.mode,
        "kind": protocol.choose().kind,
        "namespaces": abilities.private_view,
        "landlock": abilities.landlock,
        "seccomp": abilities.seccomp,
        "overlay": abilities.overlay,
        "why_not": abilities.why_not,
        "memory": _MEMORY[abilities.private_view],
    }
    if settings.sandbox.mode == "off" or not protocol.available():
        return Section("Sandbox", (_check_missing(settings.sandbox.mode, abilities),), facts)
    in_force, codes = asyncio.run(_try_all(settings))
    by = in_force.get("by", ())
    memory = "by the kernel, in a cgroup of each call" if "cgroup" in by else _MEMORY["namespaces" in by]
    facts = {**facts, "memory": memory, "in_force": in_force}
    checks = [Check("in force", in_force["active"], ", ".join(by)), Check("memory is counted", True, memory)]
    checks += [
        _check_attempt(attempt, code, settings.sandbox.network) for attempt, code in zip(_ATTEMPTS, codes, strict=True)
    ]
    return Section("Sandbox", tuple(checks), facts)


def _check_missing(mode: str, abilities: Abilities) -> Check:
    unrecorded = "" if abilities.records_changes else "; what they change is not recorded, so that it cannot be undone"
    if mode == "off":
        return Check("sandbox", True, f"switched off in the settings: commands run as you{unrecorded}")
    hint = "Commands are refused." if mode == "required" else f"Commands ask first and run as you{unrecorded}."
    return Check("sandbox", False, f"not available: {abilities.why_not}", hint)


def _check_attempt(attempt: Attempt, code: int, network: bool) -> Check:
    if network and "network" in attempt.promise:
        return Check(attempt.promise, True, "allowed in the settings")
    holds = attempt.holds(code)
    return Check(attempt.promise, holds, "holds" if holds else "does not hold on this machine")


async def _try_all(settings: Any) -> tuple[dict[str, Any], list[int]]:
    with tempfile.TemporaryDirectory(prefix="surehand-doctor-") as folder:
        os.close(os.open(os.path.join(folder, ".env"), os.O_CREAT))
        session = Session(folder, settings=settings, state_dir=None)
        try:
            shells = session.keep(SHELLS)
            launcher = await shells.launcher()
            codes: list[int] = []
            for attempt in _ATTEMPTS:
                command = Command((bash(), "-c", attempt.command), folder, shells.environment("doctor"))
                run = launcher.run(command, bytearray().extend, bytearray().extend)
                codes.append((await run.finish(10)).exit_code)
            return in_force(launcher), codes
        finally:
            await session.close()


def tools(options: Namespace) -> Section:
    """Lint every tool's definition, and count the tokens of the tools that a model sees at first."""
    app = Surehand(options.cwd, keep_state=False)
    infos = app.registry.infos()
    findings = [finding for info in infos for finding in lint(info)]
    costs = {info.name: tokens(info) for info in infos}
    shown = [info.name for info in app.selection.active_tools()]
    refused = [finding for finding in findings if finding.weight == "refused"]
    checks = [
        Check(f"{each.tool} for {each.provider}", False, each.message, "The provider would refuse the whole list.")
        for each in refused
    ]
    checks += [
        Check(f"{each.tool} for {each.provider}", True, f"advice: {each.message}")
        for each in findings
        if each not in refused
    ]
    dearest = sorted(costs, key=lambda name: -costs[name])[:3]
    total, first = sum(costs.values()), sum(costs[name] for name in shown)
    told = f"about {first:,} tokens shown at first ({len(shown)} of {len(infos)} tools), {total:,} in all"
    checks.append(Check("cost", True, f"{told}; dearest: {', '.join(f'{name} {costs[name]:,}' for name in dearest)}"))
    said = {check.found for check in settings(options).checks}
    checks += [Check("warning", False, warning) for warning in app.warnings if warning not in said]
    facts = {"tokens": costs, "shown_tokens": first, "findings": [each.to_dict() for each in findings]}
    return Section("Tools", tuple(checks), facts)


def extras(options: Namespace) -> Section:
    """List the optional parts that are installed, and how to install the others; none is required."""
    del options
    missing = find_missing()
    checks = [
        Check(extra, True, f"{what}: not installed; pip install 'surehand[{extra}]'")
        for extra, what in WHAT_FOR.items()
        if extra in missing
    ]
    there = ", ".join(extra for extra in WHAT_FOR if extra not in missing)
    return Section("Extras", (Check("installed", True, there or "none"), *checks), {"missing": list(missing)})


SECTIONS: Final[tuple[Callable[[Namespace], Section], ...]] = (
    settings,
    sandbox,
    tools,
    model,
    instructions,
    web,
    servers,
    extras,
)


Provider = Literal["anthropic", "openai"]
Weight = Literal["refused", "advice"]

CHARACTERS_PER_TOKEN: Final = 3.6
"""Measured on JSON schemas; text in non-Latin scripts has fewer."""
OPENAI_DESCRIPTION: Final = 1024
DEEP: Final = 8
_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@frozen
class Finding:
    """A problem of one tool with one provider; `refused` means that the provider refuses the whole list of tools."""

    tool: str
    provider: Provider
    weight: Weight
    message: str

    def to_dict(self) -> dict[str, str]:
        """Return the finding as plain data."""
        return {"tool": self.tool, "provider": self.provider, "weight": self.weight, "message": self.message}


def tokens(info: ToolInfo) -> int:
    """Estimate how many tokens a tool's definition takes in every request."""
    shown = {"name": provider_safe(info.name), "description": info.description, "input_schema": info.input_schema}
    return round(len(json.dumps(shown, ensure_ascii=False)) / CHARACTERS_PER_TOKEN)


def lint(info: ToolInfo) -> list[Finding]:
    """Return the problems that providers have with a tool."""
    return [Finding(info.name, *found) for found in (*_top(info), *_keys(info), *_texts(info))]


def _top(info: ToolInfo) -> Iterator[tuple[Provider, Weight, str]]:
    schema = info.input_schema
    for provider in ("anthropic", "openai"):
        if schema.get("type") != "object":
            yield provider, "refused", f'the schema\'s type is {schema.get("type")!r}, and must be "object"'
        for word in _TOP:
            if word in schema:
                yield provider, "refused", f"{word} at the top of the schema; put it inside a property"
    if schema.get("type") == "object" and "properties" not in schema and "additionalProperties" not in schema:
        yield "openai", "advice", 'no properties; say "properties": {} for a tool without arguments'


def _keys(info: ToolInfo) -> Iterator[tuple[Provider, Weight, str]]:
    for path, schema, depth in _walk(info.input_schema):
        for key in _mapping(schema.get("properties")):
            if not _KEY.fullmatch(key):
                yield (
                    "anthropic",
                    "refused",
                    f"the property {path}{key!r}: only letters, digits, '_', '.', '-', at most 64",
                )
        if depth == DEEP:
            yield "openai", "advice", f"{path} is nested {DEEP} deep; models fill deep schemas badly"
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and any(mark in pattern for mark in ("(?=", "(?!", "(?<")):
            yield "openai", "advice", f"{path}pattern looks around ({pattern[:40]}); constrained decoding ignores it"


def _texts(info: ToolInfo) -> Iterator[tuple[Provider, Weight, str]]:
    if len(info.description) > OPENAI_DESCRIPTION:
        size = len(info.description)
        yield "openai", "advice", f"the description has {size:,} characters; some models take {OPENAI_DESCRIPTION:,}"
    silent = [
        name
        for name, schema in _mapping(info.input_schema.get("properties")).items()
        if not _mapping(schema).get("description")
    ]
    if silent:
        yield "anthropic", "advice", f"no description: {', '.join(silent)}"


def _walk(schema: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yield every schema inside a schema with its path and depth; `$defs` are visited, but references not followed."""
    yield path, schema, depth
    if depth > DEEP:
        return
    for name, inner in (*_mapping(schema.get("properties")).items(), *_mapping(schema.get("$defs")).items()):
        yield from _walk(_mapping(inner), f"{path}{name}.", depth + 1)
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _walk(cast("Mapping[str, Any]", items), f"{path}items.", depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(word)
        for inner in cast("list[Any]", choices) if isinstance(choices, list) else []:
            yield from _walk(_mapping(inner), path, depth + 1)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
