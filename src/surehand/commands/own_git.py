"""Surehand's own calls of git: in the sandbox of the session's commands, and with all switched off that can be.

What a repository names and nothing can switch off (filters) is asked about before: the model of git says what it is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from surehand.commands.session import SHELLS, Shells
from surehand.core.errors import ToolFailure
from surehand.git.reads import OWN_VARIABLES, OWN_WORDS
from surehand.git.repositories import repositories_around
from surehand.sandbox.command import Command

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.sandbox.protocol import Runner

_TIMEOUT_S: Final = 60.0
_MOST: Final = 4 << 20
"""Bytes of what git prints that are kept."""


class OwnGit:
    """Runs git for a session; `also` are further folders in which it may write.

    It reaches nobody, unless `protocols` names those it may fetch by (`http:https`).
    """

    def __init__(
        self, session: Session, also: tuple[str, ...] = (), *, protocols: str = "none", timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._protocols = protocols
        self._timeout_s = timeout_s
        self._shells: Shells = session.keep(SHELLS)
        places = repositories_around(session.workspace)
        self._writable = (*also, *dict.fromkeys(folder for place in places for folder in place.folders))
        self._launcher: Runner | None = None

    async def run(self, folder: str, words: tuple[str, ...]) -> tuple[int, str]:
        """Run git with these words in a folder; return its exit code and what it printed."""
        program = _program()
        if self._launcher is None:
            self._launcher = await self._shells.git_launcher(self._writable)
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        output = bytearray()

        def take(data: bytes) -> None:
            output.extend(data[: _MOST - len(output)])

        fetching = [] if self._protocols == "none" else ["-c", "protocol.allow=always"]
        variables = {**inherited, **OWN_VARIABLES, "GIT_ALLOW_PROTOCOL": self._protocols}
        command = Command((program, *OWN_WORDS, *fetching, *words), folder, variables)
        ended = await self._launcher.run(command, take, take).finish(self._timeout_s)
        return ended.exit_code or ended.signal, output.decode("utf-8", "replace")

    async def close(self) -> None:
        """End what runs it."""
        if self._launcher is not None:
            await self._launcher.close()


def _program() -> str:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if os.access(path := os.path.join(folder, "git"), os.X_OK):
            return path
    raise ToolFailure("git cannot be run: it is not installed", hint="Install git, or work without it.")
