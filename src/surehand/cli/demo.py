"""`surehand demo DIR`: make a small demo folder to try the commands of the README on."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Final

from surehand.cli import render
from surehand.cli.main import Usage

FILES: Final = {
    "app.py": "def greet(name):\n    # TODO: be friendlier\n    return 'Hello ' + name\n",
    "notes.txt": "first line\r\nsecond line\r\n",  # CRLF: an edit must keep it
    ".env": "API_KEY=do-not-show\n",
    ".gitignore": "*.log\n",
    "debug.log": "noise\n",
}


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("directory", metavar="DIR", help="a directory that does not exist yet, or is empty")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    directory = os.path.join(str(options.cwd), os.path.expanduser(str(options.directory)))
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
        raise Usage(f"{options.directory} is not empty", "Name a directory that does not exist yet.")
    write_demo(directory)
    render.facts(
        options,
        {"directory": directory, "files": sorted(FILES)},
        f"made {directory}\n"
        f"  cd {options.directory}\n"
        '  surehand tools invoke Grep --args \'{"pattern": "TODO"}\'\n'
        '  surehand tools invoke Bash --args \'{"command": "ls && cat .env"}\'',
    )
    return 0


def write_demo(directory: str) -> None:
    """Write the demo's files into an existing directory."""
    for name, content in FILES.items():
        with open(os.path.join(directory, name), "x", encoding="utf-8", newline="") as file:
            file.write(content)
