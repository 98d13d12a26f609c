"""What is wrong with settings, in words: which key, which value, and what may stand there, read off the declaration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.core.names import did_you_mean
from surehand.core.record import Record
from surehand.core.schema import path_text, truncate_text

Path = tuple[str | int, ...]

_PRIVATE: Final = ("env", "headers", "client_secret")
"""Settings whose values may be secrets: a message does not repeat them."""


@frozen
class SettingsFault:
    """One wrong key or value: where it is in the tree, and a sentence that says all of it."""

    path: Path
    message: str


class WrongSettings(SettingsError, ValueError):
    """Settings that do not fit their declaration; `faults` has every one of them with its path."""

    def __init__(self, faults: list[SettingsFault]) -> None:
        self.faults = faults
        super().__init__("\n".join(fault.message for fault in faults))


def explain_error(record: type[Record], error: ValueError) -> Exception:
    """Convert pydantic's ValidationError to WrongSettings; return any other error as it is."""
    complaints: Any = getattr(error, "errors", None)
    if complaints is None:
        return error
    found = [_fault(record, each) for each in complaints(include_url=False, include_context=False)]
    # Each branch of a union reports its own error; one message per path is enough.
    return WrongSettings(list({fault.path: fault for fault in found}.values()))


def known_keys(record: type[Record], above: str = "") -> list[str]:
    """Return every key below a record, dotted."""
    found: list[str] = []
    for name in record.fields():
        found.append(f"{above}{name}")
        hint = record.hint(name)
        if _is_record(hint):
            found += known_keys(hint, f"{above}{name}.")
    return found


def is_text(record: type[Record], path: tuple[str, ...]) -> bool:
    """Say whether a text may stand at a path below a record."""
    place = _find_declaration(record, path)
    hint = _without_none(place.hint)
    return place.path == path and (hint is str or (get_origin(hint) in (Union, UnionType) and str in get_args(hint)))


@frozen
class _Declared:
    """The declaration of the field an error is about; `owner` is the record it belongs to."""

    path: Path
    hint: Any
    options: Mapping[str, Any]
    owner: type[Record] | None
    known: bool = True


def _fault(record: type[Record], complaint: Mapping[str, Any]) -> SettingsFault:
    place = _find_declaration(record, tuple(complaint["loc"]))
    name = path_text(map(_shown_key, place.path)) or "settings"
    if place.owner is None and not place.known:
        message = f"{name} is wrong: a key must be a text"
    elif not place.known:
        message = f"there is no setting {name}{_nearest(record, place)}"
    elif complaint["type"] == "missing":
        message = f"{name} is missing: it must be {_describe_allowed(place.hint, place.options)}"
    else:
        value = "" if set(place.path) & set(_PRIVATE) else f" = {_format_value(complaint['input'])}"
        message = f"{name}{value} is wrong: it must be {_describe_allowed(place.hint, place.options)}"
    return SettingsFault(place.path, message)


def _find_declaration(record: type[Record], location: Path) -> _Declared:
    """Follow a location down the declaration, as far as both go: pydantic also names the branches of unions."""
    if location[-1:] == ("[key]",):  # a key that is no string
        return _Declared(location[:-1], None, {}, None, known=False)
    hint, options, owner, path = cast("Any", record), cast("Mapping[str, Any]", {}), None, ()
    for part in location:
        hint = _without_none(hint)
        inside = get_args(hint)
        if _is_record(hint):
            owner = cast("type[Record]", hint)
            if part not in owner.fields():
                return _Declared((*path, part), None, {}, owner, known=False)
            hint, options = owner.hint(str(part)), owner.fields()[str(part)].options
        elif get_origin(hint) in (tuple, dict):
            hint, options, owner = (inside[0] if get_origin(hint) is tuple else inside[1]), {}, None
        else:
            break
        path = (*path, part)
    return _Declared(path, hint, options, owner)


def _nearest(record: type[Record], place: _Declared) -> str:
    """Return the nearest right names, of the same table or of that word elsewhere, or all that the table has."""
    owner, word, above = place.owner or record, str(place.path[-1]), path_text(map(_shown_key, place.path[:-1]))
    beside = did_you_mean(word, owner.fields()).replace("'", f"'{above}." if above else "'", 1)
    every = known_keys(record)
    same = " or ".join(repr(key) for key in every if key.endswith(f".{word}"))
    elsewhere = f" (did you mean {same}?)" if same else ""
    # At the top, a key that lost its table is likelier than a misspelt table.
    near = beside or elsewhere if above else elsewhere or beside or did_you_mean(word, every)
    return near or f"; {above or 'the tree'} has {', '.join(owner.fields())}"


# -- what may stand there ---------------------------------------------------------------------------------------------

_PLAIN: Final[Mapping[Any, str]] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_BOUNDS: Final[Mapping[str, str]] = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def _describe_allowed(hint: Any, options: Mapping[str, Any]) -> str:
    hint = _without_none(hint)
    kind, inside = get_origin(hint), get_args(hint)
    if kind is Literal:
        return "one of " + ", ".join(map(repr, inside))
    if kind in (Union, UnionType):
        return " or ".join(_describe_allowed(each, {}) for each in inside)
    if kind is tuple:
        return (
            'a list of texts, such as ["..."]'
            if inside[0] is str
            else f"a list, each of it {_describe_allowed(inside[0], {})}"
        )
    if _is_record(hint):
        return f"a table with {', '.join(cast('type[Record]', hint).fields())}"
    if kind is dict:
        return "a table of texts" if inside[1] is str else "a table"
    return _PLAIN.get(hint, "another value") + _bounds(options)


def _bounds(options: Mapping[str, Any]) -> str:
    if options.get("min_length"):
        return " that is not empty"
    if options.keys() >= {"ge", "le"}:
        return f" from {options['ge']} to {options['le']}"
    said = [f"{word} {options[bound]}" for bound, word in _BOUNDS.items() if bound in options]
    return f", {' and '.join(said)}" if said else ""


def _without_none(hint: Any) -> Any:
    """Return an optional type without None: leaving the key out means the same."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    inside = [each for each in get_args(hint) if each is not NoneType]
    return inside[0] if len(inside) == 1 else hint


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Record)


# -- the value found -------------------------------------------------------------------------------------------------


def _format_value(value: Any) -> str:
    """Return a value as a file would have it; of tables and lists only that they are such."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[...]"
    return truncate_text(json.dumps(value, ensure_ascii=True, default=str), 80)


def _shown_key(part: str | int) -> str | int:
    """Return a key for a message; one of odd characters in quotes, so that it cannot steer a terminal."""
    return part if isinstance(part, int) or re.fullmatch(r"[\w.:/-]+", part) else json.dumps(part)
