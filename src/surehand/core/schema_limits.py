"""Limits on the cost of validating against a foreign schema; a small one can be built to run for hours.

Two references to the next level in each `anyOf`, thirty levels deep, are two kilobytes and a billion checks. So the
cost of a schema is estimated at registration, and for the values of a call if the schema is recursive or they are many.
Estimating is cheap: each pair of schema and value is counted once, however often the validator would visit it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from surehand.core.frozen import frozen

NODES_LIMIT: Final = 20_000
"""Objects and lists in one schema."""
DEPTH_LIMIT: Final = 100
"""Levels of nesting, so that a recursive validator does not run out of stack."""
CHECKS_LIMIT: Final = 100_000
"""Checks of one value against a schema with all its references followed; about 10 ms."""
VALUE_CHECKS_LIMIT: Final = 1_000_000
"""Checks of all of a call's values; about 50 ms."""
PATTERNS_LIMIT: Final = 200
"""Different regular expressions in one schema; all are compiled at once."""
PATTERNS_LETTERS: Final = 20_000
"""Total length of the regular expressions."""
PATTERNS_BYTES: Final = 10 << 20
"""Memory for all large expressions together, compiled; about 25 ms. `[\\s\\S]{1,5000}` takes most of it."""
PATTERN_BYTES: Final = 40_000
"""Memory up to which one expression is not large; `[a-z-]{1,255}` takes half of it."""
BACKTRACKS_LIMIT: Final = 10_000
"""Backtracking steps for an expression with look-around, which cannot be matched in one pass; about 0.5 ms."""
FEW_BACKTRACKS: Final = 400
"""The same limit when there are many values: matching an address or a name needs hardly any."""

_LOOKS_AROUND: Final = r"\(\?|\\[\dkgGK]|[*+?}]\+"
"""Look-around groups, back-references and possessive repetitions."""
_LETTERS_A_CHECK: Final = 10
"""Characters matched in the time of one check."""
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_TABLES: Final = ("dependentSchemas", "dependencies")
_INSIDE_SINGLE: Final = (
    "additionalProperties", "propertyNames", "unevaluatedProperties", "items", "additionalItems", "contains",
    "unevaluatedItems",
)  # fmt: skip
_INSIDE_TABLES: Final = ("properties", "patternProperties")
_INSIDE_LISTS: Final = ("prefixItems", "items")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_OF_TEXT: Final = ("pattern", "format", "minLength", "maxLength")
_CHOICES: Final = ("enum", "const", "required", "dependentRequired", "dependencies")


class TooManyChecks(Exception):
    """The schema needs more checks than the limit."""


@frozen
class Survey:
    """The findings of one walk through a schema: whether it is too large, its keywords, references and patterns."""

    fault: str = ""
    words: frozenset[str] = frozenset()
    references: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """The regular expressions, each once."""
    parts: int = 0
    """Objects and lists."""


def survey(schema: Mapping[str, Any]) -> Survey:
    """Walk a whole schema level by level, without recursion: it may be nested arbitrarily deep."""
    nodes, words = 0, set[str]()
    references: dict[str, None] = {}
    patterns: set[str] = set()
    level: list[Any] = [schema]
    for _ in range(DEPTH_LIMIT):
        nodes += len(level)
        if nodes > NODES_LIMIT:
            return Survey(f"schema has more than {NODES_LIMIT:,} parts")
        following: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                table = cast("dict[str, Any]", part)
                words.update(table)
                references |= {table[word]: None for word in _REFERENCES if isinstance(table.get(word), str)}
                if isinstance(pattern := table.get("pattern"), str):
                    patterns.add(pattern)
                if isinstance(named := table.get("patternProperties"), dict):
                    patterns.update(cast("dict[str, Any]", named))
                following += table.values()
            else:
                following += cast("list[Any]", part)
        level = [each for each in following if isinstance(each, dict | list)]
        if not level and (len(patterns) > PATTERNS_LIMIT or sum(map(len, patterns)) > PATTERNS_LETTERS):
            return Survey(
                f"schema has more than {PATTERNS_LIMIT} patterns, or more than {PATTERNS_LETTERS:,} letters in them"
            )
        if not level:
            return Survey("", frozenset(words), tuple(references), tuple(patterns), nodes)
    return Survey(f"schema is nested more than {DEPTH_LIMIT} levels deep")


def limit_faults(schema: Mapping[str, Any], known: Survey | None = None) -> list[str]:
    """Return why a schema is too large or too much work, or an empty list."""
    found = known or survey(schema)
    if found.fault:
        return [found.fault]
    if not found.references:
        return []  # without references each part is visited once, and NODES_LIMIT bounds those
    try:
        checks = SchemaWork(schema).checks()
    except RecursionError:
        return ["schema refers to itself at the same place, so checking a value would never end"]
    if checks > CHECKS_LIMIT:
        return [f"schema takes more than {CHECKS_LIMIT:,} checks for one value; it has too many alternatives in a row"]
    return []


class SchemaWork:
    """Counts the checks one schema takes."""

    def __init__(self, schema: Mapping[str, Any], *, backtracks: int = 1, choices: bool = True) -> None:
        self._root = schema
        self._pattern = backtracks
        self._choices = _CHOICES if choices else ()
        self._known: dict[int, int] = {}
        self._own: dict[int, int] = {}
        self._named: dict[str, list[Any]] | None = None
        self.refers_to_itself = False
        self.multiplies = False
        """Whether the cost of one check grows with the number of others (`unevaluatedProperties`)."""

    def _own_work(self, schema: Mapping[str, Any]) -> int:
        """Count the checks of a schema alone, independent of the value: itself, its `enum` values, required names."""
        known = self._own.get(id(schema))
        if known is None:
            known = 1 + sum(2 * _count_values(schema[word], CHECKS_LIMIT) for word in self._choices if word in schema)
            known += self._pattern * ("pattern" in schema)
            known += self._pattern * len(cast("Any", schema.get("patternProperties") or ()))
            self._own[id(schema)] = known
        return known

    def checks(self) -> int:
        """Return the checks for one value; raise RecursionError if validation would never end.

        The schema of items counts once, since their number is not known yet.
        """
        return self._static(self._root, frozenset(), frozenset())

    def _static(self, schema: Any, here: frozenset[int], above: frozenset[int]) -> int:
        """Count a schema; `here` are the schemas applied to the same value, `above` those of the enclosing values."""
        if not isinstance(schema, dict):
            return 1
        key = id(cast("object", schema))
        if key in here:
            raise RecursionError
        if key in above:
            self.refers_to_itself = True
            return 1
        known = self._known.get(key)
        if known is not None:
            return known
        table = cast("Mapping[str, Any]", schema)
        total = self._own_work(table)
        self.multiplies = self.multiplies or any(word in table for word in _UNEVALUATED)
        for inner in self._same_value(table):
            total += self._static(inner, here | {key}, above)
        for inner in _inside(table):
            total += self._static(inner, frozenset(), above | here | {key})
        self._known[key] = total = min(total, CHECKS_LIMIT + 1)
        return total

    def checks_of(self, value: Any, limit: int) -> int:
        """Return the checks for this value; raise TooManyChecks above the limit."""
        known: dict[tuple[int, int], int] = {}
        steps = 0

        def count(schema: Any, value: Any) -> int:
            nonlocal steps
            if not isinstance(schema, dict):
                return 1
            key = (id(cast("object", schema)), id(value))
            if (found := known.get(key)) is not None:
                return found
            steps += 1
            if steps > limit:
                raise TooManyChecks
            table = cast("Mapping[str, Any]", schema)
            around = sum(count(inner, value) for inner in self._same_value(table))
            total = self._own_work(table) + around + self._work_on(table, value, around)
            total += sum(count(inner, each) for inner, each in _pair_with_schemas(table, value))
            if total > limit:
                raise TooManyChecks
            known[key] = total
            return total

        try:
            return count(self._root, value)
        except RecursionError:
            raise TooManyChecks from None

    def exceeds(self, value: Any, limit: int) -> bool:
        """Whether validating a value takes more checks than the limit."""
        try:
            self.checks_of(value, limit)
        except TooManyChecks:
            return True
        return False

    def _work_on(self, schema: Mapping[str, Any], value: Any, around: int) -> int:
        """Count the checks that grow with the value: characters to match, and members to re-evaluate."""
        if isinstance(value, str):
            return len(value) // _LETTERS_A_CHECK * sum(word in schema for word in _OF_TEXT)
        if not isinstance(value, Mapping | list):
            return 0
        members = cast("Mapping[str, Any] | list[Any]", value)
        work = len(members) * around if any(word in schema for word in _UNEVALUATED) else 0
        if isinstance(members, Mapping) and (patterns := len(cast("Any", schema.get("patternProperties") or ()))):
            work += patterns * sum(self._pattern + len(name) // _LETTERS_A_CHECK for name in members)
        return work

    def _same_value(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the subschemas that apply to the same value."""
        for word in _REFERENCES:
            if isinstance(reference := schema.get(word), str):
                yield from self._resolve(reference)
        for word in _LISTS:
            if isinstance(inner := schema.get(word), list):
                yield from cast("list[Any]", inner)
        for word in _SINGLE:
            if word in schema:
                yield schema[word]
        for word in _TABLES:
            if isinstance(inner := schema.get(word), dict):
                yield from cast("Mapping[str, Any]", inner).values()

    def _resolve(self, reference: str) -> list[Any]:
        """Return the parts of the schema that a reference may resolve to; empty if there are none.

        A part with an `$id` is a scope of its own for names; all candidates of any scope are counted.
        """
        document, _, fragment = reference.partition("#")
        starts = self._by_name(document) if document else [self._root, *self._by_name("")]
        if not fragment:
            return starts if document else starts[:1]
        if not fragment.startswith("/"):
            return self._by_name(f"#{fragment}")
        return [found for start in starts if (found := follow(start, fragment)) is not None]

    def _by_name(self, name: str) -> list[Any]:
        """Return the parts with this name; the empty name stands for all parts with an `$id`."""
        if self._named is None:
            self._named = {}
            for part in _parts(self._root):
                for word, sign in (("$id", ""), ("id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                    if isinstance(given := part.get(word), str):
                        self._named.setdefault(sign + given, []).append(part)
                        if not sign and part is not self._root:
                            self._named.setdefault("", []).append(part)
        return self._named.get(name, [])

    def dangling(self, references: Iterable[str]) -> list[str]:
        """Return the unresolvable references."""
        return [reference for reference in references if not self._resolve(reference)]


def _count_values(value: Any, limit: int) -> int:
    """Count a value with everything inside it, ten characters as one, up to a limit."""
    found, pending = 0, [value]
    while pending and found < limit:
        each = pending.pop()
        found += 1
        if isinstance(each, str):
            found += len(each) // _LETTERS_A_CHECK
        elif isinstance(each, Mapping):
            table = cast("Mapping[str, Any]", each)
            found += sum(len(name) // _LETTERS_A_CHECK for name in table)
            pending += table.values()
        elif isinstance(each, list):
            pending += cast("list[Any]", each)
    return found


def may_exceed(checks: int, value: Any, limit: int) -> bool:
    """Cheap upper bound: True if a value could exceed the limit with a schema of so many checks."""
    return checks * _count_values(value, limit // checks + 1) > limit


def follow(document: Any, pointer: str) -> Any:
    """Resolve a JSON pointer (`/$defs/x`); None if it leads nowhere."""
    target: Any = document
    for part in pointer[1:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping):
            target = cast("Mapping[str, Any]", target).get(part)
        elif isinstance(target, list) and part.isdigit() and int(part) < len(cast("list[Any]", target)):
            target = cast("list[Any]", target)[int(part)]
        else:
            return None
    return target


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a schema (which `survey` has bounded)."""
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield cast("dict[str, Any]", part)
            pending += cast("dict[str, Any]", part).values()
        elif isinstance(part, list):
            pending += cast("list[Any]", part)


def _inside(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that apply to members of the value."""
    for word in _INSIDE_SINGLE:
        if isinstance(inner := schema.get(word), dict):
            yield cast("Any", inner)
    for word in _INSIDE_TABLES:
        if isinstance(inner := schema.get(word), dict):
            yield from cast("Mapping[str, Any]", inner).values()
    for word in _INSIDE_LISTS:
        if isinstance(inner := schema.get(word), list):
            yield from cast("list[Any]", inner)


def _pair_with_schemas(schema: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (subschema, member) for the members of a value, including every pattern and default that might apply."""
    if isinstance(value, Mapping):
        named: Mapping[str, Any] = schema.get("properties") or {}
        patterns: Mapping[str, Any] = schema.get("patternProperties") or {}
        others = [schema[word] for word in ("additionalProperties", "unevaluatedProperties") if word in schema]
        names = schema.get("propertyNames")
        for name, each in cast("Mapping[str, Any]", value).items():
            if names is not None:
                yield names, name
            if name in named:
                yield named[name], each
            for inner in (*patterns.values(), *others):
                yield inner, each
    elif isinstance(value, list):
        members = cast("list[Any]", value)
        for word in ("items", "additionalItems", "contains", "unevaluatedItems"):
            if isinstance(inner := schema.get(word), dict):
                yield from ((cast("Any", inner), each) for each in members)
        for word in _INSIDE_LISTS:
            if isinstance(inner := schema.get(word), list):
                yield from zip(cast("list[Any]", inner), members, strict=False)


def build_validators(schema: Mapping[str, Any], patterns: Sequence[str]) -> tuple[Any, Any]:
    """Return a validator and, if patterns use backtracking, a second one with a low backtracking limit (else None).

    Raises ValueError for an invalid schema, or one that takes too much memory.
    """
    import jsonschema_rs

    def refuse(uri: str) -> Any:
        raise ValueError(f"{uri} is not part of the schema, and schemas are never fetched")

    def build(options: Any) -> Any:
        return jsonschema_rs.validator_for(dict(schema), retriever=refuse, pattern_options=options)

    large = [*filter(_is_large, patterns)]
    try:
        return build(jsonschema_rs.RegexOptions(size_limit=PATTERNS_BYTES // (len(large) or 1))), None
    except ValueError:
        if not large:
            raise
    # The parts of a pattern between look-arounds are compiled separately, and share the memory limit.
    pieces = sum(1 + 2 * len(re.findall(_LOOKS_AROUND, each)) for each in large)
    most = max(PATTERNS_BYTES // pieces, PATTERN_BYTES)
    try:
        full, brief = (
            build(jsonschema_rs.FancyRegexOptions(size_limit=most, backtrack_limit=each))
            for each in (BACKTRACKS_LIMIT, FEW_BACKTRACKS)
        )
    except ValueError as problem:
        raise ValueError(f"a pattern may be too large: {problem}") from None
    return full, brief


def _is_large(pattern: str) -> bool:
    """Whether a pattern takes much memory, or needs backtracking."""
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES)
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return True
    return False
