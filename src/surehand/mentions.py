"""Files mentioned in a prompt: `@src/app.py` gives the model that file, `@shot.png` that picture.

A mention is a call of Read like any other: judged, recorded, and what it read can be edited.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from surehand.core.call import Image
from surehand.core.model import Message, user_message

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.model import Prompt

MOST_MENTIONS: Final = 20
_MENTION: Final = re.compile(r"""(?<![\w@/])@(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'`<>|*?]+))""")
_TRAILING: Final = ".,;:!?)]}"


def find_mentions(text: str, folder: str) -> list[str]:
    """Return the files a text mentions, as written; what is no file is no mention."""
    found: dict[str, None] = {}
    for match in _MENTION.finditer(text):
        name = match[1] or match[2] or match[3]
        for candidate in (name, name.rstrip(_TRAILING)):
            if candidate and os.path.isfile(os.path.join(folder, os.path.expanduser(candidate))):
                found[candidate] = None
                break
    return list(found)[:MOST_MENTIONS]


async def add_mentioned(app: Surehand, prompt: Prompt) -> Message:
    """Return the user's message with the files it mentions; what could not be read is said, to model and user."""
    message = user_message(prompt)
    texts: list[str] = []
    images: list[Image] = []
    for name in find_mentions(message.text, app.session.cwd):
        result = await app.call("Read", {"file_path": name}, source="user")
        if not result.ok:
            app.session.emit("note", message=f"@{name} was not read: {result.output}")
            texts.append(f"(@{name} could not be read: {result.output})")
            continue
        pictures = [block for block in result.content if isinstance(block, Image)]
        images += pictures
        texts.append(f"(@{name} is shown)" if pictures else f"<file path={name!r}>\n{result.output}\n</file>")
    if not texts:
        return message
    return replace(message, text="\n\n".join((message.text, *texts)), images=(*message.images, *images))
