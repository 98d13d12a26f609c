"""`surehand config set`: one value in the user's own file; the rest of it stays, and nothing wrong is written."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from surehand.config import set_value
from surehand.core.errors import SettingsError
from surehand.state import locations


@pytest.fixture
def file() -> Path:
    path = Path(locations.user_settings())
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_value_is_set_in_a_new_file_and_set_again(file: Path) -> None:
    set_value("model.effort", "low")
    set_value("model.max_turns", "9")
    set_value("model.effort", "high")
    assert tomllib.loads(file.read_text()) == {"model": {"effort": "high", "max_turns": 9}}
    assert file.stat().st_mode & 0o077 == 0


def test_comments_and_other_lines_stay_as_they_are(file: Path) -> None:
    file.write_text(
        '# mine\n[engine]\ntimeout = 5  # short\n\n[model]\nname = "a"\n\n[[permissions.rules]]\nallow = "Read"\n'
    )
    set_value("model.name", 'say "b"')
    set_value("engine.max_parallel", "3")
    set_value("tools.Bash.timeout", "7.5")
    assert file.read_text() == (
        '# mine\n[engine]\nmax_parallel = 3\ntimeout = 5  # short\n\n[model]\nname = "say \\"b\\""\n\n'
        '[[permissions.rules]]\nallow = "Read"\n\n[tools.Bash]\ntimeout = 7.5\n'
    )


@pytest.mark.parametrize(
    ("key", "value"), [("model.nonsense", "1"), ("model.max_turns", "many"), ("model", "x"), ("engine.timeout", "-1")]
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(file: Path, key: str, value: str) -> None:
    file.write_text("[engine]\ntimeout = 5\n")
    with pytest.raises(SettingsError):
        set_value(key, value)
    assert file.read_text() == "[engine]\ntimeout = 5\n"


def test_a_wrong_value_is_named_once_and_another_of_the_file_with_its_file(file: Path) -> None:
    with pytest.raises(SettingsError) as wrong:
        set_value("engine.timeout", "soon")
    assert str(wrong.value) == 'engine.timeout = "soon" is wrong: it must be a number, more than 0'
    file.write_text("[engine]\ntimeout = -1\n")
    with pytest.raises(SettingsError) as wrong:
        set_value("model.effort", "low")
    assert str(wrong.value) == f"{file}: engine.timeout = -1 is wrong: it must be a number, more than 0"


def test_a_value_over_several_lines_is_left_to_the_user(file: Path) -> None:
    text = '[permissions]\nallow = [\n  "Read",\n]\n'
    file.write_text(text)
    with pytest.raises(SettingsError, match="by hand"):
        set_value("permissions.allow", '["Glob"]')
    assert file.read_text() == text
