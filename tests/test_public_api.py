"""What `import surehand` promises: exactly these names, at next to no cost."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import surehand

NAMES = [
    "Answer",
    "Approver",
    "Args",
    "Connect",
    "DeletePath",
    "Effect",
    "Event",
    "Field",
    "Health",
    "Image",
    "Permission",
    "Preview",
    "Progress",
    "Question",
    "ReadPath",
    "RegistrationError",
    "Registry",
    "RunCommand",
    "Settings",
    "Surehand",
    "SurehandError",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFailure",
    "ToolResult",
    "Undo",
    "WritePath",
    "__version__",
    "shapes",
    "tool",
]


def test_the_exported_names_are_these() -> None:
    assert surehand.__all__ == NAMES
    assert dir(surehand) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_exported_name_is_there(name: str) -> None:
    assert getattr(surehand, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Toool'"):
        _ = surehand.Toool  # pyright: ignore[reportAttributeAccessIssue]


def test_names_are_where_their_modules_say() -> None:
    for name in NAMES:
        value = getattr(surehand, name)
        if (module := getattr(value, "__module__", "")).startswith("surehand.") and hasattr(value, "__name__"):
            assert getattr(importlib.import_module(module), name) is value


def loaded_by(statement: str) -> set[str]:
    """Return which modules of ours and of others a fresh interpreter has after a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_else() -> None:
    added = loaded_by("import surehand") - loaded_by("pass")
    assert {name for name in added if name.startswith("surehand")} == {"surehand"}
    assert not added & {"typing", "asyncio", "pydantic", "argparse", "json"}


@pytest.mark.parametrize("call", ["Read {'file_path': 'a'}", "Grep {'pattern': 'one'}", "Glob {'pattern': '*'}"])
def test_a_look_at_files_from_the_command_line_loads_nothing_for_commands(call: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    name, args = call.split(" ", 1)
    words = ["--cwd", str(tmp_path), "tools", "invoke", name, "--args", args.replace("'", '"')]
    loaded = loaded_by(f"from surehand.cli.main import main; assert main({words!r}) == 0")
    assert "surehand.policy.judge" in loaded
    assert not loaded & {"surehand.shell", "surehand.commands.session", "dataclasses", "difflib", "glob", "pydantic"}


def test_a_command_that_only_reads_loads_no_history(tmp_path: Path) -> None:
    words = ["--cwd", str(tmp_path), "tools", "invoke", "Bash", "--args", '{"command": "echo hi"}']
    loaded = loaded_by(f"from surehand.cli.main import main; assert main({words!r}) == 0")
    assert "surehand.commands.collect_changes" in loaded
    assert not loaded & {"surehand.history.command_changes", "sqlite3", "shutil", "dataclasses"}


def test_a_tool_can_be_written_without_loading_the_engine() -> None:
    added = loaded_by("from surehand import tool, ToolFailure")
    assert not {name for name in added if name.startswith(("surehand.engine", "surehand.policy", "surehand.files"))}
    assert "pydantic" not in added


HEAVY = {"anyio", "httpx", "mcp", "PIL", "pypdfium2", "psutil", "rapidfuzz", "anthropic", "openai", "opentelemetry.sdk"}


def test_opening_the_application_loads_nothing_heavy() -> None:
    assert not loaded_by("from surehand.app import Surehand") & HEAVY
