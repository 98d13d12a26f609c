"""Diffs: of two texts, and of an edit by its lines alone, without comparing whole files.

    splice_diff(data, splices, UTF8, "a.py")     # what the edit changes, with three lines around
    text_diff(before, after, "a.py")             # two texts, compared line by line
    snippet(data, start, end, UTF8)              # the changed lines with their numbers, as Read shows them

All are unified diffs that `patch` understands as long as no line is cut; very long lines and very many changes are
cut, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import AnyStr, Final

from surehand.core.frozen import frozen
from surehand.core.text import LINE_CHARACTERS, SNIPPET_LINES, format_count
from surehand.files.sanitize import visible
from surehand.files.streamed import Bytes
from surehand.files.text import Encoding, Splice, line_at, with_feeds

CONTEXT: Final = 3
SNIPPET_CONTEXT: Final = 4
_AROUND: Final = 300
"""Characters of a very long line shown before and after the change."""
HUNK_LIMIT: Final = 100
_SPLICE_LIMIT: Final = 2000
_COMPARE_LIMIT: Final = 4_000_000
"""Above this product of line counts a comparison would take seconds: the lines are shown as one block."""
_REACH_BYTES: Final = 64 * 1024
"""How far a line end is searched for; must be a multiple of four, the widest character."""
_NEAR_BYTES: Final = 1000
"""How far the lines around a small change are searched for; lines within it are never long ones."""
_NARROW_FROM_BYTES: Final = 256 * 1024
_NARROW_BYTES: Final = 64 * 1024
NO_NEWLINE: Final = "\\ No newline at end of file"


@frozen
class Block:
    """Whole lines that become other lines: the position of the old ones, and both texts."""

    start: int
    end: int
    old: list[str]
    new: list[str]


def splice_diff(
    data: Bytes, splices: Sequence[Splice], encoding: Encoding, path: str, *, first_line: int | None = None
) -> str:
    """Return the unified diff of `splices`, read from the lines they touch and three around.

    `first_line` is the number of the line the first splice begins in, where the caller knows it: counting lines is
    what costs most in a large file.
    """
    if len(splices) == 1 and first_line is not None and (around := _look_around(data, splices[0], encoding)):
        return _small_diff(around, data[splices[0].start : splices[0].end], splices[0].new, path, first_line)
    blocks = list(_blocks(data, splices[:_SPLICE_LIMIT], encoding))
    shown, left = blocks[:HUNK_LIMIT], len(blocks) - HUNK_LIMIT + max(0, len(splices) - _SPLICE_LIMIT)
    lines = _header(path)
    shift = counted = number = 0
    if first_line is not None and splices:
        counted, number = _line_start(data, splices[0].start, encoding), first_line - 1
    for group in _near(data, shown, encoding):
        above = _lines_before(data, group[0].start, encoding)
        number += _line_ends(data, counted, group[0].start, encoding)
        counted = group[0].start
        body, old_count, new_count = _hunk(data, group, above, encoding)
        first = number + 1 - len(above)
        lines.append(f"@@ -{_range(first, old_count)} +{_range(first + shift, new_count)} @@")
        lines += body
        shift += new_count - old_count
    if left > 0:
        lines.append(f"... and {left} more places")
    return "\n".join(lines) + "\n"


@frozen
class _Around:
    """The surroundings of a small change: whole lines above, the rest of its own lines, whole lines below."""

    above: list[bytes]
    before: bytes
    behind: bytes
    below: list[bytes]


def _look_around(data: Bytes, splice: Splice, encoding: Encoding) -> _Around | None:
    """Return the surroundings of a change; None for long lines, a last line without its end, or invalid UTF-8."""
    start, end = splice.start, splice.end
    if not isinstance(data, bytes) or encoding.codec != "utf-8" or encoding.bom:
        return None
    above, below = data[max(0, start - _NEAR_BYTES) : start].split(b"\n"), data[end : end + _NEAR_BYTES].split(b"\n")
    before, behind, last = above.pop(), below[0], below.pop()
    if not below or len(before) + len(behind) + max(end - start, len(splice.new)) > LINE_CHARACTERS:
        return None
    if end + _NEAR_BYTES < len(data):  # the last one is incomplete
        if len(below) <= SNIPPET_CONTEXT:
            return None
    elif last:
        return None
    if start > _NEAR_BYTES:  # and so is the first one
        if len(above) <= SNIPPET_CONTEXT:
            return None
        del above[0]
    return _Around(above, before, behind, below[1:])


def _small_diff(around: _Around, old: bytes, new: bytes, path: str, line: int) -> str:
    """Return the diff of one change in line `line`, by whole lines, none of which is truncated."""
    above, below = around.above, around.below
    before = (around.before + old + around.behind).split(b"\n")
    after = (around.before + new + around.behind).split(b"\n")
    if old.endswith(b"\n") and (new.endswith(b"\n") or not (new or around.before)):  # what is behind stays a line
        below = [before.pop(), *below]
        after.pop()
    head, tail = _common(before, after)
    above, below = [*above, *before[:head]][-CONTEXT:], [*before[len(before) - tail :], *below][:CONTEXT]
    removed, added = before[head : len(before) - tail], after[head : len(after) - tail]
    lines = [b" " + each for each in above] + [b"-" + each for each in removed]
    lines += [b"+" + each for each in added] + [b" " + each for each in below]
    first, same = line + head - len(above), len(above) + len(below)
    ranges = f"@@ -{_range(first, same + len(removed))} +{_range(first, same + len(added))} @@"
    return "\n".join([*_header(path), ranges, b"\n".join(lines).decode("utf-8", "replace")]) + "\n"


def splice_snippet(data: Bytes, splice: Splice, encoding: Encoding, line: int) -> str:
    """Return the new lines of a small change in line `line`, as `snippet` shows them; "" for any other change."""
    around = _look_around(data, splice, encoding)
    if around is None:
        return ""
    lines, below = (around.before + splice.new + around.behind).split(b"\n"), around.below
    if splice.new.endswith(b"\n"):
        below = [lines.pop(), *below]
    above = around.above[-SNIPPET_CONTEXT:]
    lines = [*above, *lines, *below[:SNIPPET_CONTEXT]]
    if len(lines) > SNIPPET_LINES:
        return ""
    shown = b"\n".join(lines).decode("utf-8", "replace").split("\n")
    number = line - len(above)
    return "\n".join([f"{at:6}\t{each.rstrip(chr(13))}" for at, each in enumerate(shown, number)])


def text_diff(before: str, after: str, path: str, *, limit_lines: int | None = None) -> str:
    """Return the unified diff of two texts, empty if they are equal; truncated after `limit_lines` with a note."""
    if before == after:
        return ""
    old, new = _split(before), _split(after)
    head, tail = _common(old, new)
    return _within(limit_lines, [*_header(path), *_compare_lines(old, new, head, tail)])


def _within(limit_lines: int | None, lines: list[str]) -> str:
    if limit_lines is not None and len(lines) > limit_lines:
        lines = [*lines[:limit_lines], f"... {format_count(len(lines) - limit_lines, 'more line')} of diff"]
    return "\n".join(lines) + "\n"


def narrow_diff(before: bytes, after: bytes, encoding: Encoding, path: str) -> str | None:
    """Return the diff of two large contents that differ in one narrow place, without decoding them; None otherwise."""
    if min(len(before), len(after)) < _NARROW_FROM_BYTES or not encoding.self_synchronizing:
        return None
    head = _agreeing(before, after)
    stop = len(before) - _agreeing_back(before, after, min(len(before), len(after)) - head)
    while _inside_character(before, head, encoding):
        head -= 1
    while _inside_character(before, stop, encoding):
        stop += 1
    old, new = before[head:stop], after[head : len(after) - len(before) + stop]
    if max(len(old), len(new)) > _NARROW_BYTES or max(old.count(b"\n"), new.count(b"\n")) > HUNK_LIMIT:
        return None
    return splice_diff(before, [Splice(head, stop, new)], encoding, path)


def creation_diff(text: str, path: str, *, limit_lines: int | None = None) -> str:
    """Return the diff of a new file; truncated after `limit_lines` with a note."""
    lines = _split(text)
    shown = [line for each in lines for line in _mark_line("+", each)]
    header = ["--- /dev/null", _header(path)[1], f"@@ -0,0 +{_range(1, len(lines))} @@"]
    return _within(limit_lines, [*header, *shown])


def _header(path: str) -> list[str]:
    return [f"--- {one_line(path)}", f"+++ {one_line(path)}"]


def one_line(path: str) -> str:
    """Return a path for a line of output, escaped so that it cannot look like other lines."""
    if path.isprintable():
        return path
    return visible(path, lines=False)


def snippet(
    data: bytes,
    start: int,
    end: int,
    encoding: Encoding,
    *,
    context: int = SNIPPET_CONTEXT,
    limit: int = SNIPPET_LINES,
    first_line: int | None = None,
) -> str:
    """Return the lines round the bytes from `start` to `end` with their numbers (`cat -n`).

    `first_line` is the number of the line that holds `start`, where the caller knows it.
    """
    data = with_feeds(data, encoding)
    first = _line_start(data, start, encoding)
    above = _lines_before(data, first, encoding, context)
    last = _line_stop(data, max(start, end - 1), encoding)
    middle = _split(_text(data, first, last, encoding))
    if middle:
        middle[0] = _focus_line(middle[0], *(len(_text(data, first, place, encoding)) for place in (start, end)))
    lines = [*above, *middle, *_lines_after(data, last, encoding, context)]
    number = (line_at(data, first, encoding) if first_line is None else first_line) - len(above)
    shown = [f"{number + index:6}\t{_truncate(line.rstrip(chr(13) + chr(10)))}" for index, line in enumerate(lines)]
    if len(shown) > limit:
        half = limit // 2
        shown = [*shown[:half], f"   ... {len(shown) - 2 * half} lines ...", *shown[-half:]]
    return "\n".join(shown)


def _blocks(data: Bytes, splices: Sequence[Splice], encoding: Encoding) -> Iterator[Block]:
    """Turn splices into blocks of whole lines; splices on touching lines make one block."""
    spans = [
        (_line_start(data, splice.start, encoding), _touched_stop(data, splice, encoding), splice) for splice in splices
    ]
    together: list[list[tuple[int, int, Splice]]] = []
    for span in spans:
        if together and span[0] < together[-1][-1][1]:
            together[-1].append(span)
        else:
            together.append([span])
    for group in together[: HUNK_LIMIT + 1]:
        start, stop = group[0][0], max(span[1] for span in group)
        yield _trim_block(data, start, stop, [span[2] for span in group], encoding)
    for group in together[HUNK_LIMIT + 1 :]:
        yield Block(group[0][0], group[-1][1], [], [])


def _touched_stop(data: Bytes, splice: Splice, encoding: Encoding) -> int:
    """Return the end of the lines a splice touches; includes the next line if it removes or adds a line end."""
    feed = encoding.feed
    ends_clean = splice.end > splice.start and data[splice.end - encoding.unit : splice.end] == feed
    joins = not splice.new and not _begins_line(data, splice.start, encoding)  # what is left with the line behind it
    if ends_clean and not joins and (not splice.new or splice.new.endswith(feed)):
        return splice.end
    return _line_stop(data, splice.end, encoding)


def _trim_block(data: Bytes, start: int, stop: int, splices: list[Splice], encoding: Encoding) -> Block:
    # Of a line longer than the search distance only a part is shown.
    opening = "" if _begins_line(data, start, encoding) else "…"
    closing = "" if stop == len(data) or _begins_line(data, stop, encoding) else "…\n"
    pieces, position = [opening], start
    for splice in splices:
        pieces += [_text(data, position, splice.start, encoding), encoding.decode(splice.new, "replace")]
        position = splice.end
    pieces += [_text(data, position, stop, encoding), closing]
    old, new = _split(opening + _text(data, start, stop, encoding) + closing), _split("".join(pieces))
    head, tail = _common(old, new)
    for _ in range(head):
        start = _line_stop(data, start, encoding)
    for _ in range(tail):
        stop = _line_start(data, stop - encoding.unit, encoding)
    return Block(start, stop, old[head : len(old) - tail], new[head : len(new) - tail])


def _near(data: Bytes, blocks: list[Block], encoding: Encoding) -> Iterator[list[Block]]:
    """Group blocks whose context lines meet."""
    group: list[Block] = []
    for block in blocks:
        if group and _line_ends(data, group[-1].end, block.start, encoding, limit=2 * CONTEXT + 1) > 2 * CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _hunk(data: Bytes, group: list[Block], above: list[str], encoding: Encoding) -> tuple[list[str], int, int]:
    body = [line for each in above for line in _mark_line(" ", each)]
    old_count = new_count = len(above)
    for index, block in enumerate(group):
        if index:
            between = _split(_text(data, group[index - 1].end, block.start, encoding))
            body += [line for each in between for line in _mark_line(" ", each)]
            old_count, new_count = old_count + len(between), new_count + len(between)
        old, new = _showing_difference(block.old, block.new)
        body += [line for each in old for line in _mark_line("-", each)]
        body += [line for each in new for line in _mark_line("+", each)]
        old_count, new_count = old_count + len(block.old), new_count + len(block.new)
    below = _lines_after(data, group[-1].end, encoding)
    body += [line for each in below for line in _mark_line(" ", each)]
    return body, old_count + len(below), new_count + len(below)


def _showing_difference(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Return old and new lines, very long ones truncated around the part that differs."""
    shown = list(old), list(new)
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        if max(len(before), len(after)) > LINE_CHARACTERS:
            head = _agreeing(before, after)
            tail = _agreeing(before[head:][::-1], after[head:][::-1])
            for lines, text in zip(shown, (before, after), strict=True):
                lines[index] = _focus_line(text, head, len(text) - tail)
    return shown


def _compare_lines(old: list[str], new: list[str], head: int, tail: int) -> Iterator[str]:
    """Yield the hunks between two lists of lines whose first `head` and last `tail` ones are equal."""
    from difflib import SequenceMatcher

    first, stop_old, stop_new = max(0, head - CONTEXT), len(old) - tail, len(new) - tail
    last_old, last_new = min(len(old), stop_old + CONTEXT), min(len(new), stop_new + CONTEXT)
    window_old, window_new = old[first:last_old], new[first:last_new]
    if len(window_old) * len(window_new) > _COMPARE_LIMIT:
        groups = [[("replace", head, stop_old, head, stop_new)]]
        window_old, window_new, first = old, new, 0
    else:
        matcher = SequenceMatcher(None, window_old, window_new, autojunk=False)
        groups = matcher.get_grouped_opcodes(CONTEXT)
    for group in groups:
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield f"@@ -{_range(first + i1 + 1, i2 - i1)} +{_range(first + j1 + 1, j2 - j1)} @@"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (line for each in window_old[a1:a2] for line in _mark_line(" ", each))
                continue
            before, after = _showing_difference(window_old[a1:a2], window_new[b1:b2])
            yield from (line for each in before for line in _mark_line("-", each))
            yield from (line for each in after for line in _mark_line("+", each))


def _mark_line(sign: str, line: str) -> list[str]:
    """Return a line of a diff, with the note for a last line without its end."""
    if line.endswith("\n"):
        return [sign + _truncate(line[:-1])]
    return [sign + _truncate(line), NO_NEWLINE]


def _focus_line(line: str, start: int, end: int) -> str:
    """Return a line; of a very long one the characters from `start` to `end` with some around them."""
    text = line.rstrip("\r\n")
    if len(text) <= LINE_CHARACTERS:
        return line
    first, last = max(0, start - _AROUND), min(len(text), end + _AROUND)
    before = f"…({first} characters)…" if first else ""
    after = f"…({len(text) - last} characters)…" if last < len(text) else ""
    return before + _truncate(text[first:last], LINE_CHARACTERS - 100) + after + line[len(text) :]


def _truncate(text: str, limit: int = LINE_CHARACTERS) -> str:
    """Return a line, or the beginning and the end of a very long one."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…({len(text) - limit} characters)…{text[-limit // 2 :]}"


def _range(first: int, count: int) -> str:
    return f"{first - 1 if count == 0 else first}" + ("" if count == 1 else f",{count}")


def _inside_character(data: bytes, position: int, encoding: Encoding) -> bool:
    if position >= len(data):
        return False
    return bool(position % encoding.unit) or (encoding.codec == "utf-8" and 0x80 <= data[position] < 0xC0)


def _agreeing_back(one: bytes, other: bytes, most: int) -> int:
    """Return how many of the last `most` bytes of two contents are equal."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if one[len(one) - middle : len(one) - least] == other[len(other) - middle : len(other) - least]:
            least = middle
        else:
            most = middle - 1
    return least


def _agreeing(one: AnyStr, other: AnyStr) -> int:
    """Return the length of the common prefix of two texts, by bisection."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _common(old: list[AnyStr], new: list[AnyStr]) -> tuple[int, int]:
    """Return how many lines are equal at the front and at the back."""
    limit = min(len(old), len(new))
    head = tail = 0
    while head < limit and old[head] == new[head]:
        head += 1
    while tail < limit - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _split(text: str) -> list[str]:
    """Split at LF only: a CR belongs to its line, as for `patch`."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _text(data: Bytes, start: int, end: int, encoding: Encoding) -> str:
    return encoding.decode(data[start:end], "replace") if start < end else ""


def _line_start(data: Bytes, position: int, encoding: Encoding) -> int:
    """Return the beginning of the line at `position`, or a position in it if it is longer than the search distance."""
    feed, floor = encoding.feed, max(0, position - _REACH_BYTES)
    at = data.rfind(feed, floor, position)
    while at >= 0 and at % encoding.unit:
        at = data.rfind(feed, floor, at)
    if at >= 0:
        return at + len(feed)
    return floor or (len(encoding.bom) if data.startswith(encoding.bom) else 0)


def _line_stop(data: Bytes, position: int, encoding: Encoding) -> int:
    feed, ceiling = encoding.feed, min(len(data), position + _REACH_BYTES)
    at = data.find(feed, position, ceiling)
    while at >= 0 and at % encoding.unit:
        at = data.find(feed, at + 1, ceiling)
    return at + len(feed) if at >= 0 else ceiling


def _begins_line(data: Bytes, position: int, encoding: Encoding) -> bool:
    unit = encoding.unit
    return position <= len(encoding.bom) or data[position - unit : position] == encoding.feed


def _line_ends(data: Bytes, start: int, end: int, encoding: Encoding, limit: int | None = None) -> int:
    if limit is not None and end - start > LINE_CHARACTERS * limit:
        return limit
    return _text(data, start, end, encoding).count("\n") if encoding.unit > 1 else data.count(b"\n", start, end)


def _lines_before(data: Bytes, position: int, encoding: Encoding, count: int = CONTEXT) -> list[str]:
    start = position
    for _ in range(count if _begins_line(data, position, encoding) else 0):
        if start <= len(encoding.bom) or position - start > LINE_CHARACTERS * count:
            break
        start = _line_start(data, start - encoding.unit, encoding)
    return _split(_text(data, start, position, encoding))


def _lines_after(data: Bytes, position: int, encoding: Encoding, count: int = CONTEXT) -> list[str]:
    stop = position
    for _ in range(count if _begins_line(data, position, encoding) else 0):
        if stop >= len(data) or stop - position > LINE_CHARACTERS * count:
            break
        stop = _line_stop(data, stop, encoding)
    return _split(_text(data, position, stop, encoding))
