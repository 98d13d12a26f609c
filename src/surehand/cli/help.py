"""`surehand help TOPIC`: show a page of the documentation in the terminal; the pages are part of the package."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace

from surehand.cli import main, render
from surehand.cli.markdown import MarkdownStream
from surehand.cli.parser import two_columns
from surehand.core.names import nearest

_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
"""Comments in a page, for its editors."""
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"^!\[[^]]*\]\([^)\s]+\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^][]+)\]\(([^)\s]+)\)")


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="a page or a command (default: list all pages)")


def run(options: Namespace) -> int:
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
    if not name.replace("-", "").replace("_", "").isalnum():  # a page's name, never a path
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
