"""The protocol of a sandbox: runs commands, whatever the system can contain them with.

    sandbox = choose()
    runner = await sandbox.start(profile)
    run = runner.run(Command(("/bin/bash", "-c", text), cwd, environment), stdout.feed, stderr.feed)
    ended = await run.finish(timeout_s=120)

There are two: `linux` enforces a profile and records what a command changes; `none` starts a process and kills its
group, on every system that has a shell. A third needs three classes (`Sandbox`, `Runner`, `Run`; `CommandRun` has what
all runs share) and a line in `choose`. It adds its error messages to `denials.py`, its system's folders to
`profile.py`, and states what it can do in `Abilities`, which Surehand reads as follows:

- `private_view`: secrets can be hidden, paths made read-only, and a dry run mounted in the workspace's place;
- `records_changes`, which follows from `seccomp` today: what a command changes is recorded (else the runner's
  `records` is False);
- `other_mechanism`: the name of the mechanism that confines writes and blocks the network;
- `overlay`: a dry run needs no copy.

`keeps_shell` is False unless a shell can stay open between calls, as with `linux`. A runner that contains commands
takes `descriptors` (MCP servers and process tools use them) and ignores a `change_log` it cannot write; one that
`records` offers `begin_change_log`; its `pid` is 0 unless `commands.leftovers` knows its system.

What it does and does not cover is reported by `list_uncovered`, `in_force` and `describe_weakness` of
`commands/session.py` and by `_ATTEMPTS` and `_MEMORY` of `cli/doctor.py`, and described in docs/sandbox.md,
docs/security.md, docs/threat-model.md and both READMEs. `tests/sandbox/elsewhere.py` pretends to be
darwin, to test `none`; a sandbox for darwin gives it another name, and needs a real machine for its own tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from surehand.sandbox.command import Abilities, Command, Ended, Feed, SandboxFailure

if TYPE_CHECKING:
    from surehand.sandbox.profile import SandboxProfile

PLATFORM = sys.platform
"""The system's name in Python; tests replace it."""


class Run(Protocol):
    """A running command. It ends when the command ends; processes that are left are killed."""

    told_waiting: Callable[[str], None] | None
    """Called with the name of a program that begins to wait for input, where that can be detected."""

    @property
    def stopped(self) -> str:
        """Why it was ended; empty while nobody has ended it."""
        ...

    @property
    def waiting(self) -> str:
        """The program that waits for input, while one does."""
        ...

    @property
    def ended(self) -> Ended | None:
        """How it ended, once it has."""
        ...

    async def finish(self, timeout_s: float | None = None) -> Ended:
        """Wait until it has ended; on timeout or cancellation, end it."""
        ...

    def stop(self, why: str, grace_s: float = ...) -> None:
        """Start ending it: SIGTERM first, then SIGKILL."""
        ...


class Runner(Protocol):
    """Runs the commands of one profile."""

    @property
    def kind(self) -> str:
        """The sandbox it belongs to: `linux`, `none`."""
        ...

    @property
    def pid(self) -> int:
        """The process that all its commands descend from; 0 for this process."""
        ...

    @property
    def profile(self) -> SandboxProfile:
        """What is enforced on its commands."""
        ...

    @property
    def means(self) -> Sequence[str]:
        """Names of what contains its commands, for results and `doctor`; empty if nothing does."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """What of the profile could not be set up."""
        ...

    @property
    def keeps_shell(self) -> bool:
        """Whether a shell can stay open between commands (`persistent`)."""
        ...

    @property
    def records(self) -> bool:
        """Whether it records what a command changes, so that it can be undone."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def busy(self) -> bool:
        """Whether commands are under way."""
        ...

    def run(
        self,
        command: Command,
        stdout: Feed,
        stderr: Feed,
        *,
        change_log: str | None = None,
        overlay: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start a command; its output goes to the two feeds as it comes."""
        ...

    async def close(self) -> None:
        """End it and everything it runs."""
        ...


class Sandbox(Protocol):
    """A way to run commands on one kind of system."""

    @property
    def kind(self) -> str:
        """Its name in results: `linux`, `none`."""
        ...

    def abilities(self) -> Abilities:
        """Return what can be enforced here."""
        ...

    def note_failure(self, why: str) -> None:
        """Note that the system could not do what it seemed to offer; `abilities` says so from then on."""
        ...

    async def start(self, profile: SandboxProfile) -> Runner:
        """Start a runner that enforces `profile`; raise SandboxFailure when this system cannot."""
        ...

    def start_ahead(self) -> None:
        """Start what the next runner needs under any profile, while its command is judged; in any thread."""
        ...

    def end_ahead(self) -> None:
        """End what was started ahead and not used."""
        ...


def choose() -> Sandbox:
    """Return the sandbox of this system."""
    if PLATFORM == "linux":
        from surehand.sandbox.linux.sandbox import LINUX  # lazy: sandbox, 1 ms; no other system can import it

        return LINUX
    return _plain(f"{PLATFORM} has no Landlock and no namespaces")


def _plain(why: str) -> Sandbox:
    from surehand.sandbox.none import PlainSandbox  # lazy: none, 9 ms; Linux does without its threads and processes

    return PlainSandbox(why)


def abilities() -> Abilities:
    """Return what this system can enforce on commands."""
    return choose().abilities()


def available() -> bool:
    """Tell whether commands can be contained on this system."""
    return abilities().enough


async def start_open(profile: SandboxProfile) -> Runner:
    """Start a runner that contains nothing: the system's own, or the plain one where even that does not start."""
    try:
        return await choose().start(profile)
    except SandboxFailure as failure:
        return await _plain(str(failure)).start(profile)
