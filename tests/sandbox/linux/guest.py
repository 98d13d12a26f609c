"""What runs inside a kernel of its own (see `test_delegated_cgroup.py`): first as its init, then as an ordinary user.

As init it lays out a machine as systemd does for a user: one hierarchy of control groups, a part of it handed over, our
own processes in a group within. As the user it makes calls and writes what came of them into a folder of the host.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

USER = 1000
SHARED = Path("/run/shared")
ROOT = Path("/sys/fs/cgroup")
HANDED_OVER = ROOT / "user"
HOME = Path("/tmp/home")

HOLDING = {
    "heap of several": "[os.fork() for _ in range(3)]; x = bytearray(b'x' * (30 << 20))",
    "memfd": "f = os.memfd_create('x'); [os.write(f, b'x' * 2**20) for _ in range(200)]",
    "shared map": "import mmap; m = mmap.mmap(-1, 200 << 20); [m.write(b'x' * 2**20) for _ in range(200)]",
    "/dev/shm": "f = open('/dev/shm/x', 'wb', 0); [f.write(b'x' * 2**20) for _ in range(50)]; y = b'y' * (40 << 20)",
    "/tmp": "f = open('/tmp/x', 'wb', 0); [f.write(b'x' * 2**20) for _ in range(50)]; y = b'y' * (40 << 20)",
}


def become_machine(shared: str) -> None:
    """Mount what a machine has, hand a group over, and run the rest as an ordinary user in it."""
    for kind, where in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp"), ("tmpfs", "/run"), ("cgroup2", ROOT)):
        subprocess.run(["mount", "-t", kind, kind, str(where)], check=True)
    SHARED.mkdir()
    subprocess.run(["mount", "-t", "hostfs", "-o", shared, "hostfs", str(SHARED)], check=True)
    _open_the_way_to(sys.base_prefix, sys.prefix)
    inner = HANDED_OVER / "shell.scope"
    inner.mkdir(parents=True)
    for folder in (ROOT, HANDED_OVER):
        (folder / "cgroup.subtree_control").write_text("+memory +pids")
    for folder in (HANDED_OVER, inner):
        for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
            os.chown(path, USER, USER)
    HOME.mkdir()
    os.chown(HOME, USER, USER)
    enter = f'echo 0 > {inner}/cgroup.procs && exec setpriv --reuid={USER} --regid={USER} --clear-groups "$@"'
    environment = {"HOME": str(HOME), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    with open(SHARED / "found.json", "wb") as found, open(SHARED / "errors", "wb") as errors:
        subprocess.run(
            ["sh", "-c", enter, "sh", sys.executable, __file__, "user"],
            cwd=HOME, env=environment, stdout=found, stderr=errors, check=False,
        )  # fmt: skip


def _open_the_way_to(*wanted: str) -> None:
    """Show folders that lie in a home which is closed to others, and nothing else of it."""
    closed: dict[str, list[str]] = {}
    for path in wanted:
        for above in reversed(Path(path).parents):
            if not above.stat().st_mode & 0o001:
                closed.setdefault(str(above), []).append(path)
                break
    for number, (above, paths) in enumerate(closed.items()):
        behind = f"/run/behind-{number}"
        os.mkdir(behind, 0o700)
        subprocess.run(["mount", "--bind", above, behind], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", above], check=True)
        for path in paths:
            os.makedirs(path)
            subprocess.run(["mount", "--bind", behind + path.removeprefix(above), path], check=True)


def read_supervisors(name: str) -> list[str]:
    """Return what the kernel says of every supervisor there is."""
    return [path.read_text() for path in HANDED_OVER.glob(f"surehand-*/supervisor-*/{name}")]


def list_groups() -> list[str]:
    """Return the groups of all sessions."""
    return sorted(path.name for path in HANDED_OVER.glob("surehand-*"))


async def call(command: str, **limits: int) -> dict[str, Any]:
    """Run a command, and a harmless one after it; return what was said, and what the kernel had counted meanwhile."""
    from surehand.config import Settings
    from surehand.testing import scratch_app

    settings = Settings.parse({"sandbox": limits, "permissions": {"allow": ["Bash(*)"]}})
    folder = HOME / "workspace"
    folder.mkdir(exist_ok=True)
    async with scratch_app(str(folder), settings=settings) as app:
        done = await app.call("Bash", {"command": command, "timeout": 60_000})
        after = await app.call("Bash", {"command": "echo still here"})
        peak = max((int(text) for text in read_supervisors("memory.peak")), default=0)
        bounds = [text.strip() for text in read_supervisors("pids.max")]
    by = done.data.get("sandbox", {}).get("by", [])
    return {"ok": done.ok, "output": done.output, "by": by, "peak": peak, "bounds": bounds, "after": after.output}


def kill_a_program_at_work() -> bool:
    """Kill a program whose command runs; tell whether a group was there, and is gone when the launcher is."""
    code = f"import asyncio, runpy; asyncio.run(runpy.run_path({__file__!r})['call']('echo x; sleep 300'))"
    program = subprocess.Popen([sys.executable, "-c", code])
    while not any(text.strip() for text in read_supervisors("cgroup.procs")):
        assert program.poll() is None
        select.select([], [], [], 0.05)
    launchers = [int(name.removeprefix("surehand-")) for name in list_groups()]
    ends = [os.pidfd_open(pid) for pid in launchers]
    program.send_signal(signal.SIGKILL)
    program.wait()
    for end in ends:
        select.select([end], [], [], 60)
    return bool(launchers) and not list_groups()


def main() -> None:
    """Try everything and print what was found."""
    found: dict[str, Any] = {}
    for how, code in HOLDING.items():
        held = f'python3 -c "import os, time; {code}; time.sleep(60)"'
        found[how] = asyncio.run(call(held, memory_mb=64))
    found["processes"] = asyncio.run(call("for i in $(seq 200); do sleep 5 & done; wait", processes=40))
    found["killed"] = kill_a_program_at_work()
    doctor = subprocess.run([sys.executable, "-m", "surehand", "doctor"], capture_output=True, text=True, check=False)
    found["doctor"] = doctor.stdout
    found["left"] = list_groups()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "user":
        main()
    else:
        try:
            become_machine(sys.argv[1])
        except BaseException:
            traceback.print_exc()  # to the console; a machine whose init ends would only panic
        Path("/proc/sysrq-trigger").write_text("o")
        signal.pause()
