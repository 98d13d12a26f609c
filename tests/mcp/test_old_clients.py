"""Clients of other projects that want an older SDK, in an environment of their own (`make test-integrations`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = Path(__file__).parents[2] / ".venv-oldmcp"
pytestmark = pytest.mark.skipif(not ENVIRONMENT.exists(), reason="`make test-integrations` makes .venv-oldmcp")


@pytest.mark.parametrize("check", ["langchain_stdio", "langchain_http", "fastmcp_client"])
def test_a_client_with_the_older_sdk_reads_edits_and_takes_structured_content(check: str) -> None:
    script = Path(__file__).with_name("old_clients.py")
    words = [str(ENVIRONMENT / "bin" / "python"), str(script), sys.executable, check]
    env = os.environ | {"FASTMCP_CHECK_FOR_UPDATES": "off"}
    ran = subprocess.run(words, capture_output=True, text=True, timeout=110, env=env, check=False)
    assert ran.stdout.strip().endswith("ok"), ran.stdout + ran.stderr
