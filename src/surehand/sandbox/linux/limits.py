"""Limits on a command's memory, processes and file sizes: by rlimit per process, by polling or a cgroup for all.

Runs in the launcher, except for `find_delegated`.
"""

import os
import resource


def apply(limits: dict[str, int]) -> None:
    """Set the rlimits of this process and its children; a lower limit stays."""
    # Data, not address space: runtimes such as node and java reserve far more than they use.
    _lower(resource.RLIMIT_DATA, limits["memory"])
    _lower(resource.RLIMIT_FSIZE, limits["file_size"])
    _lower(resource.RLIMIT_NPROC, limits["processes"])
    _lower(resource.RLIMIT_CORE, 0)


def _lower(kind: int, wanted: int) -> None:
    soft, hard = resource.getrlimit(kind)
    for current in (soft, hard):
        if current != resource.RLIM_INFINITY:
            wanted = min(wanted, current)
    resource.setrlimit(kind, (wanted, wanted))


def cap_process_ids(processes: int) -> bool:
    """Bound the number of processes of this PID namespace, root's included; False where the kernel cannot (< 6.14)."""
    try:
        with open("/proc/sys/kernel/pid_max", "r+") as setting:
            if int(setting.read()) < 4_000_000 and os.getpid() != 1:
                return False
            setting.seek(0)
            setting.write(str(max(processes, 32) + 301))  # the kernel keeps the first 300 for itself
        return True
    except (OSError, ValueError):
        return False


def used_in_tmpfs(folders: list[str]) -> int:
    """Return the memory that files in these in-memory file systems take."""
    total = 0
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        total += (status.f_blocks - status.f_bfree) * status.f_frsize
    return total


def _count_shared_memory(pids: list[int]) -> int:
    """Return the memory that these processes use in memory files and shared mappings, each counted once.

    A mapped memory file is counted as a file; of anonymous shared mappings each process has its proportional share.
    """
    files: dict[tuple[int, int], int] = {}
    most = shares = 0
    for pid in pids:
        try:
            mapped = _kilobytes(pid, "status", "RssShmem:") << 10
            most = max(most, mapped)
            shares += _kilobytes(pid, "smaps_rollup", "Pss_Shmem:") << 10 if mapped else 0
            for name in os.listdir(f"/proc/{pid}/fd"):
                link = f"/proc/{pid}/fd/{name}"
                if os.readlink(link).startswith("/memfd:"):
                    known = os.stat(link)
                    files[known.st_dev, known.st_ino] = known.st_blocks * 512
        except (OSError, ValueError):
            continue
    return max(most, shares, sum(files.values()))


def _kilobytes(pid: int, file: str, field: str) -> int:
    """Return a field of a process's file in /proc, in KiB; 0 where there is none."""
    with open(f"/proc/{pid}/{file}") as lines:
        return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def find_exceeded(pids: list[int], limits: dict[str, int], grown: int = 0) -> str:
    """Return as a sentence which limit these processes exceed together; empty when they exceed none.

    `grown` is how much they have written to in-memory file systems.
    """
    if len(pids) > limits["processes"]:
        return f"it ran more than {limits['processes']} processes at once"
    page = resource.getpagesize()
    total = max(grown, 0) + _count_shared_memory(pids)
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as statm:
                _, resident, shared = statm.read().split()[:3]
        except (OSError, ValueError):
            continue
        total += (int(resident) - int(shared)) * page
    if total > limits["memory"]:
        return describe_memory(limits)
    return ""


def describe_memory(limits: dict[str, int]) -> str:
    """Return the sentence for an exceeded memory limit."""
    return f"its processes together used more than {limits['memory'] >> 20} MB of memory"


# A cgroup for each supervisor, where the system has delegated one to us: the kernel enforces the limits.
#
# Without one, as usual in containers and for root, limits are polled four times a second. Groups are made beside our
# own, below the nearest delegated one; no other process is moved.

_ROOT = "/sys/fs/cgroup"
_NEEDED = ("memory", "pids")
_PREFIX = "surehand-"
_LITTLE = 32 << 20
"""Too little memory for the page cache of the programs, whatever the limit."""


def find_delegated(root: str = _ROOT, own: str = "/proc/self/cgroup", needed: tuple[str, ...] = _NEEDED) -> str:
    """Return the nearest cgroup above our own in which we may make groups with limits, or an empty text."""
    for line in _read(own).splitlines():
        if line.startswith("0::/"):
            folder = os.path.join(root, line[4:]).rstrip("/")
            while len(folder) > len(root):
                folder = os.path.dirname(folder)
                if _is_ours(folder) and set(needed) <= set(_read(f"{folder}/cgroup.subtree_control").split()):
                    return folder
    return ""


def _is_ours(folder: str) -> bool:
    """Tell whether a cgroup is delegated: it belongs to an ordinary user, or systemd has marked it as delegated.

    Root can write every group, but those not marked are systemd's to manage.
    """
    try:
        if os.stat(folder).st_uid != os.geteuid() or not os.access(f"{folder}/cgroup.procs", os.W_OK):
            return False
        return os.geteuid() != 0 or os.getxattr(folder, "user.delegate") == b"1"
    except OSError:
        return False


class Groups:
    """The cgroups of one launcher, held by descriptor: in the sandbox their files are read-only."""

    def __init__(self, folder: str, needed: tuple[str, ...] = _NEEDED) -> None:
        remove_stale(folder)
        self.parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.name = f"{_PREFIX}{os.getpid()}"
        os.mkdir(self.name, 0o755, dir_fd=self.parent)
        self.folder = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.parent)
        self.count = 0
        if needed:
            _write(self.folder, "cgroup.subtree_control", " ".join(f"+{each}" for each in needed))

    def make_group(self, limits: dict[str, int]) -> tuple[str, int]:
        """Make the cgroup of a supervisor, with its limits; return its name and descriptor."""
        self.count += 1
        name = f"supervisor-{self.count}"
        os.mkdir(name, 0o755, dir_fd=self.folder)
        group = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            _write(group, "memory.max", str(limits["memory"]))
            _write(group, "pids.max", str(limits["processes"]))
        except OSError:
            os.close(group)
            self.remove_group(name)
            raise
        for file, text in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            try:
                _write(group, file, text)
            except OSError:
                continue  # a kernel without swap accounting
        return name, group

    def remove_group(self, name: str) -> None:
        """Remove the cgroup of a supervisor that has ended."""
        try:
            os.rmdir(name, dir_fd=self.folder)
        except OSError:
            pass  # `remove_stale` of the next launcher removes it

    def close(self) -> None:
        """Remove the session's group; every supervisor has ended."""
        for name in os.listdir(self.folder):
            if name.startswith("supervisor-"):
                self.remove_group(name)
        try:
            os.rmdir(self.name, dir_fd=self.parent)
        except OSError:
            pass


def join(group: int) -> None:
    """Move this process, and so all its later children, into a cgroup."""
    _write(group, "cgroup.procs", "0")


def count_oom_kills(group: int) -> int:
    """Return how many processes of a cgroup the OOM killer has killed."""
    return _read_counts(group, "memory.events").get("oom_kill", 0)


def count_limit_hits(group: int, limit: int) -> int:
    """Return how often a full cgroup has hit its limit; 0 while much of its memory can be reclaimed.

    The kernel kills nothing as long as it can evict a page of a program's code, which is read again at once: a command
    can thrash like that for minutes.
    """
    held = _read_counts(group, "memory.stat")
    kept = held.get("anon", 0) + held.get("shmem", 0) + held.get("kernel", 0) - held.get("slab_reclaimable", 0)
    if kept < limit - min(limit // 8, _LITTLE):
        return 0
    return _read_counts(group, "memory.events").get("max", 0)


def _read_counts(group: int, name: str) -> dict[str, int]:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=group)
        try:
            words = os.read(descriptor, 16384).decode().split()
        finally:
            os.close(descriptor)
    except OSError:
        return {}
    return {word: int(count) for word, count in zip(words[::2], words[1::2], strict=False)}


def remove_stale(folder: str) -> None:
    """Remove the groups of launchers that were killed."""
    for name in os.listdir(folder):
        pid = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            path = os.path.join(folder, name)
            try:
                for group in [each for each in os.listdir(path) if each.startswith("supervisor-")]:
                    os.rmdir(os.path.join(path, group))
                os.rmdir(path)
            except OSError:
                continue  # something in it still runs


def _write(folder: int, name: str, text: str) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
