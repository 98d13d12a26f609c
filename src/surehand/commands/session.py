"""The commands of a session: its launchers, its private temp, and the files that long output goes to."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.commands.environment import DEFAULT_PATH, CleanEnvironment
from surehand.commands.leftovers import DRY_RUNS, PrivateFolder, Record, clear_abandoned, clear_dead
from surehand.core.errors import ToolFailure
from surehand.core.frozen import replace_values
from surehand.core.secrets import is_secret
from surehand.core.session import Kept
from surehand.files.paths import workspace_failure
from surehand.files.protected_paths import inside, secrets_at_top, unchanged
from surehand.files.trees import drop_old, remove_tree
from surehand.git.config import number_settings
from surehand.git.protected_files import git_dirs_touched, is_set_up
from surehand.git.tracked_secrets import BY_SIZE_AND_TIME, prints_nothing, tracked_secrets
from surehand.sandbox import protocol
from surehand.sandbox.command import SandboxFailure
from surehand.sandbox.profile import GIT_INFO, SandboxProfile, closed_profile, open_profile
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.commands.persistent_shell import PersistentShell
    from surehand.core.session import Session
    from surehand.core.settings import SandboxSettings
    from surehand.history.words import Author
    from surehand.sandbox.linux.client import Launcher
    from surehand.sandbox.protocol import Runner

_NO_SANDBOX: Final = (
    'Set [sandbox] mode = "preferred" to be asked instead, or "off" to run commands as you. '
    "`surehand doctor` shows what this system can enforce."
)


_RENEWED: Final = (
    "the shell was started anew before this command, because what the sandbox has to cover changed: "
    "its variables are gone"
)
_GONE: Final = "the shell had ended since the command before, and this is a new one: its variables are gone"

_NO_FILES: Final = ("/dev", "/proc", "/sys")
IDLE_S: Final = 60.0
"""Launchers are ended when no command has run for so long; the next command starts another."""
SCAN_S: Final = 1.0
"""How often the workspace is scanned for new secrets below its top."""


class Shells:
    """Starts the session's launchers on first use, and new ones when the old are gone or no longer fit."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._launcher: Runner | None = None
        self._retired: list[Runner] = []
        self._change_logs: dict[str, int] = {}
        """Change logs not yet in the history → the descriptor that locks each."""
        self._spare_change_logs: list[tuple[str, int]] = []
        """An emptied folder for the next change log, with the descriptor that locks it."""
        self._dry_run_runner: Runner | None = None
        self._servers: list[Runner] = []
        self._for_tools: dict[tuple[str | bool, ...], Runner] = {}
        self.no_layers = ""
        """Why overlays could not be mounted over the workspace, once that is known."""
        self._environment = CleanEnvironment()
        self._memory: PersistentShell | None = None
        self.turn = asyncio.Lock()
        """Held by the command that uses the persistent shell."""
        self._starting = asyncio.Lock()
        self._private: PrivateFolder | None = None
        self._tidied = False
        self._secrets: frozenset[str] = frozenset()
        self._opened: tuple[str, ...] = ()
        self._tracked: Mapping[str, tuple[int, int]] = {}
        """Covered files that git tracks → size and mtime, which their covers copy."""
        self._shown: dict[str, None] = {}
        self._sockets: tuple[str, ...] | None = None
        self._folders: Mapping[str, int] = {}
        self._next_scan = 0.0
        self._uncovered: tuple[str, ...] | None = None
        self._outdated = False
        self._young: set[str] = set()
        self._for_git: tuple[tuple[str, ...], Runner] | None = None
        """The secrets that git tracks, with the launcher that does not cover them."""
        self._record: Record | None = None
        self._warning = ""
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def private_dir(self) -> str:
        """The session's folder for temporary files, removed when it closes."""
        if self._private is None:
            clear_abandoned()
            self._private = PrivateFolder.make()
        return self._private.path

    @property
    def git_settings(self) -> Mapping[str, str]:
        """Settings that make git compare by size and time, so that it takes covered files for unchanged."""
        return BY_SIZE_AND_TIME if self._tracked else {}

    def environment(self, call_id: str) -> dict[str, str]:
        """Return the variables a command of this session sees."""
        profile = self._launcher.profile if self._launcher is not None else None
        seen = self._environment.get(
            self.private_dir, profile.writable if profile is not None and profile.contained else None
        )
        own = {"TMPDIR": self.private_dir, "SUREHAND_SESSION": self.session.id, "SUREHAND_CALL": call_id}
        own |= number_settings(self.git_settings) if self.git_settings else {}
        return {**seen, **own, **self.session.environment}

    def output_file(self, name: str) -> str | None:
        """Return the path for the full text of a long output; None if it cannot be written."""
        base = self.session.state_dir or self.private_dir
        try:
            folder = locations.private_dir(os.path.join(base, "output"))
            if not self._tidied:
                self._tidied = True
                drop_old(folder)
        except OSError:
            return None
        return os.path.join(folder, name)

    async def persistent_shell(self) -> tuple[PersistentShell, str]:
        """Return the persistent shell, and a note for the model if it is a new one."""
        from surehand.commands.persistent_shell import PersistentShell  # lazy: persistent_shell, 85 ms

        launcher, note = await self.launcher(), ""
        if not launcher.keeps_shell:
            raise ToolFailure("there is no persistent shell on this system", code="tool_unavailable")
        if self._memory is None or not self._memory.alive or self._memory.launcher is not launcher:
            if self._memory is not None:
                note = _RENEWED if self._memory.alive else "" if self._memory.end_is_known else _GONE
                await self._memory.close()
                launcher = await self.launcher()  # the one before may have been replaced and closed meanwhile
            folder = locations.private_dir(os.path.join(self.private_dir, "shell"))
            environment = self.environment("shell")
            self._memory = PersistentShell(cast("Launcher", launcher), folder, self.session.cwd, environment)
        return self._memory, note

    def alters(self, names: Iterable[str], cwd: str, text: str) -> str:
        """Say why these names may mean something else in the persistent shell (aliases, functions, PATH)."""
        if self._memory is None or not self._memory.alive:
            return ""
        return self._memory.memory.alters(names, cwd, os.environ.get("PATH") or DEFAULT_PATH, text)

    def show(self, paths: Iterable[str]) -> None:
        """Let commands read paths outside the workspace from now on, for a call that was permitted to.

        If the current launcher hides one of them, the next command starts another. Secrets stay covered. A path in the
        workspace is not followed out of it: it may have been replaced by a link since it was judged.
        """
        outside = [path for path in map(os.path.normpath, paths) if not inside(path, self.session.roots)]
        real = dict.fromkeys(os.path.realpath(path) for path in outside if os.path.exists(path))
        known = (*self.session.roots, *self._shown, *_NO_FILES)
        if new := [path for path in real if path != "/" and not inside(path, known) and not is_secret(path)]:
            self._shown |= dict.fromkeys(new)
            profile = self._launcher.profile if self._launcher is not None else None
            if profile is None:
                hidden = self._starting.locked()  # the profile of the first launcher was made without them
            else:
                hidden = any(inside(each, profile.closed) and not inside(each, profile.shown) for each in new)
            self._outdated = self._outdated or hidden

    def list_uncovered(self) -> tuple[str, ...]:
        """Return the secrets in the workspace that commands could read, because no mounts cover them."""
        abilities = protocol.abilities()
        if self.session.settings.sandbox.mode == "off" or abilities.private_view or not abilities.enough:
            return ()
        now = time.monotonic()
        if self._uncovered is None or (now >= self._next_scan and not unchanged(self._folders)):
            self._next_scan = now + SCAN_S
            profile = self.closed_profile(private_view=False)
            self._folders = profile.folders
            self._uncovered = tuple(path for path in profile.masked if inside(path, profile.writable))
        return self._uncovered

    def check_directory(self, cwd: str) -> None:
        """Raise ToolFailure if a command's directory is gone; the session then moves to the nearest one that exists."""
        if os.path.isdir(cwd) or not os.path.isdir(self.session.workspace):
            return  # a missing workspace is reported when its launcher starts
        back = cwd
        while not (os.path.isdir(back) and inside(back, self.session.roots)) and back != "/":
            back = os.path.dirname(back)
        back = back if back != "/" else self.session.workspace
        own = self.session.cwd == cwd
        if own:
            self.session.cwd = back
        raise ToolFailure(
            f"the directory {cwd} no longer exists, so nothing ran",
            code="precondition_failed",
            hint=f"Commands run in {back} from now on." if own else "",
        )

    async def dry_run_launcher(self) -> Runner | None:
        """Return a launcher for dry runs: contained and without network, whatever the session allows.

        None where commands cannot have a private view: a dry run then needs a launcher of its own.
        """
        current = await self.launcher()
        if current.profile.private_view and not current.profile.network:
            return current
        async with self._starting:
            known = self._dry_run_runner
            if known is not None and not known.closed and known.profile.holds():
                return known
            if known is not None:
                self._retired.append(known)
                self._dry_run_runner = None
            if not protocol.abilities().private_view:
                return None
            try:
                self._dry_run_runner = await protocol.choose().start(
                    replace_values(self.closed_profile(private_view=True), network=False)
                )
            except SandboxFailure as failure:
                protocol.choose().note_failure(str(failure))
            return self._dry_run_runner

    def dry_run_folder(self, name: str) -> str:
        """Return the folder for the copy of a dry run, which is hidden from commands."""
        return os.path.join(self.private_dir, DRY_RUNS, name)

    def change_log(self, who: Author, profile: SandboxProfile) -> str:
        """Return a new folder for a command's change log; raise ToolFailure if it cannot be made."""
        from surehand.history import change_logs  # lazy: change_logs, 2 ms

        base = os.path.join(self.session.state_dir or self.private_dir, "journals")
        history = self.session.settings.history
        limit_bytes = min(history.command_mb, history.limit_mb) << 20
        spare = self._spare_change_logs.pop() if self._spare_change_logs else None
        folder, lock = change_logs.make(base, who, profile.refused, limit_bytes, spare)
        self._change_logs[folder] = lock
        return folder

    def finish_change_log(self, folder: str) -> None:
        """Remove a change log that is in the history, or keep its folder for the next command."""
        from surehand.history import change_logs  # lazy: change_logs, 2 ms

        lock = self._change_logs.pop(folder, None)
        spare = None if lock is None or self._spare_change_logs else change_logs.empty(folder, lock)
        if spare is not None:
            self._spare_change_logs.append(spare)
            return
        remove_tree(folder)
        remove_tree(f"{folder}{change_logs.UNFINISHED}")
        if lock is not None:
            os.close(lock)

    def release_change_log(self, folder: str) -> None:
        """Unlock a command's change log; what is still in it is recovered when the history is opened next."""
        if (lock := self._change_logs.pop(folder, None)) is not None:
            os.close(lock)

    async def launcher(self) -> Runner:
        """Return the session's launcher; start one if there is none, or if it no longer fits."""
        self._note_use()
        await self._scan_for_secrets()
        current = self._launcher
        if current is not None and not current.closed and self._fits():
            return current
        async with self._starting:
            if self._launcher is None or self._launcher.closed or not self._fits():
                if self._launcher is not None:
                    self._retired.append(self._launcher)
                await self._close_idle()
                outdated, self._outdated = self._outdated, False  # at first: what is noted while it starts counts
                try:
                    self._launcher = await self._start()
                except BaseException:
                    self._outdated = self._outdated or outdated
                    raise
            return self._launcher

    async def server_launcher(self) -> tuple[Runner, str] | None:
        """Return a launcher for servers that a project names, and the cache they may write; None without a sandbox.

        Servers have the machine's network.
        """
        if self.session.settings.sandbox.mode == "off" or not protocol.available():
            return None
        cache = locations.server_cache(self.session.workspace)
        profile = self.closed_profile(private_view=protocol.abilities().private_view)
        launcher = await self._launch(replace_values(profile, network=True, writable=(*profile.writable, cache)))
        self._servers.append(launcher)
        return launcher, cache

    async def tool_launcher(self, shown: Sequence[str], *, network: bool) -> Runner | None:
        """Return a launcher for tools in processes of their own, which can read `shown`; None without a sandbox."""
        if self.session.settings.sandbox.mode == "off" or not protocol.available():
            return None
        self._note_use()
        key = (*shown, network)
        async with self._starting:
            known = self._for_tools.get(key)
            if known is not None and not known.closed and known.profile.holds():
                return known
            if known is not None:
                self._retired.append(known)
            await self._close_idle()
            profile = self.closed_profile(private_view=protocol.abilities().private_view, shown=shown)
            launcher = await self._launch(replace_values(profile, network=profile.network or network))
            self._for_tools[key] = launcher
            return launcher

    def _note_use(self) -> None:
        """Restart the time after which idle launchers are ended: an idle session has no processes."""
        self._used = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        self._timer = None
        known = self._list_launchers()
        if any(each.busy for each in known) or (self._memory is not None and self._memory.alive):
            self._note_use()
        elif (left_s := self._used + IDLE_S - time.monotonic()) > 0:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._end_if_idle)
        else:
            self._launcher = self._dry_run_runner = self._for_git = None
            self._retired, self._for_tools = [], {}
            if self._record is not None:
                self._record.remove()
                self._record = None
            self._ending = asyncio.get_running_loop().create_task(_close_all(known))

    def _list_launchers(self) -> list[Runner]:
        """Return all launchers of the session, except those of servers."""
        for_git = self._for_git and self._for_git[1]
        found = (self._launcher, self._dry_run_runner, for_git, *self._for_tools.values(), *self._retired)
        return [each for each in found if each is not None]

    async def _close_idle(self) -> None:
        """Close replaced launchers whose last command has ended."""
        for launcher in [each for each in self._retired if not each.busy]:
            self._retired.remove(launcher)
            await launcher.close()

    def _fits(self) -> bool:
        """Whether the launcher still covers what it must: no new secrets at the top, none replaced, no other roots."""
        launcher = self._launcher
        if launcher is None or not launcher.profile.private_view:
            return launcher is None or (launcher.profile.holds() and not self._outdated)
        if self.session.opens() != self._opened:
            return False
        known = not self._outdated and secrets_at_top(self.session.roots) <= self._secrets
        return known and launcher.profile.holds() and _sizes_and_times(self._tracked) == self._tracked

    async def _scan_for_secrets(self) -> None:
        """Look for new secrets below the top of the workspace, at most every `SCAN_S`, if a folder has changed."""
        launcher, now = self._launcher, time.monotonic()
        if launcher is None or not launcher.profile.private_view or now < self._next_scan:
            return
        self._next_scan = now + SCAN_S
        await asyncio.to_thread(self._compare_profile, launcher.profile)

    def _compare_profile(self, profile: SandboxProfile) -> None:
        """Mark the launcher as outdated if a profile made now would cover more than its own."""
        if unchanged(self._folders):
            return
        fresh = self.closed_profile(private_view=True)
        self._folders = fresh.folders
        same = all(
            set(now) <= set(then)
            for now, then in (
                (fresh.masked, profile.masked),
                (fresh.pinned, profile.pinned),
                (fresh.sockets, profile.sockets),
            )
        )
        self._outdated = self._outdated or not same

    def touched_repositories(self, paths: Iterable[str], profile: SandboxProfile) -> list[str]:
        """Return the git directories that a command touched by changing `paths`; new ones are protected from then on.

        `profile` is the one the command ran under.
        """
        found = git_dirs_touched(paths, profile.roots)
        if new := {path for path in found if path not in profile.pinned and is_set_up(path)}:
            self._young |= new
            self._outdated = True
        return found

    async def _start(self) -> Runner:
        if not os.path.isdir(self.session.workspace):  # noqa: ASYNC240 - one status
            raise workspace_failure(self.session.workspace)
        self._secrets = frozenset(secrets_at_top(self.session.roots))
        self._opened = self.session.opens()
        mode = self.session.settings.sandbox.mode
        launcher = await self._start_contained() if mode != "off" and protocol.available() else None
        if launcher is None:
            if mode == "required":
                raise ToolFailure(
                    f"the sandbox is required and this system cannot contain commands: {protocol.abilities().why_not}",
                    code="tool_unavailable",
                    hint=_NO_SANDBOX,
                )
            launcher = await self._launch_open()
        self._folders = launcher.profile.folders
        self._tracked = _sizes_and_times(self._find_tracked(launcher.profile))
        self._record_processes(launcher)
        if weaker := describe_weakness(launcher):
            self._warning = weaker
            self.session.emit("note", message=weaker)
        return launcher

    def _find_tracked(self, profile: SandboxProfile) -> tuple[str, ...]:
        """Return the covered files that git tracks; reads the index only if there is a secret in the workspace."""
        mine = [path for path in profile.masked if inside(path, profile.roots)] if profile.private_view else []
        return tracked_secrets(self.session.workspace, mine, profile.instead) if mine else ()

    def take_warning(self) -> str:
        """Return the warning about a weak sandbox, the first time only."""
        warning, self._warning = self._warning, ""
        return warning

    async def _start_contained(self) -> Runner | None:
        """Start a launcher with all containment the system has; None if that is not enough."""
        abilities = protocol.abilities()
        if abilities.private_view:
            try:
                return await protocol.choose().start(self.closed_profile(private_view=True))
            except SandboxFailure as failure:
                protocol.choose().note_failure(str(failure))
        if not protocol.abilities().enough:
            return None
        return await self._launch(self.closed_profile(private_view=False))

    async def _launch(self, profile: SandboxProfile) -> Runner:
        try:
            return await protocol.choose().start(profile)
        except SandboxFailure as failure:
            raise ToolFailure(f"commands cannot run here: {failure}", code="tool_unavailable") from failure

    async def _launch_open(self) -> Runner:
        """Start a runner without containment."""
        return await protocol.start_open(open_profile(self.session.workspace, self.session.roots[1:], self.private_dir))

    async def launcher_for(self, commands: Sequence[Sequence[str]]) -> Runner:
        """Return the launcher for a line of git commands: if they print no file, one that covers no tracked file."""
        current, session = await self.launcher(), self.session
        if not current.profile.private_view or not (
            secrets := tracked_secrets(session.workspace, current.profile.masked, current.profile.instead)
        ):
            return current
        if not prints_nothing(commands, session.workspace, session.roots, session.cwd):
            return current
        async with self._starting:
            if self._for_git is not None and self._for_git[0] == secrets and not self._for_git[1].closed:
                return self._for_git[1]
            if self._for_git is not None:
                self._retired.append(self._for_git[1])
            self._for_git = secrets, await self._launch(self.closed_profile(private_view=True, uncovered=secrets))
            return self._for_git[1]

    async def git_launcher(self, also: Sequence[str] = ()) -> Runner:
        """Start a launcher for git that may also write in the folders `also`; the caller closes it."""
        if self.session.settings.sandbox.mode == "off" or not protocol.available():
            return await self._launch_open()
        return await self._launch(self.closed_profile(private_view=protocol.abilities().private_view, also=also))

    def closed_profile(
        self, *, private_view: bool, also: Sequence[str] = (), uncovered: Sequence[str] = (), shown: Sequence[str] = ()
    ) -> SandboxProfile:
        """Return the profile of commands started now; `also` are more writable folders, `shown` more readable ones."""
        session = self.session
        if not os.path.isdir(session.workspace):
            raise workspace_failure(session.workspace)
        own = [locations.home(), os.path.dirname(locations.user_settings())]
        profile = closed_profile(
            session.workspace,
            session.roots[1:],
            session.settings.sandbox,
            self.private_dir,
            private_view=private_view,
            own=own,
            opened=(*session.opens(), *also),
            readable=session.settings.permissions.allow,
            added=(*self._shown, *shown),
            keeps_out=session.keeps_out,
            keeps_as_is=session.keeps_as_is,
            young=self._young,
            uncovered=uncovered,
        )
        hidden = tuple(os.path.join(self.private_dir, name) for name in (DRY_RUNS, GIT_INFO))
        return replace_values(profile, sockets=self._filter_sockets(profile.sockets), hidden=hidden)

    def _filter_sockets(self, sockets: tuple[str, ...]) -> tuple[str, ...]:
        """With the machine's network, leave out sockets that were made in the workspace since the session began.

        They are taken for those of the session's own servers.
        """
        if self._sockets is None:
            self._sockets = sockets
        if not self.session.settings.sandbox.network:
            return sockets
        return tuple(each for each in sockets if each in self._sockets or not inside(each, self.session.roots))

    def _record_processes(self, launcher: Runner) -> None:
        """Record the launcher as this session's, for `surehand ps` and `surehand reap`."""
        if self._record is not None:
            self._record.remove()
        if self.session.state_dir is not None and launcher.pid:
            clear_dead()
            self._record = Record.write(self.session.id, self.session.workspace, launcher.pid, self.private_dir)

    async def close(self) -> None:
        """End every command, and remove the private temp."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ending is not None:
            await asyncio.wait({self._ending})
        if self._memory is not None:
            await self._memory.close()
        await _close_all([*self._list_launchers(), *self._servers])
        for folder in list(self._change_logs):
            self.release_change_log(folder)
        while self._spare_change_logs:
            folder, lock = self._spare_change_logs.pop()
            remove_tree(folder)
            os.close(lock)
        if self._record is not None:
            self._record.remove()
        if self._private is not None:
            if _is_small(self._private.path):
                self._private.remove()
            else:
                await asyncio.to_thread(self._private.remove)


def _sizes_and_times(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return size and mtime of each file that exists."""
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = (status.st_size, status.st_mtime_ns)
    return found


async def _close_all(runners: Iterable[Runner]) -> None:
    for runner in runners:
        await runner.close()


def _is_small(folder: str) -> bool:
    """Tell whether removing a folder is quicker than starting a thread for it."""
    return sum(1 for each in os.walk(folder) for _ in each[2][:100]) < 100


def in_force(launcher: Runner) -> dict[str, Any]:
    """Return what contains the commands of this launcher, as plain data for results and `doctor`."""
    profile = launcher.profile
    if not profile.contained:
        return {"active": False, "kind": launcher.kind, "changes_recorded": launcher.records}
    problems = [*launcher.problems, *filter(None, [describe_weakness(launcher)])]
    return {
        "active": True,
        "kind": launcher.kind,
        "changes_recorded": launcher.records,
        "by": list(launcher.means),
        "network": profile.network,
        "writable": list(profile.writable),
        "secrets_covered": len(profile.masked) if profile.private_view else 0,
        "limits": dict(profile.limits),
        **({"problems": problems} if problems else {}),
    }


def describe_weakness(launcher: Runner) -> str:
    """Say how a sandbox is weaker than the system seemed to allow, because its namespaces could not be set up."""
    able = protocol.abilities()
    if not able.failed or launcher.profile.private_view or launcher.kind == "none":
        return ""
    left = "Landlock alone contains commands, and secrets in the workspace are not covered"
    left = left if launcher.profile.contained else "nothing contains commands"
    return f"the sandbox could not be set up as usual ({able.why_not}): {left}"


def sandbox_missing(settings: SandboxSettings) -> str:
    """Return why a preferred sandbox is not available here, or an empty text."""
    if settings.mode != "preferred" or protocol.available():
        return ""
    return f"no sandbox here: {protocol.abilities().why_not}"


SHELLS: Final[Kept[Shells]] = Kept("shells", make=Shells, close=Shells.close)
