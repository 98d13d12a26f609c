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


def overrun(pids: list[int], limits: dict[str, int]) -> str:
    """Return which limit these processes break together, as a sentence, or an empty text."""
    if len(pids) > limits["processes"]:
        return f"it ran more than {limits['processes']} processes at once"
    page = resource.getpagesize()
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as statm:
                _, resident, shared = statm.read().split()[:3]
        except (OSError, ValueError):
            continue
        total += (int(resident) - int(shared)) * page
    if total > limits["memory"]:
        return f"its processes together used more than {limits['memory'] >> 20} MB of memory"
    return ""
