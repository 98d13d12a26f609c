"""A child process that believes it is on a system without Linux's means; run as `python elsewhere.py < STEPS`.

The system says `darwin`, `os` lacks what only Linux has, and no module of the Linux sandbox can be imported. STEPS is
JSON: settings, and a list of calls as [tool, args] or [tool, args, the file whose appearance cancels it]. What each
came to, and how many questions it asked, is printed as JSON.
With arguments it is the command line instead: `python elsewhere.py doctor`.
"""

from __future__ import annotations

import asyncio
import asyncio.subprocess  # these look at the name of the system when they are imported, and no later
import ctypes  # noqa: F401
import importlib.abc
import json
import os
import selectors  # noqa: F401
import subprocess  # noqa: F401
import sys
import sysconfig
import tempfile  # noqa: F401
import uuid  # noqa: F401
from typing import Any

_OF_LINUX = ("memfd_create", "pidfd_open", "O_PATH", "listxattr", "getxattr", "setxattr", "eventfd")
_OF_LINUX += ("copy_file_range", "posix_fallocate", "sched_getaffinity", "RWF_NOWAIT", "waitid", "P_PIDFD", "setns")


class Closed(importlib.abc.MetaPathFinder):
    """Lets nobody import the Linux sandbox."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Refuse its modules, and know no others."""
        if fullname.startswith("surehand.sandbox.linux"):
            raise ImportError(f"{fullname} needs Linux")


def pretend() -> None:
    """Become another system, once all of the standard library that looks at the name of the system is there."""
    sysconfig.get_config_vars()
    sys.platform = "darwin"
    for name in _OF_LINUX:
        if hasattr(os, name):
            delattr(os, name)
    sys.meta_path.insert(0, Closed())


async def main(steps: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the calls one after another."""
    from surehand.core.settings import Settings
    from surehand.testing import Says, scratch_app

    says = Says("once")
    told: list[dict[str, Any]] = []
    settings = Settings.parse(steps.get("settings", {}))
    async with scratch_app(steps["workspace"], approver=says, settings=settings) as app:
        for tool, args, *cancel_at in steps["calls"]:
            asked = len(says.asked)
            call = asyncio.ensure_future(app.call(tool, args))
            if cancel_at:
                while not os.path.exists(os.path.join(steps["workspace"], cancel_at[0])):
                    await asyncio.sleep(0.01)
                call.cancel()
            try:
                result = (await call).to_dict()
            except asyncio.CancelledError:
                result = {"cancelled": True}
            told.append(result | {"asked": len(says.asked) - asked})
    return told


if __name__ == "__main__":
    pretend()
    if sys.argv[1:]:
        from surehand.cli.main import main as command_line

        sys.exit(command_line(sys.argv[1:]))
    print(json.dumps(asyncio.run(main(json.loads(sys.stdin.read()))), default=str))
