"""The log: each start, end and failure in English, with tool, call id, duration and a short form of what came out."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from surehand.core.events import Event, EventKind, Listener
from surehand.core.schema import truncate_text
from surehand.files.sanitize import mask

_log = logging.getLogger("surehand")
_CALLS: Final[tuple[EventKind, ...]] = ("call_started", "call_finished")
_WARNED: Final[tuple[EventKind, ...]] = ("extension_failed", "note")
LOGGED: Final = (*_CALLS, *_WARNED)
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


def is_logged(kind: EventKind) -> bool:
    """Return whether events of this kind are logged; successful calls only on request."""
    return kind in _WARNED or (kind in _CALLS and _log.isEnabledFor(logging.INFO))


def log_event(event: Event) -> None:
    """Write one event to the `surehand` logger; subscribe this to a bus."""
    match event.kind:
        case "call_started":
            if _log.isEnabledFor(logging.INFO):
                args = _short(json.dumps(event.data["call"].shown_args, ensure_ascii=False, default=repr), 200)
                _write(logging.INFO, event, f"{event.tool} started with {args}", args=args)
        case "call_finished":
            result = event.data["result"]
            if result.ok:
                if _log.isEnabledFor(logging.INFO):
                    ms, said = result.meta["duration_ms"], _short(result.output.strip(), 120)
                    _write(
                        logging.INFO, event, f"{event.tool} finished in {ms} ms: {said}", duration_ms=ms, result=said
                    )
            else:
                level = logging.ERROR if event.data["bug"] else logging.INFO
                ms, said = result.meta["duration_ms"], _short(result.error.message, 300)
                text = f"{event.tool} failed after {ms} ms with {result.error.code}: {said}"
                _write(level, event, text, duration_ms=ms, code=result.error.code, error=said)
        case kind if kind in _WARNED:
            _write(logging.WARNING, event, str(event.data.get("message", event.kind)))
        case _:
            pass


def at_levels(levels: Mapping[str, str]) -> Listener:
    """Return a listener that logs, but of these tools only what reaches the level each was given."""
    least = {tool: LEVELS[level] for tool, level in levels.items()}

    def listen(event: Event) -> None:
        if _level(event) >= least.get(event.tool, logging.NOTSET):
            log_event(event)

    return listen if least else log_event


def _level(event: Event) -> int:
    if event.kind == "call_finished" and event.data["bug"]:
        return logging.ERROR
    return logging.WARNING if event.kind in _WARNED else logging.INFO


def _short(text: str, limit: int) -> str:
    return mask(truncate_text(text, limit))


def _write(level: int, event: Event, message: str, **fields: Any) -> None:
    if _log.isEnabledFor(level):
        about = {"event": event.kind, "tool": event.tool, "call_id": event.call_id, "session_id": event.session_id}
        call = f" [call {event.call_id}]" if event.call_id else ""
        _log.log(level, "%s%s", message, call, extra={"surehand": {**about, **fields}})


class JsonLines(logging.Formatter):
    """Formats records as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON."""
        fields = getattr(record, "surehand", {})
        line = {"at": record.created, "level": record.levelname.lower(), "message": record.getMessage(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def to_stderr(level: str, *, json_lines: bool = False) -> None:
    """Send the log to stderr: what the command line does; a library user sets up logging as usual."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if json_lines else logging.Formatter("%(levelname)s %(message)s"))
    _log.handlers[:] = [handler]
    _log.propagate = False
    _log.setLevel(LEVELS[level])
