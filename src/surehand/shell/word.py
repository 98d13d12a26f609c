"""One word of a command, as certain as it can be known before the shell runs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from surehand.core.frozen import frozen

Kind: TypeAlias = Literal["literal", "glob", "opaque"]
Many: TypeAlias = Literal["", "names", "split"]


@frozen
class Word:
    """One argument; `fixed` is the part of its beginning that is certain.

    It may turn out to be several: the `names` of files that a pattern finds, each whole, or what an unquoted expansion
    is `split` into, which may be anything.
    """

    text: str
    kind: Kind = "literal"
    fixed: str = ""
    path: str = ""  # what the `{}` of `find` stands for: a pattern of the paths it may be
    many: Many = ""
    no_flag: bool = False  # a pattern that was looked at: no name it finds begins with a dash
    number: bool = False  # nobody knows which, but a number: no arithmetic on it runs anything, and nothing splits it
    items: tuple[Word, ...] | None = None  # the words of a list, where it is one and they are known
    keyed: bool = False  # an associative array for certain: its subscripts are plain text, and not evaluated

    @property
    def literal(self) -> bool:
        """Whether the word has no expansion: its text is known."""
        return self.kind == "literal"

    @property
    def single(self) -> bool:
        """Whether it is one word for certain; an unquoted number is none where the command that counts fails."""
        return not self.many and (not self.number or self.text[:1] == '"')

    @property
    def may_be_flag(self) -> bool:
        """Whether the word could turn out to begin with a dash."""
        if self.kind == "literal":
            return self.text.startswith("-")
        return not self.no_flag and (not self.fixed or self.fixed[0] == "-")


KEYED = Word("an associative array", "opaque", keyed=True)
NUMBER = Word("a number", "opaque", number=True)
