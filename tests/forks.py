"""Forks of the test process: children that end with their action, whatever it raises.

An exception that left a child would run pytest a second time in it, and break the run of all tests.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def fork(action: Callable[[], object]) -> int:
    """Run an action in a forked process, which ends with 0, or with 1 if it raises; return its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
