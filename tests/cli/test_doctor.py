"""`surehand doctor`: each section says what works and what does not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.providers.model_stub import Stub


def doctor(section: str, cwd: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "surehand", "doctor", section]
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, json.loads(done.stdout)[0]


def found(section: dict[str, Any]) -> str:
    return " ".join(check["found"] for check in section["checks"])


def test_sound_settings_are_well_and_broken_ones_are_told(tmp_path: Path) -> None:
    assert doctor("settings", tmp_path)[0] == 0
    code, section = doctor("settings", tmp_path, SUREHAND_ENGINE__TIMEOUT="soon")
    assert code == 1
    assert "SUREHAND_ENGINE__TIMEOUT" in found(section)
    (tmp_path / "surehand.toml").write_text("[engine]\ntimeout = 3\n")
    assert "not trusted" in found(doctor("settings", tmp_path)[1])
    code, section = doctor("tools", tmp_path)
    assert (code, "not trusted" in found(section)) == (0, False), "what the settings say is said once, in their section"


def test_the_model_and_the_web_tools_are_told(tmp_path: Path) -> None:
    assert doctor("model", tmp_path)[1]["provider"] == "offline"
    assert "not set up" in found(doctor("web", tmp_path)[1])
    opened = doctor("web", tmp_path, SUREHAND_WEB__ALLOWED_HOSTS='["127.0.0.1"]')[1]
    assert "127.0.0.1" in found(opened)


def test_a_model_whose_server_is_dead_does_not_answer(tmp_path: Path, stub: Stub) -> None:
    code, section = doctor("model", tmp_path, OPENAI_BASE_URL=f"{stub.address}/v1")
    assert (code, section["problem"]) == (0, "")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    code, section = doctor("model", tmp_path, OPENAI_BASE_URL=address)
    assert code == 1
    assert "nothing answers at" in found(section)


def test_servers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    assert doctor("servers", tmp_path) == (0, doctor("servers", tmp_path)[1])
    servers = json.dumps({"gone": {"command": "/nonexistent/server"}})
    code, section = doctor("servers", tmp_path, SUREHAND_MCP_SERVERS=servers)
    assert code == 1
    assert section["checks"][0]["name"] == "gone"


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    code, section = doctor("settings", tmp_path, SUREHAND_HOME=str(tmp_path / "file" / "state"))
    assert code == 1
    assert f"{tmp_path / 'file' / 'state'} cannot be written" in found(section)


def test_extras_that_are_not_installed_are_named_with_the_line_that_installs_them(tmp_path: Path) -> None:
    code, section = doctor("extras", tmp_path)
    assert code == 0, "no extra has to be installed"
    assert set(section["missing"]) <= {check["name"] for check in section["checks"]}
    if "cluster" in section["missing"]:
        assert "sessions on a Ray cluster: not installed; pip install 'surehand[cluster]'" in found(section)
