"""Characters that make a command look like something it is not."""

from __future__ import annotations

import re

# Tab and newline separate words and commands in plain sight; every other control character, and everything that is
# drawn as nothing, as a blank or in another order, can hide a part of a command from the person who approves it.
_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad"
    "\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    "\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
    "]"
)


def unseen_character(text: str) -> str | None:
    """Name the first control, invisible or look-alike blank character of `text` and its position, if there is one."""
    hit = _UNSEEN.search(text)
    if hit is None:
        return None
    return f"character U+{ord(hit.group()):04X} at position {hit.start()} cannot be seen"
