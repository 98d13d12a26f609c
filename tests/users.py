"""Programs run as another user: what tests that run as root try as an ordinary one too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

USERS = ["same user", "ordinary user"]
ORDINARY = 65534
SOURCES = Path(__file__).parent.parent / "src"


@dataclass(frozen=True)
class User:
    """Somebody, a folder of theirs, and the words that start Python as them."""

    id: int
    folder: Path
    python: tuple[str, ...]
    libraries: str = ""
    """Where the library of their Python is, when it is not where that was built for."""

    def give(self, *paths: Path) -> None:
        """Make them the owner of all that is in these folders, or in their own."""
        if self.id == os.geteuid():
            return
        for top in paths or (self.folder,):
            for path in (top, *top.rglob("*")):
                os.chown(path, self.id, self.id, follow_symlinks=False)

    @property
    def packages(self) -> list[str]:
        """Where Python finds our sources and what they need."""
        return [str(SOURCES), *(path for path in sys.path if path.endswith("site-packages"))]

    def start(self, code: str, *args: str, env: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Start a program in Python as them; nothing stands between it and the process that is returned."""
        variables = {
            "HOME": str(self.folder / "home"),
            "SUREHAND_HOME": str(self.folder / "home" / "surehand"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(self.packages),
            **({"LD_LIBRARY_PATH": self.libraries} if self.libraries else {}),
            **(env or {}),
        }
        return subprocess.Popen([*self.python, "-c", code, *args], env=variables, cwd="/", **options)


@contextmanager
def somebody(kind: str) -> Generator[User]:
    """Yield whoever runs the tests, or an ordinary user; skips the test where there is no way to be one."""
    folder = Path(tempfile.mkdtemp(prefix="box-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        user = User(os.geteuid(), folder, (sys.executable,)) if kind == USERS[0] else _ordinary(folder)
        (folder / "home" / "surehand").mkdir(parents=True)
        user.give()
        yield user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ordinary(folder: Path) -> User:
    if os.geteuid() != 0:
        pytest.skip("the tests already run as an ordinary user")
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    become = ("setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups")
    if open_to_all(Path(sys.executable)):
        return User(ORDINARY, folder, (*become, sys.executable))
    # An interpreter in a folder of root's alone is shown to them at another place, in a view of the disk of their own.
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here, and no Python an ordinary user may start")
    place = next((each for each in ("/mnt", "/srv", "/media") if os.path.isdir(each)), str(folder))
    python = f"{place}/bin/{Path(sys.executable).resolve().name}"
    show = f'mount --bind "{sys.base_prefix}" {place} && exec "$@"'
    return User(ORDINARY, folder, ("unshare", "--mount", "sh", "-c", show, "sh", *become, python), f"{place}/lib")


def open_to_all(path: Path) -> bool:
    """Tell whether anybody may start a program, by its own mode and those of all folders above it."""
    real = path.resolve()
    return all(each.stat().st_mode & 0o005 == 0o005 for each in (real, *real.parents))
