"""The launcher's own loop: `python -I -S main.py CONTROL`, where CONTROL is the descriptor it talks through."""

from __future__ import annotations

import gc
import os
import select
import sys

sys.path.insert(0, os.path.abspath(__file__).removesuffix("/surehand/sandbox/linux/launcher/main.py"))

import _socket

from surehand.sandbox.linux import landlock, limits, namespaces, seccomp, system
from surehand.sandbox.linux.launcher import messages, supervisor, tree

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

_KILL = 9


class Launcher:
    """Holds the session's namespaces, and makes supervisors when the program asks for them."""

    def __init__(self, control: _socket.socket, profile: dict[str, Any], owner: int) -> None:
        self.control = control
        self.profile = profile
        self.owner = owner
        self.supervisors: set[int] = set()
        self.groups: limits.Groups | None = None
        self.group_names: dict[int, str] = {}
        """The group of each supervisor's commands, where we may make groups."""
        self.dismissed = False
        self.private: str = os.path.dirname(profile["scratch"])

    def prepare(self) -> dict[str, Any]:
        """Enter the namespaces of the profile; return what is in force."""
        profile = self.profile
        facts: dict[str, Any] = {"namespaces": False, "problems": []}
        # Held from before the namespaces: these lead to the folders as the program sees them.
        profile["root_folders"] = {root: os.open(root, os.O_PATH | os.O_CLOEXEC) for root in profile["roots"]}
        self.temp = os.open(os.path.dirname(self.private), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.groups = _make_groups(profile)
        facts["cgroup"] = self.groups is not None
        if profile["namespaces"]:
            profile["capabilities"] = namespaces.kept_capabilities(profile["workspace"])
            namespaces.enter(network=bool(profile["network"]))
            facts["problems"] = namespaces.furnish(profile, profile["scratch"])
            facts["namespaces"] = True
        else:
            profile["capabilities"] = namespaces.needed_capabilities(profile["workspace"])
            system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)
        facts["landlock"] = landlock.version() if profile["landlock"] else 0
        facts["seccomp"] = bool(profile["seccomp"])
        self._assemble()
        return facts

    def _assemble(self) -> None:
        """Make the filters once; every command-to-be inherits them ready."""
        profile = self.profile
        if profile["seccomp"]:
            alone = not profile["namespaces"]
            profile["seccomp"] = seccomp.containing(network=bool(profile["network"]), alone=alone)
        profile["reporting"] = seccomp.reporting() if seccomp.supported() else b""

    def serve(self) -> None:
        """Make supervisors until the program closes its end or is gone."""
        wake, wake_end = os.pipe()
        for end in (wake, wake_end):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(wake_end)
        _signal.signal(_signal.SIGCHLD, supervisor.nothing)
        poll = select.poll()
        for end in (self.control.fileno(), self.owner, wake):
            poll.register(end, select.POLLIN)
        self._make_supervisor(None)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake:
                    os.read(wake, 512)
                    self._collect()
                elif descriptor == self.owner or not self._take_order():
                    self._close()
                    if not self.dismissed and _has_ended(self.owner):
                        self._clear()
                    return

    def _take_order(self) -> bool:
        match messages.receive(self.control):
            case None:
                return False
            case ("supervisor", overlay), _:
                self._make_supervisor(overlay)
            case ("bye",), _:
                self.dismissed = True
            case ("kill", int(pid)), _ if pid in self.supervisors:
                os.kill(pid, _KILL)
            case _:
                pass
        return True

    def _make_supervisor(self, overlay: dict[str, Any] | None) -> None:
        name, group = self._make_group()
        try:
            pid, line = supervisor.make(self.profile, overlay, group)
        except OSError as problem:
            messages.send(self.control, ("no supervisor", problem.errno or 0))
            return
        finally:
            if group >= 0:
                os.close(group)
        self.supervisors.add(pid)
        if name:
            self.group_names[pid] = name
        messages.send(self.control, ("supervisor", pid, overlay is not None), [line.fileno()])
        line.close()

    def _make_group(self) -> tuple[str, int]:
        """Make the group of a new supervisor; without one, its commands are looked at now and then."""
        if self.groups is not None:
            try:
                return self.groups.make_group(self.profile["limits"])
            except OSError:
                pass
        return "", -1

    def _collect(self) -> None:
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.supervisors.discard(pid)
                if self.groups is not None and (name := self.group_names.pop(pid, "")):
                    self.groups.remove_group(name)
        except ChildProcessError:
            pass
        self._end_strays()

    def _end_strays(self) -> None:
        """Without namespaces, what a killed supervisor leaves behind becomes ours: end it."""
        if self.profile["namespaces"]:
            return
        for pid in tree.children(os.getpid()):
            if pid not in self.supervisors:
                tree.end(pid)
                tree.signal_all([pid], _KILL)

    def _close(self) -> None:
        """End every supervisor."""
        if self.profile["namespaces"]:
            tree.signal_all(list(self.supervisors), _KILL)
        else:
            tree.end(os.getpid(), 4.0)
        if self.groups is not None:
            self._wait_for_supervisors()
            self.groups.close()

    def _wait_for_supervisors(self) -> None:
        """Wait until the last process of every supervisor is gone: a group goes no earlier."""
        try:
            while self.supervisors:
                self.supervisors.discard(os.waitpid(-1, 0)[0])
        except ChildProcessError:
            pass

    def _clear(self) -> None:
        """The program was killed, so nobody else removes the session's private temp."""
        name = os.path.basename(self.private)
        if not name.startswith("surehand-"):
            return
        try:
            system.unmount(self.private)  # no folder goes on which something is mounted
        except OSError:
            pass
        from surehand.files.trees import remove_tree  # lazy: trees, 1 ms

        remove_tree(f"/proc/self/fd/{self.temp}/{name}")


def _make_groups(profile: dict[str, Any]) -> limits.Groups | None:
    """Make the group of this launcher where limits are to be kept and a group was handed over to us."""
    folder = limits.find_delegated() if profile["limited"] else ""
    try:
        return limits.Groups(folder) if folder else None
    except OSError:
        return None


def _has_ended(owner: int) -> bool:
    """Tell whether the program is gone; a process that dies lets go of its lines a moment before."""
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    return bool(poll.poll(2000))


def main() -> None:
    """Serve the commands of one session until its owner goes."""
    gc.disable()  # there are no cycles here, and a look for them copies every page that a fork has shared
    number = int(sys.argv[1])
    os.closerange(3, number)  # whatever the program left open is no business of a command
    os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
    control = _socket.socket(fileno=number)
    os.set_inheritable(number, False)
    first = messages.receive(control)
    if first is None:
        return
    import marshal

    (content, owner) = first[1]
    profile = marshal.loads(os.pread(content, os.fstat(content).st_size, 0))
    os.close(content)
    launcher = Launcher(control, profile, owner)
    try:
        facts = launcher.prepare()
    except OSError as problem:
        if launcher.groups is not None:
            launcher.groups.close()
        messages.send(control, ("failed", f"{problem.strerror or problem}"))
        return
    messages.send(control, ("ready", facts))
    launcher.serve()
    os._exit(0)  # the program waits for our end, and to take an interpreter down in order takes milliseconds


if __name__ == "__main__":
    main()
