"""A model file of the user's, run in this process; the real one runs where both it and llama.cpp are at hand."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from surehand import Settings
from surehand.core.model import Message, ModelError, ModelRequest, TextDelta, Turn
from surehand.models import choose, open_model

GGUF = os.environ.get("TEST_GGUF", "")
NO_LLAMA = importlib.util.find_spec("xllamacpp") is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    settings = Settings.parse({"model": {"provider": "local", "path": str(tmp_path / "none.gguf")}})
    with pytest.raises(ModelError, match=r"there is no model file .*none\.gguf"):
        open_model(settings, choose(settings))


@pytest.mark.skipif(not NO_LLAMA, reason="xllamacpp is installed")
def test_a_missing_library_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "some.gguf").touch()
    settings = Settings.parse({"model": {"path": str(tmp_path / "some.gguf")}})
    with pytest.raises(ModelError) as raised:
        open_model(settings, choose(settings))
    assert "surehand[local]" in raised.value.hint


@pytest.mark.skipif(NO_LLAMA or not GGUF, reason="xllamacpp is not installed, or TEST_GGUF names no model file")
async def test_a_real_model_speaks(capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings.parse({"model": {"provider": "local", "path": GGUF}})
    model = open_model(settings, choose(settings))
    request = ModelRequest("Be brief.", [Message("user", "Say hello.")], max_tokens=8)
    events = [event async for event in model.stream(request)]
    await model.close()
    assert any(isinstance(event, TextDelta) for event in events)
    assert isinstance(events[-1], Turn)
    assert events[-1].usage.output_tokens > 0
    assert "slot" not in capfd.readouterr().err
