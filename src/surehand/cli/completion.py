"""`surehand completion` (for bash, zsh and fish) and `surehand help`, which shows a page of the documentation.

Options and sub-commands are read from the parsers when the script is printed. The script looks up session names and
change numbers while completing (`surehand completion --words sessions`). The pages are part of the package.
"""

from __future__ import annotations

import argparse
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from surehand.cli import main, render
from surehand.cli.main import COMMANDS, MODES, load_command
from surehand.cli.parser import Parser, two_columns
from surehand.cli.screen import MarkdownStream
from surehand.core.errors import SettingsError
from surehand.core.names import nearest
from surehand.state import locations

_EVERYWHERE = ("--cwd", "--session", "--mode", "--allow", "--json", "--text", "--help")
_SESSIONS = ("sessions show", "sessions resume", "sessions fork", "sessions delete", "rewind")
"""Commands whose argument is the name of a session."""
_CHANGES = ("undo", "redo", "diff")
"""Commands whose argument is the number of a change."""
_CHANGES_SHOWN = 50

_BASH = """\
# surehand completion for bash: put  eval "$(surehand completion bash)"  into ~/.bashrc
_surehand() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
    local path="$command ${{COMP_WORDS[2]}}" here=$COMP_CWORD
    offer() {{ COMPREPLY=($(compgen -W "$*" -- "$word")); }}
    known() {{ offer "$(surehand completion --words "$1" 2>/dev/null)"; }}
    case $before in
        --mode) offer {modes}; return ;;
        --cwd) COMPREPLY=($(compgen -d -- "$word")); return ;;
        --session|--of) known sessions; return ;;
    esac
    if [[ $here -eq 1 ]]; then offer {commands} {everywhere}; return; fi
    if [[ $word == -* ]]; then
        case $path in
{options}
            *) offer {everywhere} ;;
        esac
        return
    fi
    case $path in
        "tools info"|"tools invoke") [[ $here -eq 3 ]] && {{ offer {tools}; return; }} ;;
        {sessions}) known sessions; return ;;
        {changes}) known changes; return ;;
    esac
    case $command in
{actions}
    esac
}}
complete -F _surehand surehand
"""

_FISH = """\
# surehand completion for fish: put  surehand completion fish | source  into config.fish
function __surehand_words; surehand completion --words $argv[1] 2>/dev/null; end
complete -c surehand -f
{lines}
complete -c surehand -l mode -xa "{modes}"
complete -c surehand -l cwd -xa "(__fish_complete_directories)"
complete -c surehand -l session -xa "(__surehand_words sessions)"
complete -c surehand -l json
complete -c surehand -l text
complete -c surehand -n "__fish_seen_subcommand_from info invoke" -a "{tools}"
complete -c surehand -n "__fish_seen_subcommand_from {sessions}" -a "(__surehand_words sessions)"
complete -c surehand -n "__fish_seen_subcommand_from {changes}" -a "(__surehand_words changes)"
"""


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "shell", nargs="?", choices=["bash", "zsh", "fish"], metavar="bash|zsh|fish", help="for which shell"
    )
    parser.add_argument("--words", choices=["sessions", "changes"], metavar="KIND", help="print the completions")


def run(options: Namespace) -> int:
    """Print the script for a shell, or the completions that it asks for."""
    if options.words:
        render.put("".join(f"{word}\n" for word in _words(options)))
        return 0
    if options.shell is None:
        raise SettingsError("name the shell: bash, zsh or fish")
    from surehand.catalog import rows  # lazy: catalog, 45 ms

    tools = " ".join(row["name"] for row in rows())
    render.put(_fish(tools) if options.shell == "fish" else _bash(tools, zsh=options.shell == "zsh"))
    return 0


def _words(options: Namespace) -> list[str]:
    """Return the session names, or the ids of the latest changes, of the workspace."""
    if options.words == "sessions":
        folder = os.path.join(locations.workspace_state(options.cwd), "sessions")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))
    from surehand.cli.undo import open_history  # lazy: log, 70 ms

    with open_history(options) as history:
        return [str(change.id) for change in history.changes(limit=_CHANGES_SHOWN)]


def list_parsers() -> Iterator[tuple[str, ArgumentParser]]:
    """Yield every command and sub-command with its parser: `tools`, `tools invoke`..."""
    for name in COMMANDS:
        parser = Parser(prog=name)
        load_command(name)[0](parser)
        yield name, parser
        yield from ((f"{name} {action}", inner) for action, inner in _actions(parser).items())


def _actions(parser: ArgumentParser) -> dict[str, Any]:
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no public way
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            return dict(action.choices or {})  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return {}


def _options(parser: ArgumentParser) -> str:
    own = [each for each in parser._option_string_actions if each.startswith("--")]  # pyright: ignore[reportPrivateUsage]
    return " ".join(dict.fromkeys((*own, *_EVERYWHERE)))


def _bash(tools: str, *, zsh: bool) -> str:
    parsers = dict(list_parsers())
    inner = [(path, parser) for path, parser in parsers.items() if " " in path]
    outer = [(path, parser) for path, parser in parsers.items() if " " not in path]
    options = [
        *(f'            "{path}") {_reply(_options(parser))} ;;' for path, parser in inner),
        *(f'            "{path} "*) {_reply(_options(parser))} ;;' for path, parser in outer),
    ]
    actions = [
        f"        {path}) [[ $here -eq 2 ]] && {_reply(' '.join(words))} ;;"
        for path, parser in outer
        if (words := _choices(parser))
    ]
    known = [path for path in _SESSIONS if path in parsers or path in COMMANDS]
    script = _BASH.format(
        modes=" ".join(MODES),
        everywhere=" ".join(_EVERYWHERE),
        commands=" ".join(COMMANDS),
        options="\n".join(options),
        actions="\n".join(actions),
        sessions="|".join(f'"{path}"' if " " in path else f'"{path} "*' for path in known),
        changes="|".join(f'"{path} "*' for path in _CHANGES),
        tools=tools,
    )
    return "autoload -U +X bashcompinit && bashcompinit\n" + script if zsh else script


def _reply(words: str) -> str:
    return f"offer {words}"


def _choices(parser: ArgumentParser) -> list[str]:
    """Return the completions of a command's first argument: its sub-commands, or the choices of its arguments."""
    if actions := _actions(parser):
        return list(actions)
    positional = (each for each in parser._actions if not each.option_strings)  # pyright: ignore[reportPrivateUsage]
    if "section" in (names := {each.dest: each for each in positional}):
        from surehand.cli.doctor import SECTIONS  # lazy: doctor, 280 ms

        return [section.__name__ for section in SECTIONS]
    return [str(choice) for each in names.values() for choice in each.choices or ()]


def _fish(tools: str) -> str:
    lines = [f'complete -c surehand -n __fish_use_subcommand -a {name} -d "{COMMANDS[name][1]}"' for name in COMMANDS]
    for path, parser in list_parsers():
        seen = f'-n "__fish_seen_subcommand_from {path.split()[-1]}"'
        if words := _choices(parser):
            lines.append(f'complete -c surehand {seen} -a "{" ".join(words)}"')
        own = [each[2:] for each in _options(parser).split() if each not in _EVERYWHERE]
        lines += [f"complete -c surehand {seen} -l {each}" for each in own]
    return _FISH.format(
        lines="\n".join(lines),
        modes=" ".join(MODES),
        tools=tools,
        sessions=" ".join(path.split()[-1] for path in _SESSIONS),
        changes=" ".join(_CHANGES),
    )


_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
"""Comments in a page, meant for its editors and not shown."""
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[[^]]*\]\([^)\s]+\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^][]+)\]\(([^)\s]+)\)")


def configure_help(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="a page or a command (default: list all pages)")


def run_help(options: Namespace) -> int:
    """Run the command and return its exit code."""
    if options.topic is None:
        pages = _list_pages()
        text = main.help_text() + "\nPages, shown by `surehand help PAGE`:\n\n" + _table(pages)
        return _put(options, {"pages": pages}, text)
    name = options.topic.removesuffix(".md").removeprefix("docs/").lower()
    if (path := _find_page(name)) is None:
        if name in main.COMMANDS:
            return main.main([name, "--help"])
        raise main.Usage(f"there is no page {options.topic!r}{_suggest(name)}", "`surehand help` lists the pages.")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return _put(options, {"page": name, "text": text}, _style(text))


def _put(options: Namespace, data: object, text: str) -> int:
    """Print text even into a pipe (for a pager); JSON only with --json."""
    if options.json:
        render.json_line(data)
    else:
        render.line(text.rstrip("\n"))
    return 0


def _directories() -> list[str]:
    """Return the directories that may hold pages: beside the code if installed, `docs` in a checkout."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    roots = (here, os.path.dirname(os.path.dirname(here)))
    return [os.path.join(root, "docs", kind) for root in roots for kind in ("", "guides", "reference")]


def _find_page(name: str) -> str | None:
    if not name.replace("-", "").replace("_", "").isalnum():  # accept a page's name, never a path
        return None
    found = (os.path.join(directory, f"{name}.md") for directory in _directories())
    return next((path for path in found if os.path.isfile(path)), None)


def _list_pages() -> dict[str, str]:
    """Return every page with its title."""
    pages: dict[str, str] = {}
    for directory in filter(os.path.isdir, _directories()):
        for name in sorted(os.listdir(directory)):
            if name.endswith(".md"):
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    pages.setdefault(name.removesuffix(".md"), file.readline().lstrip("# ").strip())
    return pages


def _table(pages: dict[str, str]) -> str:
    return two_columns(list(pages.items()), max(map(len, pages)) + 4)


def _style(text: str) -> str:
    stream = MarkdownStream()
    parts = _CODE.split(_COMMENT.sub("", text))
    parts[::2] = [_LINK.sub(_format_link, _PICTURE.sub("", prose)) for prose in parts[::2]]
    return stream.feed("".join(parts)) + stream.end()


def _format_link(link: re.Match[str]) -> str:
    """Format a link for a terminal: the command that shows the page, or the URL."""
    text, target = link.groups()
    name = os.path.basename(target.partition("#")[0]).removesuffix(".md")
    if "://" not in target and not _find_page(name):
        return text
    typed = target if "://" in target else f"`surehand help {name}`"
    in_brackets = link.string[link.start() - 1 : link.start()] == "("
    sentence = text.removesuffix(".")
    return (f"{sentence}: {typed}" if in_brackets else f"{sentence} ({typed})") + text[len(sentence) :]


def _suggest(name: str) -> str:
    pages = _list_pages()
    word = name.removesuffix("s")
    about = (page for page, title in pages.items() if word and word in f"{page} {title.lower()}")
    near = nearest(name, pages) or next(about, None)
    return f"; did you mean {near!r}?" if near else ""
