"""`Examined`: a file as the checks of an edit found it, kept from the question to the write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from surehand.core.read_state import Seen
from surehand.core.session import Kept
from surehand.files.streamed import Bytes
from surehand.files.text import UTF8, Encoding, Splice

if TYPE_CHECKING:
    from surehand.tools.file_write import Replace


@dataclass(slots=True)
class Examined:
    """A file as the checks last read it: looked at again only if its status does not prove that nothing changed."""

    seen: Seen
    data: Bytes | None
    """None where it is not held; what was found in it holds for the same bytes, read again."""
    digest: str
    edits: Sequence[Replace] = ()
    encoding: Encoding = UTF8
    splices: Sequence[Splice] = ()
    path: str = ""
    diff: str = ""
    """What the edits change in the file of this name, where somebody was to see it."""
    line: int = 0


EXAMINED: Final[Kept[dict[str, Examined]]] = Kept("examined", make=lambda session: {})
ENCODINGS: Final[Kept[dict[str, tuple[Seen, Encoding]]]] = Kept("encodings", make=lambda session: {})
"""Real path → the encoding of the last edit: a guess must not change between two edits of a file read once."""
