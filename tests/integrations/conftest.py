"""Tests with the real frameworks; `make test-integrations` makes an environment that has them, and here they are absent
otherwise."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

if importlib.util.find_spec("langgraph") is None:
    here = Path(__file__).parent
    collect_ignore = [path.name for path in here.glob("test_*.py") if path.name != "test_toolbox.py"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small project: a text to find and change, and an image."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("alpha\nbeta\n")
    Image.new("RGB", (8, 8), "red").save(project / "logo.png")
    return project
