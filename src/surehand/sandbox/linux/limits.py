"""Limits on a command: memory, processes, file size; by rlimit for each process, by a look at all together."""

import os
import resource


def apply(limits: dict[str, int]) -> None:
    """Set the limits of this process and all it starts; a limit already lower stays."""
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


def in_temps(folders: list[str]) -> int:
    """Return how much memory the files in these file systems take, which are in memory."""
    total = 0
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        total += (status.f_blocks - status.f_bfree) * status.f_frsize
    return total


def _count_shared_memory(pids: list[int]) -> int:
    """Return the memory that these processes hold in files without a name and in shared maps, each counted once.

    A file that is mapped is counted as a file; of what is mapped and belongs to none, each process has its share.
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
    """Return a figure that the kernel tells of a process; nothing where it tells none."""
    with open(f"/proc/{pid}/{file}") as told:
        return next((int(line.split()[1]) for line in told if line.startswith(field)), 0)


def overrun(pids: list[int], limits: dict[str, int], grown: int = 0) -> str:
    """Return which limit these processes break together, as a sentence, or an empty text.

    `grown` is what they have put into file systems in memory meanwhile.
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
    """Say that the limit on memory was broken."""
    return f"its processes together used more than {limits['memory'] >> 20} MB of memory"
