"""The checks of Edit and Write. An edit passes nine layers, a write those that apply to a whole file.

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

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from surehand.core.errors import ToolFailure
from surehand.core.frozen import field, frozen
from surehand.core.secrets import is_secret
from surehand.core.session import Seen, digest_of
from surehand.core.text import REFUSAL_DIFF_LINES
from surehand.files.diff import text_diff
from surehand.files.encodings import PAIRS, is_weak_guess
from surehand.files.opening import open_at_once, read_at_once
from surehand.files.paths import missing_message, near_names
from surehand.files.streamed import LARGE_CHARACTERS, WINDOW_BYTES, Bytes, EncodedText, LargeBytes, Part
from surehand.files.text import (
    UTF8,
    Encoding,
    Newline,
    Span,
    Splice,
    apply_splices,
    detect,
    find,
    line_at,
    newline_style,
    possible,
    replacements,
    splice_bytes,
    stays_readable,
    with_feeds,
)
from surehand.history.read_contents import SEEN
from surehand.tools.file_write import FileWrite, looked_at

NOT_READ: Final = "File has not been read yet. Read it first before writing to it."
MODIFIED: Final = "File has been modified since read, either by the user or by a linter."
_SIZE_LIMIT_BYTES: Final = 1024 * 1024 * 1024
_EXPLAINED_BYTES: Final = 8 * 1024 * 1024
"""How much of a file is searched to explain a miss; a multiple of four, the widest character."""
_LONGEST_BOM: Final = 4
_AT_ONCE_BYTES: Final = 64 * 1024
"""The largest file, and the longest text in it, of an edit that is checked without a thread."""


@frozen
class Replace:
    """One edit: `old` becomes `new`, once or everywhere."""

    old: str
    new: str
    all: bool = False


@frozen
class Problem:
    """Why a layer refuses: its number, what is wrong, and what to do next."""

    number: int
    message: str
    hint: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])
    asks: bool = False
    layer: int | None = None
    """Set if the problem belongs to another layer than the one that found it."""

    def to_failure(self, path: str, layer: int) -> ToolFailure:
        """Return the problem as a ToolFailure; `layer` is the check that found it."""
        details = {"layer": self.layer or layer, "number": self.number, "path": path, **self.details}
        if self.asks:
            details["behavior"] = "ask"
        return ToolFailure(self.message, code="precondition_failed", hint=self.hint, details=details)


@frozen
class Check:
    """One layer: its number, and the function that returns a problem or None."""

    layer: int
    find: Callable[[FileWrite], Problem | None]


def changes_something(write: FileWrite) -> Problem | None:
    """Layer 1: old and new text differ."""
    for index, edit in enumerate(write.edits):
        if edit.old == edit.new:
            message = "old_string and new_string are exactly the same; there is nothing to change."
            return Problem(1, message, "Send the text you want in new_string.", {"edit": index})
        for name, text in (("old_string", edit.old), ("new_string", edit.new)):
            if problem := half_character(name, text, index):
                return problem
    return half_character("content", write.content or "", 0)


def half_character(name: str, text: str, index: int, errors: str = "surrogateescape") -> Problem | None:
    """Refuse half of a surrogate pair, which is no text."""
    for start in range(0, len(text), WINDOW_BYTES):  # in windows: the whole text encoded may be large
        try:
            # surrogateescape: stray bytes of a file may be spelled U+DC80 to U+DCFF, see files/text.py.
            text[start : start + WINDOW_BYTES].encode("utf-8", errors)
        except UnicodeEncodeError as problem:
            at = start + problem.start
            message = f"{name} holds half of a character (U+{ord(text[at]):04X}) at position {at}."
            return Problem(1, message, "Send whole characters.", {"edit": index})
    return None


def path_permitted(write: FileWrite) -> Problem | None:
    """Layer 2: the path is normalised and permitted."""
    write.open()
    return None


def creation_wanted(write: FileWrite) -> Problem | None:
    """Layer 3: an empty `old_string` means a new file."""
    for index, edit in enumerate(write.edits[1:], 1):
        if edit.old == "":
            message = f"edit {index + 1} has an empty old_string; only the first edit can create the file."
            return Problem(3, message, "Name the text to replace.", {"edit": index})
    return None


def creation_allowed(write: FileWrite) -> Problem | None:
    """Layer 4: a new file has no content yet."""
    if not write.creating or write.status is None or write.is_folder or write.status.st_size == 0:
        return None
    if write.special is None and write.status.st_size <= _LONGEST_BOM:
        head = os.pread(write.fd, _LONGEST_BOM, 0)
        if (encoding := detect(head)) is not None and head == encoding.bom:
            return None
    message = f"Cannot create {write.path}: the file exists and has content."
    return Problem(3, message, "Name the text to replace in old_string, or overwrite the file with Write.")


def file_exists(write: FileWrite) -> Problem | None:
    """Layer 5: the file is there."""
    if write.exists or write.creating:
        return None
    near = near_names(write.path, write.ctx)
    otherwise = "an empty old_string creates a file" if write.edits else "Glob finds files by pattern"
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Check the path; {otherwise}."
    return Problem(4, missing_message(write.path), hint, {"near": near})


def is_plain_file(write: FileWrite) -> Problem | None:
    """Refuse what cannot be edited as text; read the rest."""
    if write.path.endswith("/") or write.is_folder:
        return Problem(5, f"{write.path} is a directory, not a file.", "Name a file in it.", {"reason": "directory"})
    if write.special is not None:
        return Problem(5, f"{write.special.message}.", write.special.hint, {"reason": "special"})
    if write.status is None:
        return None
    if write.status.st_size > _SIZE_LIMIT_BYTES:
        size = f"{write.status.st_size / 1e9:.1f} GB"
        message = f"{write.path} has {size}; files up to {_SIZE_LIMIT_BYTES // 2**30} GB can be edited."
        return Problem(5, message, "Use Bash (sed, a script) for it.", {"reason": "size"})
    write.read()
    if write.reuse_checks():
        return None
    encoding = write.guess()
    if encoding is None:
        message = f"{write.path} is a binary file; it cannot be edited as text."
        return Problem(5, message, "Use Bash with a tool made for its format.", {"reason": "binary"})
    if encoding.has_escapes:
        message = f"{write.path} is {encoding.label}, which is read but not edited: a change could garble its line."
        hint = "Nothing was changed. Convert it with Bash (iconv -f iso-2022-jp -t utf-8), edit that, convert it back."
        return Problem(5, message, hint, {"reason": "encoding"})
    write.encoding = encoding
    return None


def is_text(write: FileWrite) -> Problem | None:
    """Layer 6: the file is text of a kind that is edited here."""
    if write.path.lower().endswith(".ipynb") and write.exists and not (write.is_folder or write.special):
        message = f"{write.path} is a Jupyter notebook; editing it as text breaks its JSON."
        hint = "Use NotebookEdit, which replaces, inserts and deletes cells."
        return Problem(5, message, hint, {"reason": "notebook"})
    return is_plain_file(write)


def was_read(write: FileWrite) -> Problem | None:
    """Layer 7: the file has been read in this session."""
    if not _has_content(write) or write.ctx.session.read_state.get(write.real) is not None:
        return None
    hint = f"Read {write.path}, then try again."
    if is_secret(write.real):  # by its name alone, so that the hint reveals nothing
        hint = f"{write.path} holds secrets and is not read here; ask the user to change it."
    return Problem(6, NOT_READ, hint, asks=True)


def unchanged_since_read(write: FileWrite) -> Problem | None:
    """Layer 8: the file has not changed since it was read."""
    seen = write.ctx.session.read_state.get(write.real)
    if not _has_content(write) or seen is None or write.status is None:
        return None
    untouched = write.on_disk is None and seen.untouched(os.fstat(write.fd))
    if untouched or seen.digest == write.digest:
        return None
    if write.merges and write.edits and write.encoding.unit == 1 and isinstance(write.data, bytes):
        write.base = write.ctx.session.keep(SEEN).get(write.real, seen.digest)
    return _explain_modified(write, seen) if write.base is None else None


def _explain_modified(write: FileWrite, seen: Seen) -> Problem:
    diff = _what_changed(write, seen)
    if not write.previewing:
        write.ctx.session.saw(write.real, write.make_seen())
        if isinstance(write.data, bytes):
            write.ctx.session.keep(SEEN).remember(write.real, write.digest, write.data)
    hint = "The file counts as read now, as it is: check your change against it and try again."
    return Problem(7, f"{MODIFIED} {_explain_read_state(write, diff)}", hint, {"diff": diff or ""}, asks=True, layer=8)


def _has_content(write: FileWrite) -> bool:
    return write.status is not None and len(write.data) > 0 and not write.creating


def _explain_read_state(write: FileWrite, diff: str | None) -> str:
    if diff is None:
        return "What it was before is not known any more."
    same = f"The text is the same in other bytes: it is {write.encoding.label} now."
    return f"This is what changed:\n{diff}" if diff else same


def _what_changed(write: FileWrite, seen: Seen) -> str | None:
    """Return the diff, empty if only the encoding changed; None if the old bytes are not known."""
    if not isinstance(write.data, bytes):
        return None
    before = write.ctx.session.keep(SEEN).get(write.real, seen.digest)
    encoding = detect(before) if before is not None else None
    if before is None or encoding is None:
        return None
    old, new = encoding.decode(before, "replace"), write.encoding.decode(write.data, "replace")
    return text_diff(old, new, write.path, limit_lines=REFUSAL_DIFF_LINES)


def found_once(write: FileWrite) -> Problem | None:
    """Layer 9: find every text to replace, and make the new bytes."""
    if write.base is not None:
        return _merge_edit(write, write.base)
    if write.reuse_checks():
        write.parts = apply_splices(write.data, write.splices)
        return None
    problem = _found_in(write, write.data)
    if problem is None:
        write.parts = apply_splices(write.data, write.splices)
        problem = _unreadable(write) if write.exists else None
    return problem


def _found_in(write: FileWrite, data: Bytes) -> Problem | None:
    """Find the splices of all edits in `data`."""
    if len(write.edits) > 1:
        return _find_edits_in_turn(write, data)
    problem, write.splices = _find_edit(write, data, write.edits[0], 0)
    return problem


def _merge_edit(write: FileWrite, base: bytes) -> Problem | None:
    """Make the edit in the content that was read, and merge it with the changes of others; refuse a conflict."""
    from surehand.files.merge import compare_bytes, merge_lines  # lazy: merge, 4 ms

    seen = write.ctx.session.read_state.get(write.real)
    assert seen is not None
    merged = None
    if _found_in(write, base) is None:
        merged = merge_lines(base, b"".join(splice_bytes(base, write.splices)), bytes(write.data))
    if merged is None or merged == write.data:
        return _explain_modified(write, seen)
    write.others_diff = _what_changed(write, seen) or ""
    write.splices, write.new_digest = compare_bytes(bytes(write.data), merged), None  # not that of an earlier merge
    write.parts = apply_splices(write.data, write.splices)
    return _unreadable(write)


def _find_edits_in_turn(write: FileWrite, data: Bytes) -> Problem | None:
    """Find the edits of MultiEdit one after the other, each in what the ones before it make."""
    from surehand.files.merge import fold_rounds  # lazy: merge, 4 ms

    current, rounds = data, list[list[Splice]]()
    for index, edit in enumerate(write.edits):
        problem, splices = _find_edit(write, current, edit, index)
        if problem is not None:
            return replace(problem, message=f"Edit {index + 1} of {len(write.edits)}: {problem.message}")
        rounds.append(splices)
        current = _apply(current, splices)
    write.splices = fold_rounds(rounds)
    same = current == data if isinstance(data, bytes) else _puts_back(data, write.splices)
    if not write.splices or same:
        message = "the edits cancel each other; the file would stay as it is."
        return Problem(1, message, "Send only the lines to change.", layer=1)
    return None


def _puts_back(data: Bytes, splices: list[Splice]) -> bool:
    """Return whether splices leave a content as it is."""
    return all(data[each.start : each.end] == each.new for each in splices)


def _apply(data: Bytes, splices: list[Splice]) -> Bytes:
    """Return a content with splices applied, for the next edit."""
    if isinstance(data, LargeBytes):
        return data.replace((each.start, each.end, each.new) for each in splices)
    return b"".join(splice_bytes(data, splices))


def _find_edit(write: FileWrite, data: Bytes, edit: Replace, index: int) -> tuple[Problem | None, list[Splice]]:
    if edit.old == "":
        return _encode_edits(data, [Span(len(data), len(data))], edit, write.encoding, index)
    if (splice := _find_plainly(data, edit, write.encoding)) is not None:
        return None, [splice]
    refused: Problem | None = None
    encodings = _encodings(write, data, edit.old)
    for place, encoding in enumerate(encodings):
        try:
            spans = find(data, edit.old, encoding, limit=None if edit.all else 1000)
        except UnicodeEncodeError:
            continue  # the encoding lacks a character of the text
        if len(spans) > 1 and not edit.all:
            return _refuse_ambiguous(data, spans, encoding, index), []
        if spans and (refused is None or encoding.codec in _WESTERN):
            problem, splices = _encode_edits(data, spans, edit, encoding, index)
            if not place:  # also if the guessed encoding lacks a character: another may have it
                problem = _doubtful(write, edit.new, lambda: edit.old, {"edit": index}) or problem
            if problem is None and place:
                problem = _refuse_undecided(data, edit, splices, encodings[place:], index)
            if problem is None:
                if not (edit.old.isascii() and edit.new.isascii()):  # an ASCII match does not prove the encoding
                    write.encoding = encoding
                return None, splices
            refused = refused or problem
    return refused or _report_miss(write, data, edit, index), []


def _find_plainly(data: Bytes, edit: Replace, encoding: Encoding) -> Splice | None:
    """Return the splice of a text that occurs once in UTF-8 with LF line ends; None for any other case."""
    if encoding is not UTF8 or edit.all or not isinstance(data, bytes) or b"\r" in data:
        return None
    try:
        old, new = edit.old.encode(), edit.new.encode()
    except UnicodeEncodeError:
        return None
    if b"\r" in old or b"\r" in new:
        return None
    at = data.find(old)
    return Splice(at, at + len(old), new) if at >= 0 > data.find(old, at + len(old)) else None


# Western encodings differ in a few signs, and these two have most of them, so an edit may switch to them. It may not
# switch to any other: a character that the guessed encoding lacks is refused, not written in a foreign encoding.
_WESTERN: Final = ("cp1252", "latin_1")
_JAPANESE: Final = ("cp932", "euc_jp")


def _encodings(write: FileWrite, data: Bytes, old: str) -> list[Encoding]:
    first = write.encoding
    if write.named:
        return [first]
    if (first.codec == "utf-8" and first.errors == "strict") or first.unit > 1:
        return [first]
    others = [encoding for encoding in possible(data) if encoding != first]
    if any("\u3040" <= character <= "\u30ff" for character in old):  # kana: of the guesses only the Japanese ones fit
        others = [each for each in others if each.codec not in PAIRS or each.codec in _JAPANESE]
    return [first, *others]


def _refuse_undecided(
    data: Bytes, edit: Replace, splices: list[Splice], encodings: list[Encoding], index: int
) -> Problem | None:
    """Refuse if the text has the same bytes in two encodings that would write the new text differently.

    Only signs, kana and full-width letters have the same bytes in several of PAIRS.
    """
    chosen, *others = encodings
    for other in others if chosen.codec in PAIRS else ():
        if other.codec not in PAIRS:
            continue
        try:
            spans = find(data, edit.old, other, limit=len(splices) + 1)
        except UnicodeEncodeError:
            continue
        problem, rival = _encode_edits(data, spans, edit, other, index)
        if problem is None and rival and rival != splices:
            message = f"the file may be {chosen.label} or {other.label}, which write new_string differently"
            hint = "Nothing was changed. Convert the file with Bash (iconv) first, or edit a longer text of it."
            return Problem(5, f"{message}.", hint, {"edit": index, "reason": "encoding"}, layer=6)
    return None


def _doubtful(write: FileWrite, new: str, known: Callable[[], str], details: dict[str, Any]) -> Problem | None:
    """Refuse new characters beyond ASCII if the file's encoding is a weak guess."""
    encoding = write.encoding
    if write.named or encoding.unit > 1 or encoding.codec == "utf-8" or new.isascii():
        return None
    added = sorted({character for character in new if character > "\x7f"} - set(known()))
    if not added or not is_weak_guess(bytes(write.data), encoding.codec):
        return None
    message = (
        f"the file seems to be {encoding.label}, but that is a weak guess, and new characters "
        f"({''.join(added[:10])}) may come out wrong; nothing was changed."
    )
    hint = f'Read {write.path} again with its encoding named (for example encoding="gbk"), then try again.'
    return Problem(5, message, hint, {**details, "reason": "encoding"}, layer=6)


def _unreadable(write: FileWrite) -> Problem | None:
    """Refuse a change after which the file would not be recognised as text."""
    if stays_readable(write.encoding, write.parts) or not write.parts:
        return None
    message = f"after this change {write.path} would no longer be recognised as text ({write.encoding.label})."
    hint = "Nothing was changed. Leave NUL and control characters out, or convert the file with Bash (iconv) first."
    return Problem(5, message, hint, {"reason": "encoding"}, layer=6)


def _encode_edits(
    data: Bytes, spans: list[Span], edit: Replace, encoding: Encoding, index: int
) -> tuple[Problem | None, list[Splice]]:
    try:
        return None, replacements(data, spans, edit.old, edit.new, encoding)
    except UnicodeEncodeError as problem:
        return cannot_hold(edit.new, problem, encoding, {"edit": index}), []


def cannot_hold(text: str, problem: UnicodeEncodeError, encoding: Encoding, details: dict[str, Any]) -> Problem:
    """Return the refusal of a character that the file's encoding lacks."""
    character = text[problem.start] if problem.start < len(text) else "?"
    message = f"the file is {encoding.label}, which has no {character!r} (U+{ord(character):04X}); nothing was changed."
    hint = "Use characters the encoding has, or convert the file with Bash (iconv) first."
    return Problem(5, message, hint, {**details, "reason": "encoding"}, layer=6)


def _refuse_ambiguous(data: Bytes, spans: list[Span], encoding: Encoding, index: int) -> Problem:
    """Return the refusal of an old_string that occurs several times, with the lines."""
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


def _report_miss(write: FileWrite, data: Bytes, edit: Replace, index: int) -> Problem:
    if not data:
        hint = "An empty old_string puts new_string into it."
        return Problem(
            8, "String to replace not found: the file is empty.", hint, {"edit": index, "difference": "empty"}
        )
    from surehand.tools.edit_miss import explain_miss  # lazy: edit_miss, 3 ms

    text = write.encoding.decode(with_feeds(data[:_EXPLAINED_BYTES], write.encoding), "replace")
    miss = explain_miss(text, edit.old, edit.new)
    details: dict[str, Any] = {"edit": index, "difference": miss.difference}
    if miss.nearest:
        details |= {"nearest": miss.nearest, "line": miss.line}
    hint = miss.hint
    if len(data) > _EXPLAINED_BYTES:
        hint += f" Only the first {_EXPLAINED_BYTES >> 20} MiB were searched for it; Grep finds the line in all of it."
    return Problem(8, miss.message, hint, details)


def content_encoded(write: FileWrite) -> Problem | None:
    """Encode a whole new content, with the encoding, BOM and line ends of the existing file."""

    def decode() -> str:
        return write.encoding.decode(bytes(write.data), "replace")

    text = write.content or ""
    encoding = write.encoding if write.data else UTF8
    style: Newline = newline_style(write.data, encoding) if "\r" not in text and write.data else "\n"
    try:
        if len(text) > LARGE_CHARACTERS:
            body: Part = EncodedText(text, encoding.encode, style)
            bom = b"" if body.first(8).startswith(encoding.bom) else encoding.bom
        else:
            text = text.replace("\n", style) if style != "\n" else text
            body = encoding.encode(text)
            bom = b"" if body.startswith(encoding.bom) else encoding.bom
    except UnicodeEncodeError as problem:
        return _doubtful(write, text, decode, {}) or cannot_hold(text, problem, encoding, {})
    write.parts = [part for part in (bom, body) if len(part)]
    if not write.data:
        return None
    return _unreadable(write) or _doubtful(write, text, decode, {})


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


def look_at_once(write: FileWrite) -> bool:
    """Run the layers on the event loop: for one edit of a small file in the page cache, unchanged since it was read.

    False leaves the checks to a thread, also if the text does not occur once: explaining a miss may take long.
    """
    ctx, edit = write.ctx, write.edits[0]
    seen = ctx.session.read_state.get(write.real)
    if seen is None or not seen.digest or write.outside:
        return False
    if max(seen.size, len(edit.old), len(edit.new)) > _AT_ONCE_BYTES:
        return False
    source = open_at_once(write.path, ctx) if ctx.session.main.buffers is None else None
    if source is None:
        return False
    with source:
        data = read_at_once(source.fd, seen.size) if source.size == seen.size and source.real == write.real else None
        if data is None or not _holds_once(data, edit.old):
            return False
        if not seen.untouched(os.fstat(source.fd)) and digest_of(data) != seen.digest:
            return False
        write.fd, write.status, write.data, write.digest = source.fd, source.stat, data, seen.digest
        write.check(EDIT_CHECKS)
        write.keep()
    write.fd = -1
    looked_at(ctx).append(write)
    return True


def _holds_once(data: bytes, text: str) -> bool:
    """Return whether a text occurs in UTF-8 bytes exactly once, as spelled; an empty text never does."""
    try:
        data.decode()
        spelled = text.encode()
    except UnicodeError:
        return False
    return (at := data.find(spelled)) >= 0 > data.find(spelled, at + 1)
