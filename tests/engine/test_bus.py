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


def test_a_listener_gets_the_kinds_it_named_and_events_for_nobody_need_not_be_made() -> None:
    bus, notes, everything = Bus(), list[Event](), list[Event]()
    bus.subscribe(notes.append, kinds=("note",))
    assert bus.hears("note")
    assert not bus.hears("file_read")
    bus.emit(Event("file_read"))
    leave = bus.subscribe(everything.append)
    assert bus.hears("file_read")
    bus.emit(Event("file_read"))
    bus.emit(Event("note", data={"message": "hello"}))
    assert [event.kind for event in notes] == ["note"]
    assert [event.kind for event in everything] == ["file_read", "note"]
    leave()
    assert not bus.hears("file_read")


def test_whether_a_listener_cares_is_asked_each_time_anew() -> None:
    bus, cares = Bus(), [False]
    bus.subscribe(lambda event: None, kinds=("call_started",), wants=lambda kind: cares[0])
    assert not bus.hears("call_started")
    cares[0] = True
    assert bus.hears("call_started")
    assert not bus.hears("call_finished")
