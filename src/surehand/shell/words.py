"""Decodes words as the shell passes them to a program: quotes removed, braces and `~` expanded, variables substituted.

A word is *literal* (its text is certain), a *glob* (expanded to existing files when it runs), or *opaque* (known only
to the running shell; its text is the source as written).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from surehand.core.frozen import frozen, replace_values
from surehand.core.text import lazy_pattern
from surehand.shell import arithmetic
from surehand.shell.path_lists import names_an_option
from surehand.shell.syntax import Node
from surehand.shell.tree import below, child, children, kind_of_token, prints_a_number, text
from surehand.shell.word import Kind, Many, Token, Word, undo_ansi, undo_double, undo_heredoc

_SPECIAL = lazy_pattern(r"[\\*?\[{~]")
_SPLITS = lazy_pattern(r"[ \t\n\\]")
_MATCHES = lazy_pattern(r"[*?\[]")
_EXTENDED = lazy_pattern(r"[@!+*?]\(")
_ASSIGNMENT_TILDE = lazy_pattern(r"[A-Za-z_]\w*\+?=(?:[^~]*:)?~", re.ASCII)
_SUBSTITUTE = "/dev/fd/63"  # the path that a process substitution becomes


@frozen
class Piece:
    """A part of a word that is not subject to brace, tilde or glob expansion."""

    text: str
    kind: Kind = "literal"
    many: Many = ""
    no_flag: bool = False
    path: str = ""  # a pattern of the paths it may be
    number: bool = False
    token: Token = ""


Atom: TypeAlias = Piece | str
Fault: TypeAlias = Callable[[str], None]


class Decoder:
    """Decodes the words of one script; `names` are the variables known at this point."""

    def __init__(self, source: str, fault: Fault) -> None:
        self._source = source.encode(errors="surrogatepass")
        self._fault = fault
        self.splits_as_usual = True  # false after IFS was assigned

    def words(self, node: Node, names: Mapping[str, Word | None]) -> list[Word]:
        """Return the words that a word of the source becomes, several after brace expansion."""
        parts: list[Node] = node["Parts"]
        if len(parts) == 1 and parts[0]["Type"] == "Lit":
            text: str = parts[0].get("Value", "")
            if _SPECIAL.search(text) is None:
                return [Word(text)]
        elif len(parts) > 1 and any(part["Type"] == "ProcSubst" for part in parts):
            self._fault("a process substitution glued to other text")
        if len(parts) == 1 and (items := self._items(parts[0], names)) is not None:
            return list(items)
        atoms = list(self._atoms(parts, names))
        expanded = _expand_braces(atoms) if "{" in atoms else [atoms]
        if expanded is None:
            self._fault("a brace expression is odd or too long to be read")
            return [self._opaque(node, many="split")]
        return [self._finish(each, node, names) for each in expanded if each]  # an empty unquoted word vanishes

    def _items(self, part: Node, names: Mapping[str, Word | None]) -> tuple[Word, ...] | None:
        """Return the elements of `"$@"` or `"${list[@]}"` if they are known."""
        inner = children(part, "Parts") if part["Type"] == "DblQuoted" else [part]
        if len(inner) != 1 or inner[0]["Type"] != "ParamExp" or not _is_list(inner[0]):
            return None
        if inner[0].get("Excl") or _modified(inner[0], False):
            return None
        known = names.get(text(inner[0], "Param"))
        if known is None or known.items is None or odd_parameter(inner[0], names):
            return None
        plain = self.splits_as_usual and all(
            each.literal and each.text and not any(odd.search(each.text) for odd in (_SPLITS, _MATCHES, _EXTENDED))
            for each in known.items
        )
        return known.items if part["Type"] == "DblQuoted" or plain else None

    def value(self, node: Node | None, names: Mapping[str, Word | None]) -> Word:
        """Return the value of an assignment or the target of a redirection: no splitting, no braces."""
        if node is None:
            return Word("")
        atoms = list(self._atoms(node["Parts"], names, splits=False))
        return self._finish(atoms, node, names, in_assignment=True)

    def heredoc(self, node: Node | None, quoted: bool, names: Mapping[str, Word | None]) -> Word:
        """Return the text of a heredoc; with a `quoted` delimiter nothing in it expands."""
        if node is None:
            return Word("")
        pieces: list[Atom] = []
        for part in node["Parts"]:
            if part["Type"] == "Lit":
                pieces.append(Piece(part.get("Value", "") if quoted else undo_heredoc(part.get("Value", ""))))
            else:
                pieces += self._part(part, names, in_quotes=True, splits=False)
        return self._finish(pieces, node, names)

    def _finish(
        self, atoms: list[Atom], node: Node, names: Mapping[str, Word | None], in_assignment: bool = False
    ) -> Word:
        atoms = self._tilde(atoms, names, in_assignment)
        if any(isinstance(atom, Piece) and atom.kind == "opaque" for atom in atoms):
            opaque = self._opaque(node, _certain(atoms), _many(atoms))
            rest = [atom for atom in atoms if not isinstance(atom, Piece) or atom.text or atom.kind == "opaque"]
            number = all(isinstance(atom, Piece) and atom.number for atom in rest)
            token = "" if number else _token_of(rest)
            return replace_values(opaque, number=number, token=token, no_flag=bool(token))
        text = "".join(atom if isinstance(atom, str) else atom.text for atom in atoms)
        if _globs(atoms) and not in_assignment:
            return Word(text, "glob", _certain(atoms), many=_many(atoms) or "names")
        if any(isinstance(atom, Piece) and atom.kind == "glob" for atom in atoms):
            first = next(atom for atom in atoms if not isinstance(atom, Piece) or atom.text)
            no_flag = isinstance(first, Piece) and first.no_flag
            if any(isinstance(atom, Piece) and atom.path for atom in atoms):
                if any(atom is not first and not (isinstance(atom, Piece) and not atom.text) for atom in atoms):
                    return self._opaque(node, "", _many(atoms))
                path = first.path if isinstance(first, Piece) else ""
                return Word(text, "glob", path=path, many=_many(atoms), no_flag=no_flag)
            return Word(text, "glob", _certain(atoms), many=_many(atoms), no_flag=no_flag)
        return Word(text)

    def _opaque(self, node: Node, fixed: str = "", many: Many = "") -> Word:
        if "Pos" not in node:  # trees of plain commands have no positions
            return Word("".join(piece.get("Value", "") for piece in below(node)), "opaque", fixed, many=many)
        raw = self._source[node["Pos"]["Offset"] : node["End"]["Offset"]]
        return Word(raw.decode(errors="replace"), "opaque", fixed, many=many)

    def _tilde(self, atoms: list[Atom], names: Mapping[str, Word | None], in_assignment: bool) -> list[Atom]:
        if "~" not in atoms:
            return atoms
        text = "".join(atom if isinstance(atom, str) else "\0" * max(len(atom.text), 1) for atom in atoms)
        if atoms[0] == "~":
            return self._leading_tilde(atoms, names, in_assignment)
        if in_assignment and ":~" in text:
            return [*atoms, Piece("", "opaque")]
        hit = None if in_assignment else _ASSIGNMENT_TILDE.match(text)
        if hit is None:
            return atoms
        if text.count("~") > 1 or hit.end() - 1 > text.index("=") + 1:
            return [*atoms, Piece("", "opaque")]
        start = text.index("=") + 1
        return atoms[:start] + self._leading_tilde(atoms[start:], names, True)

    def _leading_tilde(self, atoms: list[Atom], names: Mapping[str, Word | None], ends_at_colon: bool) -> list[Atom]:
        ends = "/:" if ends_at_colon else "/"
        length = next((index for index, atom in enumerate(atoms) if isinstance(atom, str) and atom in ends), len(atoms))
        prefix = atoms[1:length]
        if any(isinstance(atom, Piece) for atom in prefix):
            return atoms
        place = {"": names.get("HOME"), "+": names.get("PWD")}.get("".join(str(atom) for atom in prefix))
        if place is None or not place.literal or ":~" in "".join(atom for atom in atoms if isinstance(atom, str)):
            return [Piece("", "opaque"), *atoms[1:]]
        return [Piece(place.text), *atoms[length:]]

    def _atoms(self, parts: list[Node], names: Mapping[str, Word | None], splits: bool = True) -> Iterator[Atom]:
        for part in parts:
            yield from self._part(part, names, in_quotes=False, splits=splits)

    def _part(self, part: Node, names: Mapping[str, Word | None], in_quotes: bool, splits: bool) -> Iterator[Atom]:
        kind = part["Type"]
        if kind == "Lit":
            yield from [Piece(undo_double(part.get("Value", "")))] if in_quotes else _bare(part.get("Value", ""))
        elif kind == "SglQuoted":
            yield self._single(part)
        elif kind == "DblQuoted":
            yield Piece("")
            for inner in children(part, "Parts"):
                yield from self._part(inner, names, in_quotes=True, splits=False)
        elif kind == "ParamExp":
            yield self._parameter(part, names, splits)
        elif kind == "ArithmExp":
            yield self._arithmetic(part, names)
        elif kind == "ProcSubst":
            yield Piece(_SUBSTITUTE)
        else:
            yield self._known_output(part, names, splits) or self._running(part, names, splits)

    def _known_output(self, part: Node, names: Mapping[str, Word | None], splits: bool) -> Piece | None:
        """Return the output of `$(pwd)`, `$(dirname f)` and `"$(cat <<'EOF' ...)"` if it is certain."""
        statements = children(part, "Stmts")
        if part["Type"] != "CmdSubst" or part.get("TempFile") or len(statements) != 1:
            return None
        call = child(statements[0], "Cmd")
        if call.get("Type") != "CallExpr":
            return None
        words = [children(arg, "Parts") for arg in children(call, "Args")]
        if not words or len(words[0]) != 1 or call.get("Assigns") or statements[0].get("Background"):
            return None
        if words[0][0].get("Value") in ("dirname", "basename"):
            return self._piece_of(self._part_of_path(statements[0], names), splits)
        if len(words) != 1:
            return None
        name = words[0][0].get("Value", "")  # as written: decoding nested substitutions would take exponential time
        if name == "pwd" and not statements[0].get("Redirs"):
            return self._piece_of(names.get("PWD"), splits)
        text = self._heredoc_of_cat(children(statements[0], "Redirs"), names) if name == "cat" and not splits else None
        return None if text is None else Piece(text)

    def _part_of_path(self, statement: Node, names: Mapping[str, Word | None]) -> Word | None:
        """Return what `dirname` or `basename` prints for a known path."""
        given = children(child(statement, "Cmd"), "Args")
        if statement.get("Redirs") or any(each.get("Type") in ("CmdSubst", "ProcSubst") for each in below(given)):
            return None
        name, *words = [word for arg in given for word in self.words(arg, names)]
        if not all(word.literal and word.text[:1] != "-" and "\n" not in word.text for word in words):
            return None
        folder, _, last = (
            words[0].text.rstrip("/").rpartition("/") if words and words[0].text.strip("/") else ("", "", "")
        )
        if name.text == "dirname":
            absolute = words[:1] and words[0].text.startswith("/")
            return Word(folder.rstrip("/") or ("/" if absolute else ".")) if len(words) == 1 and last else None
        suffix = words[1].text if len(words) == 2 else ""
        return Word(last.removesuffix(suffix) or last) if len(words) in (1, 2) and last else None

    def _heredoc_of_cat(self, redirects: list[Node], names: Mapping[str, Word | None]) -> str | None:
        """Return the heredoc of a `cat` without other redirections: the idiom for a text of several lines."""
        if len(redirects) != 1 or redirects[0]["Op"] != "<<":
            return None
        delimiter = children(child(redirects[0], "Word"), "Parts")
        quoted = any(piece["Type"] != "Lit" or "\\" in piece.get("Value", "") for piece in delimiter)
        body = self.heredoc(redirects[0].get("Hdoc"), quoted, names)
        return body.text.rstrip("\n") if body.literal else None

    def _single(self, part: Node) -> Piece:
        if not part.get("Dollar"):
            return Piece(part.get("Value", ""))
        text = undo_ansi(part.get("Value", ""))
        return Piece("", "opaque") if text is None else Piece(text)

    def _running(self, part: Node, names: Mapping[str, Word | None], splits: bool) -> Piece:
        kind = part["Type"]
        if kind == "CmdSubst" and (part.get("TempFile") or part.get("ReplyVar")):
            self._fault("`${ command; }` runs in the shell itself")
        elif kind != "CmdSubst":
            self._fault(f"an expansion of kind {kind} cannot be read")
        counts = prints_a_number(part)
        token = "" if counts else self._token(part, names)
        return Piece("", "opaque", "split" if splits and not counts else "", number=counts, token=token)

    def _token(self, part: Node, names: Mapping[str, Word | None]) -> Token:
        """Return the kind of the words that a substitution prints; none if a reference could look like an option."""
        kind = kind_of_token(part) if self.splits_as_usual else ""
        place = names.get("PWD")
        if kind == "reference" and (place is None or not place.literal or names_an_option(place.text)):
            return ""
        return "revision" if kind in ("object", "reference") else "date" if kind == "date" else ""

    def _arithmetic(self, part: Node, names: Mapping[str, Word | None]) -> Piece:
        value = arithmetic.value_of(part.get("X"), names)
        if value is not None:
            return Piece(str(value))
        if not arithmetic.is_number(part.get("X"), names):
            self._fault("arithmetic on names evaluates their values as code")
        return Piece("", "opaque", number=True)

    def _parameter(self, part: Node, names: Mapping[str, Word | None], splits: bool) -> Piece:
        reason = odd_parameter(part, names)
        if reason:
            self._fault(reason)
            return Piece("", "opaque", "split")
        name: str = part["Param"]["Value"]
        array = names.get(name)
        value = None if _modified(part) else array
        if not _modified(part, False) and (at := arithmetic.value_of(part.get("Index") or {}, {})) is not None:
            value = _item(array, at)
        if part.get("Exp"):
            value = self._altered_value(part, array, names)
        known = self._piece_of(value, splits)
        counts = arithmetic.counts(part) or (bool(part.get("Excl")) and array is not None and array.items is not None)
        number = counts or (self.splits_as_usual and value is not None and value.number)
        several = (splits and not number) or _is_list(part)
        token = value.token if value is not None and not number and not _is_list(part) else ""
        return known or Piece("", "opaque", "split" if several else "", number=number, token=token)

    def _altered_value(self, part: Node, known: Word | None, names: Mapping[str, Word | None]) -> Word | None:
        """Return the value of `${f%.py}`, `${f##*/}` or `${f:-default}` if it is certain."""
        op, given = child(part, "Exp").get("Op", ""), child(child(part, "Exp"), "Word")
        if known is None or not known.literal or any(part.get(key) for key in _NOT_ALONE):
            return None
        if op == ":-":
            # The meaning of quotes and backslashes in a default depends on the quotes around it.
            plain = all(each["Type"] == "Lit" and _PLAIN.fullmatch(each["Value"]) for each in children(given, "Parts"))
            value = known if known.text else self.value(given, names) if plain else None
            return value if value is not None and value.literal else None
        pattern = "".join(str(each.get("Value", "")) for each in children(given, "Parts") if each["Type"] == "Lit")
        if (
            len(children(given, "Parts")) != 1
            or not _PLAIN_PATTERN.fullmatch(pattern)
            or len(known.text) > _MAX_ALTERED
        ):
            return None
        return _remove_affix(known.text, op, pattern)

    def _piece_of(self, known: Word | None, splits: bool) -> Piece | None:
        if known is None or known.kind == "opaque":
            return None
        if splits and (not self.splits_as_usual or not known.text or (known.literal and _SPLITS.search(known.text))):
            return None
        if splits and "{}" in known.text and known.path:
            return None  # a path from `find` may hold blanks
        if splits and known.literal and _EXTENDED.search(known.text):
            return None  # a glob if `extglob` is set
        if splits and known.literal and _MATCHES.search(known.text):
            return Piece(known.text, "glob", "split")
        many: Many = "split" if splits and not known.literal else ""
        return Piece(known.text, known.kind, many, known.no_flag, known.path)


_NOT_ALONE = ("Length", "Repl", "Slice", "Names", "Modifiers", "Index", "Excl")
_PLAIN_PATTERN = lazy_pattern(r"[\w./-]*(?:\*[\w./-]*){0,2}", re.ASCII)
_PLAIN = lazy_pattern(r"[\w./-]*", re.ASCII)
_MAX_ALTERED = 256


def _remove_affix(text: str, op: str, pattern: str) -> Word | None:
    """Remove the shortest (`#`, `%`) or longest (`##`, `%%`) match of a pattern from the start or end of a text."""
    if op not in ("#", "##", "%", "%%"):
        return None
    matches = re.compile(re.escape(pattern).replace(r"\*", ".*"), re.DOTALL).fullmatch
    cuts = range(len(text) + 1) if op in ("#", "%%") else range(len(text), -1, -1)
    if op[0] == "#":
        return Word(next((text[at:] for at in cuts if matches(text[:at])), text))
    return Word(next((text[:at] for at in cuts if matches(text[at:])), text))


def odd_parameter(part: Node, names: Mapping[str, Word | None]) -> str:
    """Return why a parameter expansion may run code or change something; empty if it only reads a value."""
    if part.get("Excl") and not _lists_keys(part, names):
        return "`${!name}` reads a variable whose name is data"
    if part.get("Width") or part.get("IsSet") or part.get("Flags") or part.get("NestedParam") or not part.get("Param"):
        return "an expansion that bash does not know"
    op = child(part, "Exp").get("Op", "")
    if op == "@":
        return "`${name@...}` may evaluate the value of a variable"
    if op in ("=", ":="):
        return "`${name=value}` assigns while it expands"
    index = part.get("Index")
    if index is not None and not _is_all(index) and not is_plain_subscript(index, names, text(part, "Param")):
        return "a subscript is evaluated as code"
    cut = child(part, "Slice")
    if not all(arithmetic.is_number(cut.get(side), names) for side in ("Offset", "Length")):
        return "the offset of a slice is evaluated as code"
    return ""


def _lists_keys(part: Node, names: Mapping[str, Word | None]) -> bool:
    """Whether `${!name[@]}` lists the subscripts of an array of this script."""
    array = names.get(text(part, "Param"))
    known = array is not None and (array.keyed or array.items is not None)
    return known and _is_all(part.get("Index")) and not _modified(part, False)


def _is_all(index: Node | None) -> bool:
    return [part.get("Value") for part in children(index, "Parts")] in (["@"], ["*"])


def is_plain_subscript(index: Node, names: Mapping[str, Word | None], name: str) -> bool:
    """Return whether a subscript runs no code: it is a number, or the key of an associative array."""
    array = names.get(name)
    if array is None or not array.keyed or index.get("Type") != "Word":
        return arithmetic.is_number(index, names)
    return all(part["Type"] in _IN_A_KEY for part in below(index["Parts"]) if "Type" in part)


_IN_A_KEY = frozenset(("Lit", "SglQuoted", "DblQuoted", "ParamExp"))


def _item(array: Word | None, at: int) -> Word | None:
    """Return an element of an array; unknown if a word before it may be several."""
    items = array.items if array is not None else None
    if items is None or not 0 <= at < len(items) or not all(word.single for word in items[:at]):
        return None
    return items[at] if items[at].many != "split" else None


def _is_list(part: Node) -> bool:
    """Whether an expansion yields several words even in quotes: `"$@"`, `"${list[@]}"`."""
    index = [each.get("Value") for each in child(part, "Index").get("Parts", ())]
    return not part.get("Length") and (index == ["@"] or part["Param"]["Value"] == "@")


def _modified(part: Node, by_index: bool = True) -> bool:
    changed = any(part.get(key) for key in ("Length", "Exp", "Repl", "Slice", "Names", "Modifiers"))
    return changed or (by_index and part.get("Index") is not None)


def _bare(text: str) -> Iterator[Atom]:
    if "\\" not in text:
        yield from text
        return
    escaped = False
    for character in text:
        if escaped:
            yield Piece(character)
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            yield character
    if escaped:  # a trailing backslash is literal
        yield Piece("\\")


def _globs(atoms: list[Atom]) -> bool:
    if "*" in atoms or "?" in atoms:
        return True
    return "[" in atoms and "]" in atoms[atoms.index("[") + 1 :]


# A token (`\0`) in a range of revisions: `main..\0~1`.
_NAME = r"[A-Za-z_][\w-]*(?:[/.][A-Za-z_0-9][\w-]*)*(?:[~^]\d*)*"
_AROUND = lazy_pattern(rf"(?:{_NAME}\.{{2,3}})?\0(?:[~^]\d*)*(?:\^!|\.{{2,3}}(?:{_NAME}|\0)?)?")


def _token_of(atoms: list[Atom]) -> Token:
    """Return the kind of a word made of tokens and the syntax of a revision range."""
    tokens = {atom.token for atom in atoms if isinstance(atom, Piece) and atom.kind == "opaque"}
    text = "".join(atom if isinstance(atom, str) else "\0" if atom.kind == "opaque" else atom.text for atom in atoms)
    if "" in tokens or not _AROUND.fullmatch(text):
        return ""
    return "date" if text == "\0" and tokens == {"date"} else "revision"


def _many(atoms: list[Atom]) -> Many:
    return "split" if any(isinstance(atom, Piece) and atom.many for atom in atoms) else ""


def _certain(atoms: list[Atom]) -> str:
    """Return the text up to the first uncertain part."""
    fixed: list[str] = []
    for atom in atoms:
        if isinstance(atom, Piece):
            if atom.kind != "literal":
                break
            fixed.append(atom.text)
        elif atom in "*?[":
            break
        else:
            fixed.append(atom)
    return "".join(fixed)


# -- brace expansion over words whose pieces may be quoted -------------------------------------------------------------

# A word is a list of atoms: a one-character string is unquoted, a `Piece` is not expanded. `None` means that the word
# is too odd (unbalanced braces, too many results) to rely on a reading of it.
_MAX_BRACE_WORDS = 256
_MAX_BRACE_PAIRS = 64

_RANGE = lazy_pattern(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")


def _expand_braces(atoms: list[Atom]) -> list[list[Atom]] | None:
    """Return the words that a word expands to, in order."""
    opened = _find_atom(atoms, "{", 0)
    if opened is None:
        return [list(atoms)]
    if sum(1 for atom in atoms if atom == "{") > _MAX_BRACE_PAIRS:
        return None  # recursion takes quadratic time in the pairs
    closed = _closing_brace(atoms, opened)
    if closed is None:
        # Without a closing brace bash keeps the text, unless a later pair expands: too subtle to rely on.
        return None if _find_atom(atoms, ",", opened) is not None or ".." in _unquoted_text(atoms) else [list(atoms)]
    middles = _brace_values(atoms[opened + 1 : closed])
    rests = _expand_braces(atoms[closed + 1 :])
    if middles is None or rests is None or len(middles) * len(rests) > _MAX_BRACE_WORDS:
        return None
    head = list(atoms[:opened])
    return [head + middle + rest for middle in middles for rest in rests]


def _brace_values(inner: list[Atom]) -> list[list[Atom]] | None:
    """Return the alternatives in a pair of braces; a pair without a comma or range is kept as text."""
    parts = _split_at_commas(inner)
    if len(parts) > 1:
        found: list[list[Atom]] = []
        for part in parts:
            words = _expand_braces(part)
            if words is None or len(found) + len(words) > _MAX_BRACE_WORDS:
                return None
            found += words
        return found
    if all(isinstance(atom, str) for atom in inner) and (numbers := _brace_range(_unquoted_text(inner))) is not None:
        return [list(number) for number in numbers] if numbers else None
    inside = _expand_braces(inner)
    return None if inside is None else [["{", *words, "}"] for words in inside]


def _brace_range(text: str) -> list[str] | None:
    """Return the values of the range `1..5` or `a..e..2`; `[]` if it is too long or odd; None if it is no range."""
    hit = _RANGE.fullmatch(text)
    if hit is None:
        return [] if ".." in text else None
    first, last, by = hit.groups()
    if first.isalpha() != last.isalpha() or len(first) > 9 or len(last) > 9:
        return []
    letters = first.isalpha()
    if letters and first.isupper() != last.isupper():
        return []  # the range would include brackets, a backslash and a backquote
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    step = max(abs(int(by or 1)), 1)
    if abs(high - low) // step >= _MAX_BRACE_WORDS:
        return []
    numbers = range(low, high + 1, step) if low <= high else range(low, high - 1, -step)
    if letters:
        return [chr(number) for number in numbers]
    padded = any(re.fullmatch(r"-?0\d+", end) for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number:0{width}d}" if width else str(number) for number in numbers]


def _split_at_commas(inner: list[Atom]) -> list[list[Atom]]:
    parts: list[list[Atom]] = []
    depth = start = 0
    for index, atom in enumerate(inner):
        if atom == "{":
            depth += 1
        elif atom == "}":
            depth -= 1
        elif atom == "," and depth == 0:
            parts.append(inner[start:index])
            start = index + 1
    parts.append(inner[start:])
    return parts


def _closing_brace(atoms: list[Atom], opened: int) -> int | None:
    depth = 0
    for index in range(opened, len(atoms)):
        if atoms[index] == "{":
            depth += 1
        elif atoms[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    return None


def _find_atom(atoms: list[Atom], wanted: str, start: int) -> int | None:
    return next((index for index in range(start, len(atoms)) if atoms[index] == wanted), None)


def _unquoted_text(atoms: list[Atom]) -> str:
    return "".join(atom if isinstance(atom, str) else "\0" for atom in atoms)
