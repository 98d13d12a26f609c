"""Replacing a file in one step: what is done while the bytes go to the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from surehand.files.atomic import create_file, replace_file


def test_work_that_need_not_wait_is_done_before_the_file_takes_its_name(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    place.write_bytes(b"old")
    found: list[bytes] = []

    def look() -> None:
        found.extend(each.read_bytes() for each in sorted(tmp_path.iterdir()))

    folder, old = os.open(tmp_path, os.O_RDONLY), os.open(place, os.O_RDONLY)
    try:
        replace_file(folder, "a.txt", ".new", [b"ne", b"w"], old, meanwhile=look)
    finally:
        os.close(old)
        os.close(folder)
    assert found == [b"new", b"old"]
    assert place.read_bytes() == b"new"


@pytest.mark.parametrize("exists", [True, False])
def test_where_that_work_fails_nothing_is_changed(tmp_path: Path, exists: bool) -> None:
    place = tmp_path / "a.txt"
    if exists:
        place.write_bytes(b"old")

    def fail() -> None:
        raise RuntimeError("no words for it")

    def put(folder: int) -> None:
        if not exists:
            create_file(folder, "a.txt", ".new", [b"new"], None, meanwhile=fail)
            return
        with place.open("rb") as old:
            replace_file(folder, "a.txt", ".new", [b"new"], old.fileno(), meanwhile=fail)

    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(RuntimeError, match="no words"):
            put(folder)
    finally:
        os.close(folder)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == ({"a.txt": b"old"} if exists else {})
