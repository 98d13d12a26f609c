"""Commands that change a workspace in every way there is, and a way to tell two workspaces apart."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

COMMANDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "create": ("echo new > new.txt", {"new.txt": "created"}),
    "create a binary": ("printf '\\0\\377%.0s' {1..500} > blob", {"blob": "created"}),
    "create an empty file": (": > empty", {"empty": "created"}),
    "change": ("sed -i s/two/2/ a.txt", {"a.txt": "changed"}),
    "append": ("echo three >> a.txt", {"a.txt": "changed"}),
    "empty": (": > a.txt", {"a.txt": "changed"}),
    "delete": ("rm b.txt", {"b.txt": "deleted"}),
    "mode": ("chmod 755 run.sh", {"run.sh": "mode changed"}),
    "mode of a folder": ("chmod 700 d", {"d": "mode changed"}),
    "content and mode": ("echo x >> run.sh; chmod 700 run.sh", {"run.sh": "changed"}),
    "link": ("ln -s b.txt other; ln -sfn d link", {"other": "created", "link": "changed"}),
    "remove a link": ("rm link", {"link": "deleted"}),
    "folder": ("mkdir -p n/m", {"n": "created", "n/m": "created"}),
    "folder that cannot be written": (
        "mkdir n; touch n/f; chmod 555 n",
        {"n": "created", "n/f": "created"},
    ),
    "remove a folder": ("rm -r d", {"d": "deleted", "d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted"}),
    "replace a folder": (
        "rm -r d; mkdir d; echo z > d/z.txt",
        {"d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted", "d/z.txt": "created"},
    ),
    "move a folder": (
        "mv d/e d/f",
        {"d/e": "deleted", "d/e/y.txt": "deleted", "d/f": "created", "d/f/y.txt": "created"},
    ),
    "file becomes a folder": ("rm b.txt; mkdir b.txt; touch b.txt/i", {"b.txt": "changed", "b.txt/i": "created"}),
    "folder becomes a file": (
        "rm -r d; echo d > d",
        {"d": "changed", "d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted"},
    ),
    "link becomes a folder": ("rm link; mkdir link; echo i > link/i", {"link": "changed", "link/i": "created"}),
    "folder becomes a link": (
        "rm -r d; ln -s b.txt d",
        {"d": "changed", "d/e": "deleted", "d/e/y.txt": "deleted", "d/x.txt": "deleted"},
    ),
    "odd names": (
        r"touch $'a\nb' ' x' $'\xff' '*'",
        {"a\nb": "created", " x": "created", "\udcff": "created", "*": "created"},
    ),
    "touch": ("touch a.txt; chmod 644 a.txt", {}),
    "there and back": ("mv a.txt t; mv t a.txt", {}),
    "outside": ("echo x > $TMPDIR/x", {}),
}
"""What it is called → the command, and what it does to each path of `furnish`'s workspace."""
if os.geteuid() == 0:  # nobody else could look at it afterwards
    COMMANDS["folder that cannot be entered"] = (
        "mkdir -p n/m; echo x > n/m/f; chmod 0 n/m/f n/m n",
        {"n": "created", "n/m": "created", "n/m/f": "created"},
    )


def furnish(workspace: Path) -> Path:
    """Make the workspace the commands are about."""
    for name, text in (
        ("a.txt", "one\ntwo\n"),
        ("b.txt", "b\n"),
        ("d/x.txt", "x\n"),
        ("d/e/y.txt", "y\n"),
        ("run.sh", "#\n"),
    ):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    for folder in (workspace, workspace / "d", workspace / "d/e"):
        folder.chmod(0o755)
    (workspace / "link").symlink_to("a.txt")
    return workspace


def snapshot(folder: str | Path) -> str:
    """Return everything about a tree that a command can change: names, kinds, modes, targets, contents."""
    listing = (
        "find . -printf '%P %y %m %l\\n' | LC_ALL=C sort;"
        " find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum"
    )
    found = subprocess.run(["bash", "-c", listing], cwd=folder, capture_output=True, check=True).stdout
    return found.decode("utf-8", "surrogateescape")
