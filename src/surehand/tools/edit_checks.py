"""The nine layers every write passes, as a table: each has its number, and says why it refuses.

| layer | check | number |
|---|---|---|
| 1 | the arguments are consistent | 1 |
| 2 | the path is permitted (the policy judges rules; here: no way out of the roots) | 2 |
| 3, 4 | a new file is wanted, and nothing is there yet | 3 |
| 5 | the file exists | 4 |
| 6 | it is text we can edit exactly | 5 |
| 7 | the session has read it | 6 |
| 8 | its content is what was read | 7 |
| 9 | the text to replace is there (8), once (9) | 8, 9 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.read_state import Seen
from surehand.core.secrets import is_secret
from surehand.files.diff import text_diff
from surehand.files.encodings import PAIRS, is_weak_guess
from surehand.files.paths import missing_message, near_names
from surehand.files.splices import fold_rounds
from surehand.files.text import (
    UTF8,
    Encoding,
    Span,
    Splice,
    detect,
    find,
    line_at,
    newline_style,
    possible,
    replacements,
    spliced,
    stays_readable,
    with_feeds,
)
from surehand.history.read_contents import SEEN
from surehand.tools.attempt import SIZE_LIMIT_BYTES, Attempt, Replace

NOT_READ: Final = "File has not been read yet. Read it first before writing to it."
MODIFIED: Final = "File has been modified since read, either by the user or by a linter."
_DIFF_LINES: Final = 120
_EXPLAINED_BYTES: Final = 8 * 1024 * 1024
"""How much of a file is searched for the reason of a miss; a multiple of four, the widest character."""


@frozen
class Problem:
    """Why a layer refuses: its number, what is wrong, what to do next."""

    number: int
    message: str
    hint: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    asks: bool = False
    layer: int | None = None
    """Set where the problem belongs to another layer than the one that came upon it."""


@frozen
class Check:
    """One layer: its place in the order, and the function that finds a problem or none."""

    layer: int
    find: Callable[[Attempt], Problem | None]


def run_checks(attempt: Attempt, checks: tuple[Check, ...]) -> None:
    """Run the layers in order; raise ToolFailure at the first that refuses."""
    for check in checks:
        problem = check.find(attempt)
        if problem is not None:
            raise _failure(attempt, check.layer, problem)


def _failure(attempt: Attempt, layer: int, problem: Problem) -> ToolFailure:
    details = {"layer": problem.layer or layer, "number": problem.number, "path": attempt.path, **problem.details}
    if problem.asks:
        details["behavior"] = "ask"
    return ToolFailure(problem.message, code="precondition_failed", hint=problem.hint, details=details)


def changes_something(attempt: Attempt) -> Problem | None:
    """Layer 1: old and new text differ."""
    for index, wish in enumerate(attempt.wishes):
        if wish.old == wish.new:
            message = "old_string and new_string are exactly the same; there is nothing to change."
            return Problem(1, message, "Send the text as it shall be in new_string.", {"edit": index})
        for name, text in (("old_string", wish.old), ("new_string", wish.new)):
            if problem := half_character(name, text, index):
                return problem
    return half_character("content", attempt.content or "", 0)


def half_character(name: str, text: str, index: int) -> Problem | None:
    """Refuse half of a surrogate pair, which is no text."""
    try:
        text.encode("utf-8", "surrogateescape")  # bytes that are no text may be spelled so; see files/text.py
    except UnicodeEncodeError as problem:
        message = f"{name} holds half of a character (U+{ord(text[problem.start]):04X}) at position {problem.start}."
        return Problem(1, message, "Send whole characters.", {"edit": index})
    return None


def path_permitted(attempt: Attempt) -> Problem | None:
    """Layer 2: the path is normalised and permitted."""
    attempt.open()
    return None


def creation_wanted(attempt: Attempt) -> Problem | None:
    """Layer 3: an empty `old_string` means a new file."""
    for index, wish in enumerate(attempt.wishes[1:], 1):
        if wish.old == "":
            message = f"edit {index + 1} has an empty old_string; only the first edit can create the file."
            return Problem(3, message, "Name the text to replace.", {"edit": index})
    return None


def creation_allowed(attempt: Attempt) -> Problem | None:
    """Layer 4: a new file has no content yet."""
    if not attempt.creating or attempt.status is None or attempt.is_folder or attempt.status.st_size == 0:
        return None
    message = f"Cannot create {attempt.path}: the file exists and has content."
    return Problem(3, message, "Name the text to replace in old_string, or overwrite the file with Write.")


def file_exists(attempt: Attempt) -> Problem | None:
    """Layer 5: the file is there."""
    if attempt.exists or attempt.creating:
        return None
    near = near_names(attempt.path, attempt.ctx)
    otherwise = "an empty old_string creates a file" if attempt.wishes else "Glob finds files by pattern"
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Check the path; {otherwise}."
    return Problem(4, missing_message(attempt.path), hint, {"near": near})


def is_plain_file(attempt: Attempt) -> Problem | None:
    """Refuse what cannot be written as text; read what can."""
    if attempt.path.endswith("/") or attempt.is_folder:
        return Problem(5, f"{attempt.path} is a directory, not a file.", "Name a file in it.", {"reason": "directory"})
    if attempt.special is not None:
        return Problem(5, f"{attempt.special.message}.", attempt.special.hint, {"reason": "special"})
    if attempt.status is None:
        return None
    if attempt.status.st_size > SIZE_LIMIT_BYTES:
        size = f"{attempt.status.st_size / 1e9:.1f} GB"
        message = f"{attempt.path} has {size}; files up to {SIZE_LIMIT_BYTES // 2**30} GB can be edited."
        return Problem(5, message, "Use Bash (sed, a script) for it.", {"reason": "size"})
    attempt.read()
    if attempt.found():
        return None
    encoding = attempt.guess()
    if encoding is None:
        message = f"{attempt.path} is a binary file; it cannot be edited as text."
        return Problem(5, message, "Use Bash with a tool made for its format.", {"reason": "binary"})
    attempt.encoding = encoding
    return None


def is_text(attempt: Attempt) -> Problem | None:
    """Layer 6: the file is text of a kind that is edited here."""
    if attempt.path.lower().endswith(".ipynb") and attempt.exists and not (attempt.is_folder or attempt.special):
        message = f"{attempt.path} is a Jupyter notebook; editing it as text breaks its JSON."
        hint = "Use NotebookEdit, which replaces, inserts and deletes cells."
        return Problem(5, message, hint, {"reason": "notebook"})
    return is_plain_file(attempt)


def was_read(attempt: Attempt) -> Problem | None:
    """Layer 7: the file has been read in this session."""
    if not _has_content(attempt) or attempt.ctx.session.read_state.get(attempt.real) is not None:
        return None
    hint = f"Read {attempt.path}, then try again."
    if is_secret(attempt.real):  # saying so tells nothing: it is all in the name
        hint = f"{attempt.path} holds secrets and is not read here; ask the user to change it."
    return Problem(6, NOT_READ, hint, asks=True)


def unchanged_since_read(attempt: Attempt) -> Problem | None:
    """Layer 8: the file has not changed since it was read."""
    seen = attempt.ctx.session.read_state.get(attempt.real)
    if not _has_content(attempt) or seen is None or attempt.status is None:
        return None
    untouched = attempt.on_disk is None and seen.untouched(attempt.status)
    if untouched or seen.digest == attempt.digest:
        return None
    if attempt.merges and attempt.wishes and attempt.encoding.unit == 1:
        attempt.base = attempt.ctx.session.keep(SEEN).get(seen.digest)
    return _modified(attempt, seen) if attempt.base is None else None


def _modified(attempt: Attempt, seen: Seen) -> Problem:
    diff = _what_changed(attempt, seen)
    attempt.ctx.session.saw(attempt.real, attempt.seen())
    attempt.ctx.session.keep(SEEN).remember(attempt.digest, attempt.data)
    hint = "The file counts as read now, as it is: check your change against it and try again."
    return Problem(7, f"{MODIFIED} {_told(attempt, diff)}", hint, {"diff": diff or ""}, asks=True, layer=8)


def _has_content(attempt: Attempt) -> bool:
    return attempt.status is not None and len(attempt.data) > 0 and not attempt.creating


def _told(attempt: Attempt, diff: str | None) -> str:
    if diff is None:
        return "What it was before is not known any more."
    same = f"The text is the same in other bytes: it is {attempt.encoding.label} now."
    return f"This is what changed:\n{diff}" if diff else same


def _what_changed(attempt: Attempt, seen: Seen) -> str | None:
    """Return the diff, empty where the text is the same in another encoding; None when the old bytes are not known."""
    before = attempt.ctx.session.keep(SEEN).get(seen.digest)
    encoding = detect(before) if before is not None else None
    if before is None or encoding is None:
        return None
    old, new = encoding.decode(before, "replace"), attempt.encoding.decode(attempt.data, "replace")
    return text_diff(old, new, attempt.path, limit_lines=_DIFF_LINES)


def found_once(attempt: Attempt) -> Problem | None:
    """Find every text to replace and work out the new bytes."""
    if attempt.base is not None:
        return _merged(attempt, attempt.base)
    if attempt.found():
        attempt.parts = spliced(attempt.data, attempt.splices)
        return None
    problem = _found_in(attempt, attempt.data)
    if problem is None:
        attempt.parts = spliced(attempt.data, attempt.splices)
        problem = _unreadable(attempt) if attempt.exists else None
    return problem


def _found_in(attempt: Attempt, data: bytes) -> Problem | None:
    """Work out the splices of all wishes on `data`."""
    if len(attempt.wishes) > 1:
        return _several(attempt, data)
    problem, attempt.splices = _one(attempt, data, attempt.wishes[0], 0)
    return problem


def _merged(attempt: Attempt, base: bytes) -> Problem | None:
    """Make the edit in what was read, and merge it with what others made of that; a conflict is refused."""
    from surehand.files.merge import compare_bytes, merge_lines

    seen = attempt.ctx.session.read_state.get(attempt.real)
    assert seen is not None
    merged = None
    if _found_in(attempt, base) is None:
        merged = merge_lines(base, b"".join(spliced(base, attempt.splices)), attempt.data)
    if merged is None or merged == attempt.data:
        return _modified(attempt, seen)
    attempt.others_diff = _what_changed(attempt, seen) or ""
    attempt.splices = compare_bytes(attempt.data, merged)
    attempt.parts = spliced(attempt.data, attempt.splices)
    return _unreadable(attempt)


def _several(attempt: Attempt, data: bytes) -> Problem | None:
    current, rounds = data, list[list[Splice]]()
    for index, wish in enumerate(attempt.wishes):
        problem, splices = _one(attempt, current, wish, index)
        if problem is not None:
            return replace(problem, message=f"Edit {index + 1} of {len(attempt.wishes)}: {problem.message}")
        rounds.append(splices)
        current = b"".join(spliced(current, splices))
    attempt.splices = fold_rounds(rounds)
    if not attempt.splices or current == data:
        message = "the edits cancel each other; the file would stay as it is."
        return Problem(1, message, "Send only what shall change.", layer=1)
    return None


def _one(attempt: Attempt, data: bytes, wish: Replace, index: int) -> tuple[Problem | None, list[Splice]]:
    if wish.old == "":
        return _encoded(data, [Span(len(data), len(data))], wish, attempt.encoding, index)
    refused: Problem | None = None
    encodings = _encodings(attempt, data, wish.old)
    for place, encoding in enumerate(encodings):
        try:
            spans = find(data, wish.old, encoding, limit=None if wish.all else 1000)
        except UnicodeEncodeError:
            continue  # this encoding has no such character, so the text cannot be there
        if len(spans) > 1 and not wish.all:
            return _many(data, spans, encoding, index), []
        if spans and (refused is None or encoding.codec in _WESTERN):
            problem, splices = _encoded(data, spans, wish, encoding, index)
            if problem is None and not place:
                problem = _doubtful(attempt, wish.new, wish.old, {"edit": index})
            if problem is None and place:
                problem = _undecided(data, wish, splices, encodings[place:], index)
            if problem is None:
                if not (wish.old.isascii() and wish.new.isascii()):  # ASCII beside stray bytes tells nothing new
                    attempt.encoding = encoding
                return None, splices
            refused = refused or problem
    return refused or _missed(attempt, data, wish, index), []


# When the guess among the western encodings is wrong by a few signs, these two hold what it lacks. No other may take
# over: a character the file's own language has no letter for is refused, not written in a foreign encoding.
_WESTERN: Final = ("cp1252", "latin_1")


_JAPANESE: Final = ("cp932", "euc_jp")


def _encodings(attempt: Attempt, data: bytes, old: str) -> list[Encoding]:
    first = attempt.encoding
    if attempt.named:
        return [first]
    if (first.codec == "utf-8" and first.errors == "strict") or first.unit > 1:
        return [first]
    others = [encoding for encoding in possible(data) if encoding != first]
    if any("\u3040" <= character <= "\u30ff" for character in old):  # kana: where they are guessed at, it is Japanese
        others = [each for each in others if each.codec not in PAIRS or each.codec in _JAPANESE]
    return [first, *others]


def _undecided(
    data: bytes, wish: Replace, splices: list[Splice], encodings: list[Encoding], index: int
) -> Problem | None:
    """Refuse where the text stands in the same bytes in two encodings that would write the new one differently.

    Signs, kana and full-width letters have the same bytes in several of PAIRS; all other characters have not.
    """
    chosen, *others = encodings
    for other in others if chosen.codec in PAIRS else ():
        if other.codec not in PAIRS:
            continue
        try:
            spans = find(data, wish.old, other, limit=len(splices) + 1)
        except UnicodeEncodeError:
            continue
        problem, rival = _encoded(data, spans, wish, other, index)
        if problem is None and rival and rival != splices:
            message = f"the file may be {chosen.label} or {other.label}, which write new_string differently"
            hint = "Nothing was changed. Convert the file with Bash (iconv) first, or edit a longer text of it."
            return Problem(5, f"{message}.", hint, {"edit": index, "reason": "encoding"}, layer=6)
    return None


def _doubtful(attempt: Attempt, new: str, known: str, details: dict[str, Any]) -> Problem | None:
    """Refuse new characters beyond ASCII where the encoding to write them in is a weak guess."""
    encoding = attempt.encoding
    if attempt.named or encoding.unit > 1 or encoding.codec == "utf-8" or new.isascii():
        return None
    added = sorted({character for character in new if character > "\x7f"} - set(known))
    if not added or not is_weak_guess(attempt.data, encoding.codec):
        return None
    message = (
        f"the file seems to be {encoding.label}, but that is a weak guess, and new characters "
        f"({''.join(added[:10])}) may come out wrong; nothing was changed."
    )
    hint = f'Read {attempt.path} again with its encoding named (for example encoding="gbk"), then try again.'
    return Problem(5, message, hint, {**details, "reason": "encoding"}, layer=6)


def _unreadable(attempt: Attempt) -> Problem | None:
    """Refuse a change after which the file would not be taken for the text it is."""
    if stays_readable(attempt.encoding, attempt.parts) or not attempt.parts:
        return None
    message = f"after this change {attempt.path} would no longer be recognised as text ({attempt.encoding.label})."
    hint = "Nothing was changed. Leave NUL and control characters out, or convert the file with Bash (iconv) first."
    return Problem(5, message, hint, {"reason": "encoding"}, layer=6)


def _encoded(
    data: bytes, spans: list[Span], wish: Replace, encoding: Encoding, index: int
) -> tuple[Problem | None, list[Splice]]:
    try:
        return None, replacements(data, spans, wish.old, wish.new, encoding)
    except UnicodeEncodeError as problem:
        return cannot_hold(wish.new, problem, encoding, {"edit": index}), []


def cannot_hold(text: str, problem: UnicodeEncodeError, encoding: Encoding, details: dict[str, Any]) -> Problem:
    """Return the refusal of a character the file's encoding does not have."""
    character = text[problem.start] if problem.start < len(text) else "?"
    message = f"the file is {encoding.label}, which has no {character!r} (U+{ord(character):04X}); nothing was changed."
    hint = "Use characters the encoding has, or convert the file with Bash (iconv) first."
    return Problem(5, message, hint, {**details, "reason": "encoding"}, layer=6)


def _many(data: bytes, spans: list[Span], encoding: Encoding, index: int) -> Problem:
    lines, position, line = list[int](), 0, 1
    for span in spans[:50]:
        line += line_at(data, span.start, encoding, since=position) - 1
        position = span.start
        lines.append(line)
    count = f"{len(spans)}" if len(spans) < 1000 else "1000 or more"
    shown = ", ".join(map(str, lines)) + (", ..." if len(spans) > len(lines) else "")
    message = f"old_string occurs {count} times (lines {shown}); it must be unique."
    hint = "Add lines around it until it is unique, or set replace_all to change every occurrence."
    return Problem(9, message, hint, {"edit": index, "lines": lines, "count": len(spans)})


def _missed(attempt: Attempt, data: bytes, wish: Replace, index: int) -> Problem:
    if not data:
        hint = "An empty old_string puts new_string into it."
        return Problem(
            8, "String to replace not found: the file is empty.", hint, {"edit": index, "difference": "empty"}
        )
    from surehand.tools.edit_miss import explain_miss

    text = attempt.encoding.decode(with_feeds(data[:_EXPLAINED_BYTES], attempt.encoding), "replace")
    miss = explain_miss(text, wish.old, wish.new)
    details: dict[str, Any] = {"edit": index, "difference": miss.difference}
    if miss.nearest:
        details |= {"nearest": miss.nearest, "line": miss.line}
    hint = miss.hint
    if len(data) > _EXPLAINED_BYTES:
        hint += f" Only the first {_EXPLAINED_BYTES >> 20} MiB were searched for it; Grep finds the line in all of it."
    return Problem(8, miss.message, hint, details)


def content_encoded(attempt: Attempt) -> Problem | None:
    """Work out the bytes of a whole new content: encoding, BOM and line ends of an existing file are kept."""
    text = attempt.content or ""
    encoding = attempt.encoding if attempt.data else UTF8
    if "\r" not in text and attempt.data:
        text = text.replace("\n", newline_style(attempt.data, encoding))
    try:
        body = encoding.encode(text)
    except UnicodeEncodeError as problem:
        return cannot_hold(text, problem, encoding, {})
    bom = b"" if body.startswith(encoding.bom) else encoding.bom
    attempt.parts = [part for part in (bom, body) if part]
    if not attempt.data:
        return None
    return _unreadable(attempt) or _doubtful(attempt, text, encoding.decode(attempt.data, "replace"), {})


EDIT_CHECKS: Final[tuple[Check, ...]] = (
    Check(1, changes_something),
    Check(2, path_permitted),
    Check(3, creation_wanted),
    Check(4, creation_allowed),
    Check(5, file_exists),
    Check(6, is_text),
    Check(7, was_read),
    Check(8, unchanged_since_read),
    Check(9, found_once),
)

WRITE_CHECKS: Final[tuple[Check, ...]] = (
    Check(1, changes_something),
    Check(2, path_permitted),
    Check(6, is_plain_file),
    Check(7, was_read),
    Check(8, unchanged_since_read),
    Check(6, content_encoded),
)
