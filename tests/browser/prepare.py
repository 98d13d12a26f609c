"""Bring what the browser tests need: playwright into this environment, Debian's Chromium onto this machine.

No browser is downloaded by playwright itself. Where something cannot be had, this says so and ends well: the tests are
skipped then, with the same words.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install_playwright() -> str:
    """Install the Python package; return why not, or nothing."""
    if importlib.util.find_spec("playwright") is not None:
        return ""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt", "--group", "browser"]
    done = subprocess.run(words, cwd=ROOT, check=False, timeout=600)
    return "" if done.returncode == 0 else "playwright could not be installed"


def install_chromium() -> str:
    """Install the browser; return why not, or nothing."""
    if shutil.which("chromium"):
        return ""
    if shutil.which("apt-get") is None:
        return "there is no chromium, and no apt-get to install it with"
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and shutil.which("sudo") is None:
        return "there is no chromium, and only root can install it: apt-get install chromium"
    words = [*sudo, "apt-get", "install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    for before in ([], [*sudo, "apt-get", "update"]):  # package lists may be old, or not there at all
        if before:
            subprocess.run(before, check=False, timeout=300, stdout=subprocess.DEVNULL)
        if subprocess.run(words, check=False, timeout=600, stdout=subprocess.DEVNULL).returncode == 0:
            return ""
    return "apt-get could not install chromium"


def main() -> None:
    """Install both, and say what is missing."""
    for problem in (install_playwright(), install_chromium()):
        if problem:
            print(f"browser tests are skipped: {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()
