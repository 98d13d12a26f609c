"""The bus: a listener that fails hurts no call and no other listener."""

from __future__ import annotations

import errno

import pytest

from surehand.core.events import Event
from surehand.engine.bus import Bus


def test_a_listener_that_fails_is_reported_and_the_others_hear(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = Bus(), list[Event]()
    bus.subscribe(lambda event: {}[event.kind])
    bus.subscribe(heard.append)
    bus.emit(Event("note", data={"message": "hello"}))
    assert len(heard) == 1
    assert "a listener failed on note" in caplog.text
    assert "KeyError" in caplog.text


def test_a_full_disk_is_said_once_and_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def write(event: Event) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    bus, heard = Bus(), list[Event]()
    bus.subscribe(write)
    bus.subscribe(heard.append)
    for _ in range(3):
        bus.emit(Event("note", data={"message": "hello"}))
    assert len(heard) == 3
    assert caplog.text.count("No space left on device") == 1
    assert "Traceback" not in caplog.text
