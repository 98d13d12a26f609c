"""Draw docs/session.svg from a real session in a real terminal. Run by `make docs`."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = 96
SHOWN = [
    """surehand tools invoke Grep --args '{"pattern": "TODO"}'""",
    """surehand tools invoke Bash --args '{"command": "ls && cat .env"}'""",
    """surehand policy check --tool Bash --args '{"command": "ls && git push --force"}'""",
    """surehand tools invoke Bash --allow 'Bash(sed:*)' --args '{"command": "sed -i s/Hello/Hi/ app.py"}'""",
    "surehand undo",
]
COLOURS = {"31": "#ff8f86", "32": "#73cf91", "33": "#e8b75c", "34": "#86b6f5", "35": "#d7a6f0", "36": "#74c9ae"}
_STYLE = re.compile(r"\x1b\[([\d;]*)m")
_OTHER = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")


def run(command: str, workspace: str, environment: dict[str, str]) -> str:
    """Run a command on a pseudo-terminal and return its output."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    os.set_blocking(main, False)
    done = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    printed = b""
    while True:
        if select.select([main], [], [], 0.1)[0]:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            printed += piece
        elif done.poll() is not None:
            break
    done.wait(60)
    os.close(main)
    return printed.decode()


def wrap(line: str) -> list[str]:
    """Wrap a line as a terminal does; each row begins with the colours in force."""
    rows, row, seen, style = list[str](), "", 0, ""
    for part in re.split(r"(\x1b\[[\d;]*m)", line):
        if _STYLE.fullmatch(part):
            row, style = row + part, part
            continue
        for letter in part:
            if seen == COLUMNS:
                rows.append(row)
                row, seen = style, 0
            row, seen = row + letter, seen + 1
    return [*rows, row]


def spans(line: str) -> str:
    """Convert a line with its colours to SVG text spans."""
    parts: list[str] = []
    classes: dict[str, str] = {}
    position = 0
    for found in [*_STYLE.finditer(line), None]:
        text = line[position : found.start() if found else None]
        if text:
            attributes = "".join(f' {name}="{value}"' for name, value in classes.items())
            parts.append(f"<tspan{attributes}>{escape(text)}</tspan>")
        if found is None:
            break
        position = found.end()
        for code in found[1].split(";"):
            if code in ("", "0"):
                classes = {}
            elif code == "1":
                classes["font-weight"] = "700"
            elif code == "2":
                classes["opacity"] = "0.65"
            elif code in COLOURS:
                classes["fill"] = COLOURS[code]
    return "".join(parts)


def draw(lines: list[str]) -> str:
    """Return the SVG document."""
    width, step = COLUMNS * 8.4 + 48, 19
    height = len(lines) * step + 66
    rows = [
        f'<text x="24" y="{58 + number * step}" xml:space="preserve">{spans(line)}</text>'
        for number, line in enumerate(lines)
    ]
    dots = "".join(f'<circle cx="{24 + at * 20}" cy="22" r="6" fill="#434a52"/>' for at in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" role="img" '
        'aria-label="A terminal: a search, a refused read of a secret, an explained verdict, an edit, its undo">'
        f'<rect width="100%" height="100%" rx="12" fill="#121416"/>{dots}'
        '<g fill="#e7e8e9" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">'
        + "\n".join(rows)
        + "</g></svg>\n"
    )


def main() -> None:
    """Run the session and write the picture."""
    program = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        workspace = os.path.join(scratch, "demo")
        environment = {"HOME": scratch, "PATH": f"{program}:{os.environ['PATH']}", "TERM": "xterm-256color"}
        environment |= {"LANG": "C.UTF-8", "SUREHAND_HOME": os.path.join(scratch, "state")}
        run(f"surehand demo {workspace}", scratch, environment)
        lines: list[str] = []
        for command in SHOWN:
            printed = _OTHER.sub(
                "", _STYLE.sub(lambda found: f"\x00{found[1]}\x01", run(command, workspace, environment))
            )
            printed = printed.replace("\x00", "\x1b[").replace("\x01", "m").replace(workspace, "~/demo")
            # Replace what differs in every run, so that the picture changes only with the program.
            printed = re.sub(r"\[took [^\]]*\]\n?", "", printed)
            printed = re.sub(r"session_[0-9a-f]+", "session_1", printed)
            told = [f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m", *printed.rstrip().splitlines(), ""]
            lines += [row for line in told for row in wrap(line)]
    (ROOT / "docs" / "session.svg").write_text(draw(lines[:-1]), encoding="utf-8")


if __name__ == "__main__":
    main()
