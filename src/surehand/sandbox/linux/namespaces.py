"""Namespaces: users, mounts, network and IPC of a session's commands, made once by the launcher.

Commands see the system and toolchains read-only, and can write the workspace and a private temp; secrets are covered,
and the rest of the disk is not there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from surehand.sandbox.linux import system
from surehand.sandbox.linux.system import MS_BIND, MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_REC, bind, mount, set_read_only

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    from typing import Any

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}

_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID = 0, 1, 3, 4, 5, 6, 7


def kept_capabilities(workspace: str) -> int:
    """Return the capabilities a command keeps: none, or for root those that work on files as root is used to."""
    if os.geteuid() != 0:
        return 0
    kept = [_CHOWN, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID]
    return sum(1 << number for number in kept) | needed_capabilities(workspace)


def needed_capabilities(workspace: str) -> int:
    """Return what root needs to work in another user's workspace: writing files of others.

    Without a user namespace nothing else is kept: capabilities would count on the whole machine.
    """
    if os.geteuid() != 0 or os.stat(workspace).st_uid == 0:
        return 0
    return 1 << _DAC_OVERRIDE  # a covered secret opens with it (and is empty)


def enter(*, network: bool) -> None:
    """Move this process into new namespaces, with its user and group ids unchanged."""
    flags = system.CLONE_NEWUSER | system.CLONE_NEWNS | system.CLONE_NEWIPC | system.CLONE_NEWUTS
    if not network:
        flags |= system.CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        _enter_as_root(flags)
    else:
        system.unshare(flags)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    if not network:
        _loopback_up()


def _enter_as_root(flags: int) -> None:
    """Map every id onto itself, which only a process outside the new namespace may do: a helper, forked before."""
    entered, report = os.pipe()
    launcher = os.getpid()
    if (helper := os.fork()) == 0:
        status = 1
        try:
            os.close(report)  # held here, it would keep the helper waiting for ever if the launcher died or failed
            if os.read(entered, 1):
                _copy_map(launcher, "uid_map")
                _copy_map(launcher, "gid_map")
                status = 0
        finally:
            os._exit(status)
    os.close(entered)
    try:
        system.unshare(flags)
        os.write(report, b"x")
    finally:
        os.close(report)
        _, status = os.waitpid(helper, 0)
    if status:
        raise PermissionError(errno.EPERM, "the user namespace could not be given its user and group IDs")


def _copy_map(target: int, name: str) -> None:
    with open(f"/proc/self/{name}") as mine:
        ranges = [line.split() for line in mine]
    _write(f"/proc/{target}/{name}", "\n".join(f"{inside} {inside} {count}" for inside, _, count in ranges))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _loopback_up() -> None:
    """Bring `lo` up, so that a command's own servers and clients can connect."""
    import _socket

    link = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    request = bytearray(b"lo".ljust(16, b"\0") + (0x41).to_bytes(2, "little") + bytes(22))  # up, running
    try:
        fcntl.ioctl(link.fileno(), 0x8914, request)
    except OSError:
        pass
    finally:
        link.close()


def furnish(profile: dict[str, Any], scratch: str) -> list[str]:
    """Set up the session's mounts; `scratch` is an empty folder to build in. Return what could not be done."""
    problems: list[str] = []
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    shown = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*profile["shown"], *profile["writable"])}
    mount("tmpfs", scratch, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=700,size={profile['limits']['memory']}")
    # Reached by descriptor from here on: a mount below may cover the folder's path.
    held = os.open(scratch, os.O_PATH | os.O_CLOEXEC)
    scratch = f"/proc/self/fd/{held}"
    os.close(os.open(f"{scratch}/nothing", os.O_CREAT | os.O_WRONLY, 0))
    os.mkdir(f"{scratch}/nobody", 0)
    for path in profile["private"]:
        _make_private(path, scratch, problems)
    # Bounded: a tmpfs takes memory.
    size = f"size={profile['limits']['memory']}"
    for path in profile["empty"]:
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,{size}")
    for path in profile["closed"]:
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
    for path in profile["homes"]:
        os.makedirs(path, exist_ok=True)
        bind(path, path)  # a mount of its own, so that it is read-only even below a writable temp
    _make_devices(scratch, size)
    for path, descriptor in sorted(shown.items(), key=_depth):
        _make_mount_point(path, descriptor)
        bind(f"/proc/self/fd/{descriptor}", path)
        os.close(descriptor)
    covers = make_covers(profile["masked"], scratch)
    set_read_only("/", True)
    for path in (*profile["private"], *profile["empty"]):
        set_read_only(path, False, recursive=False)
    for path in (*profile["writable"], "/dev/shm", "/dev/pts"):
        _make_writable(path)
    for path in profile["pinned"]:
        bind(path, path)
    for path in profile["read_only"]:
        _freeze(path)
    for path, shown_instead in profile["instead"].items():
        bind(shown_instead, path)
        set_read_only(path, True)
    cover(covers)
    system.unmount(scratch)
    os.close(held)
    return problems


def _depth(item: tuple[str, int]) -> int:
    """Return a sort key that puts a folder before what is shown inside it."""
    return item[0].count("/")


def _make_private(path: str, scratch: str, problems: list[str]) -> None:
    """Mount an overlay on `path`: writes go to a private layer, the machine's files stay readable.

    Sockets cannot be connected to through an overlay, so tmux, docker and key agents are out of reach.
    """
    name = path.strip("/").replace("/", "-")
    upper, work = f"{scratch}/{name}-upper", f"{scratch}/{name}-work"
    os.mkdir(upper)
    os.mkdir(work)
    os.chmod(upper, stat.S_IMODE(os.stat(path).st_mode))
    try:
        mount(
            "overlay",
            path,
            "overlay",
            MS_NOSUID | MS_NODEV,
            f"lowerdir={path},upperdir={upper},workdir={work},userxattr",
        )
    except OSError as problem:
        problems.append(f"{path} of the machine is hidden: {problem.strerror}")
        bind(upper, path)


def _make_mount_point(path: str, descriptor: int) -> None:
    """Make an empty file or folder as a mount point, where the folders above are hidden."""
    if os.path.exists(path):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def _make_devices(scratch: str, size: str) -> None:
    """Mount a minimal /dev: no disks, no memory, no consoles."""
    devices = f"{scratch}/dev"
    os.mkdir(devices, 0o755)
    mount("tmpfs", devices, "tmpfs", MS_NOSUID, "mode=755")
    for name in _DEVICES:
        if os.path.exists(f"/dev/{name}"):
            os.close(os.open(f"{devices}/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
            bind(f"/dev/{name}", f"{devices}/{name}")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{devices}/{name}")
    os.mkdir(f"{devices}/pts", 0o755)
    os.mkdir(f"{devices}/shm", 0o1777)
    mount("devpts", f"{devices}/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    mount("tmpfs", f"{devices}/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,{size}")
    bind(devices, "/dev")


def _make_writable(path: str) -> None:
    try:
        set_read_only(path, False)
    except OSError:
        set_read_only(path, False, recursive=False)  # something below is read-only on the machine itself


def _freeze(path: str) -> None:
    bind(path, path)
    set_read_only(path, True)


def cover(covers: dict[str, str]) -> None:
    """Mount the cover of each path over it, read-only."""
    for path, instead in covers.items():
        try:
            mount(instead, path, flags=MS_BIND)
            set_read_only(path, True)
        except FileNotFoundError:
            continue  # it went away since the profile was made


def make_covers(paths: list[str], scratch: str) -> dict[str, str]:
    """Make the cover of each path, while the scratch folder is still writable."""
    covers: dict[str, str] = {}
    for number, path in enumerate(paths):
        try:
            covers[path] = _make_cover(path, scratch, number)
        except FileNotFoundError:
            continue  # it went away since the profile was made
    return covers


def _make_cover(path: str, scratch: str, number: int) -> str:
    """Return what to mount over a path: for a file an unreadable one of the same size and times.

    git compares size and times first, so it takes a covered tracked file for unchanged.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        return f"{scratch}/nobody"
    if not stat.S_ISREG(status.st_mode):
        return f"{scratch}/nothing"
    made = f"{scratch}/cover-{number}"
    try:
        descriptor = os.open(made, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o200)
        os.ftruncate(descriptor, status.st_size)  # sparse: it takes no space
        os.fchmod(descriptor, status.st_mode & stat.S_IXUSR)
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.close(descriptor)
    except OSError:
        return f"{scratch}/nothing"
    return made


def lay_over(overlay: dict[str, Any], profile: dict[str, Any]) -> None:
    """Mount a copy over every folder the command may write, for this call alone: an overlay, or a full copy."""
    system.unmount(overlay["hidden"])  # the copies are below; covered again at the end
    for path in overlay["frozen"]:
        set_read_only(path, True)
    if overlay["frozen"]:
        _make_writable(os.path.dirname(profile["scratch"]))
    for each in overlay["folders"]:
        if "copy" in each:
            bind(each["copy"], each["lower"])
            continue
        options = (("lowerdir", each["lower"]), ("upperdir", each["upper"]), ("workdir", each["work"]))
        text = ",".join(f"{name}={_escape_mount_option(path)}" for name, path in options)
        mount("overlay", each["lower"], "overlay", MS_NOSUID | MS_NODEV, f"{text},userxattr")
    copied = tuple(each["lower"].rstrip("/") + "/" for each in overlay["folders"])
    for path in profile["pinned"]:
        if path.startswith(copied):
            bind(path, path)
    for path in profile["read_only"]:
        if path.startswith(copied):
            _freeze(path)
    masked = [path for path in profile["masked"] if path.startswith(copied)]
    cover(make_covers([*masked, overlay["hidden"]], overlay["covers"]))


def _escape_mount_option(path: str) -> str:
    """Escape a path for the options of an overlay mount, where colons and commas separate."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def mount_processes() -> bool:
    """Mount a /proc of this PID namespace; False where the system forbids it."""
    try:
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | system.MS_NOEXEC)
        return True
    except OSError:
        return False
