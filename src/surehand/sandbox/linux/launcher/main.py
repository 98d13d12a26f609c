"""The launcher process: `python -I -S main.py CONTROL`, where CONTROL is the descriptor of its socket to the client."""

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
    from typing import Any

_KILL = 9


class Launcher:
    """Holds the session's namespaces, and forks supervisors when the client asks for them."""

    def __init__(self, control: _socket.socket, profile: dict[str, Any], client_pidfd: int) -> None:
        self.control = control
        self.profile = profile
        self.client_pidfd = client_pidfd
        self.supervisors: set[int] = set()
        self.groups: limits.Groups | None = None
        self.group_names: dict[int, str] = {}
        """Supervisor's process id → its cgroup, where cgroups may be made."""
        self.dismissed = False
        """Whether the client has said that it closes the launcher; else it was killed, and cannot clean up itself."""
        self.private_dir: str = os.path.dirname(profile["scratch"])

    def prepare(self) -> dict[str, Any]:
        """Enter the namespaces of the profile; return what is in force."""
        profile = self.profile
        facts: dict[str, Any] = {"namespaces": False, "problems": []}
        # Opened before entering the namespaces: these lead to the folders as the client sees them.
        profile["root_folders"] = {root: os.open(root, os.O_PATH | os.O_CLOEXEC) for root in profile["roots"]}
        self.temp_fd = os.open(os.path.dirname(self.private_dir), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
        self._build_filters()
        return facts

    def _build_filters(self) -> None:
        """Build the seccomp filters once; every supervisor and command inherits them."""
        profile = self.profile
        if profile["seccomp"]:
            alone = not profile["namespaces"]
            profile["seccomp"] = seccomp.containing(network=bool(profile["network"]), alone=alone)
        profile["reporting"] = seccomp.reporting() if seccomp.supported() else b""

    def serve(self) -> None:
        """Fork supervisors until the client closes its socket or dies."""
        wakeup_fd = supervisor.open_wakeup_pipe()
        poll = select.poll()
        for descriptor in (self.control.fileno(), self.client_pidfd, wakeup_fd):
            poll.register(descriptor, select.POLLIN)
        self._add_supervisor(None)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wakeup_fd:
                    os.read(wakeup_fd, 512)
                    self._reap()
                elif descriptor == self.client_pidfd or not self._handle_request():
                    self._end_supervisors()
                    if not self.dismissed and _has_ended(self.client_pidfd):
                        self._remove_private_dir()
                    return

    def _handle_request(self) -> bool:
        """Receive one message of the client and act on it; False when it has closed its socket."""
        match messages.receive(self.control):
            case None:
                return False
            case ("supervisor", overlay), _:
                self._add_supervisor(overlay)
            case ("bye",), _:
                self.dismissed = True
            case ("kill", int(pid)), _ if pid in self.supervisors:
                os.kill(pid, _KILL)
            case _:
                pass
        return True

    def _add_supervisor(self, overlay: dict[str, Any] | None) -> None:
        group_name, group_fd = self._make_group()
        try:
            pid, client_end = supervisor.fork_supervisor(self.profile, overlay, group_fd)
        except OSError as problem:
            messages.send(self.control, ("no supervisor", problem.errno or 0))
            return
        finally:
            if group_fd >= 0:
                os.close(group_fd)
        self.supervisors.add(pid)
        if group_name:
            self.group_names[pid] = group_name
        messages.send(self.control, ("supervisor", pid, overlay is not None), [client_end.fileno()])
        client_end.close()

    def _make_group(self) -> tuple[str, int]:
        """Make the cgroup of a new supervisor; return its name and descriptor, or none where limits are polled."""
        if self.groups is not None:
            try:
                return self.groups.make_group(self.profile["limits"])
            except OSError:
                pass
        return "", -1

    def _reap(self) -> None:
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.supervisors.discard(pid)
                if self.groups is not None and (name := self.group_names.pop(pid, "")):
                    self.groups.remove_group(name)
        except ChildProcessError:
            pass
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill what a killed supervisor left behind: without namespaces it becomes our child."""
        if self.profile["namespaces"]:
            return
        for pid in tree.children(os.getpid()):
            if pid not in self.supervisors:
                tree.end(pid)
                tree.signal_all([pid], _KILL)

    def _end_supervisors(self) -> None:
        """Kill every supervisor, and remove the cgroups."""
        if self.profile["namespaces"]:
            tree.signal_all(list(self.supervisors), _KILL)
        else:
            tree.end(os.getpid(), 4.0)
        if self.groups is not None:
            self._wait_for_supervisors()
            self.groups.close()

    def _wait_for_supervisors(self) -> None:
        """Wait until every supervisor is reaped: until then its cgroup cannot be removed."""
        try:
            while self.supervisors:
                self.supervisors.discard(os.waitpid(-1, 0)[0])
        except ChildProcessError:
            pass

    def _remove_private_dir(self) -> None:
        """Remove the session's private directory, which a killed client has left."""
        name = os.path.basename(self.private_dir)
        if not name.startswith("surehand-"):
            return
        try:
            system.unmount(self.private_dir)  # a mount point cannot be removed
        except OSError:
            pass
        from surehand.files.trees import remove_tree  # lazy: trees, 1 ms

        remove_tree(f"/proc/self/fd/{self.temp_fd}/{name}")


def _make_groups(profile: dict[str, Any]) -> limits.Groups | None:
    """Make the cgroup of this launcher; None where there are no limits, or no cgroup is delegated to us."""
    folder = limits.find_delegated() if profile["limited"] else ""
    try:
        return limits.Groups(folder) if folder else None
    except OSError:
        return None


def _has_ended(pidfd: int) -> bool:
    """Tell whether a process is gone. Waits for up to 2 s: a dying process closes its sockets a moment before."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(2000))


def main() -> None:
    """Serve the commands of one session until its client is gone."""
    gc.disable()  # there are no cycles here, and each collection would copy the pages that forks share
    control_fd = int(sys.argv[1])
    supervisor.close_all_but(control_fd)  # the client may have left descriptors open that no command may inherit
    control = _socket.socket(fileno=control_fd)
    os.set_inheritable(control_fd, False)
    first = messages.receive(control)
    if first is None:
        return
    import marshal

    (profile_fd, client_pidfd) = first[1]
    profile = marshal.loads(os.pread(profile_fd, os.fstat(profile_fd).st_size, 0))
    os.close(profile_fd)
    launcher = Launcher(control, profile, client_pidfd)
    try:
        facts = launcher.prepare()
    except OSError as problem:
        if launcher.groups is not None:
            launcher.groups.close()
        messages.send(control, ("failed", f"{problem.strerror or problem}"))
        return
    messages.send(control, ("ready", facts))
    launcher.serve()
    os._exit(0)  # the client waits for our end, and an orderly exit of the interpreter takes milliseconds


if __name__ == "__main__":
    main()
