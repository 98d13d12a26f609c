"""Tool names: which are valid, their full form, and the one-to-one mapping to names a provider accepts.

Providers accept `[a-zA-Z0-9_-]{1,64}`; a dotted, spaced or long name would make them refuse the whole tool list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from surehand.core.text import lazy_pattern

PROVIDER_NAME_LIMIT: Final = 64
_SAFE: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_UNSAFE_CHARACTER: Final = lazy_pattern(r"[^A-Za-z0-9_-]")
# Any printable name without blanks at its ends or control characters: foreign servers use spaces, slashes and emoji.
_CONTROL: Final = lazy_pattern(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
NAME_LIMIT: Final = 256


def name_problems(name: object) -> list[str]:
    """Return every reason why `name` cannot name a tool, or an empty list."""
    if not isinstance(name, str):
        return [f"name must be a string, not {type(name).__name__}"]
    if name.isidentifier() and name.isascii() and len(name) <= NAME_LIMIT:  # a fast path: most names
        return []
    problems: list[str] = []
    if not name:
        problems.append("name is empty")
    elif name != name.strip():
        problems.append(f"name {name!r} begins or ends with a blank")
    if len(name) > NAME_LIMIT:
        problems.append(f"name has {len(name)} characters; at most {NAME_LIMIT}")
    if not (name.isascii() and name.isprintable()) and _CONTROL.search(name):
        problems.append(f"name {name!r} contains a control or invisible character")
    return problems


def full_name(module: str, tool: str) -> str:
    """Return `mcp__{module}__{tool}`, the full form of a custom or remote tool's name."""
    return f"mcp__{module}__{tool}"


def split_full_name(name: str) -> tuple[str, str] | None:
    """Return (server, tool) of a name in full form, or None for any other name."""
    if not name.startswith("mcp__"):
        return None
    server, separator, tool = name[5:].partition("__")
    return (server, tool) if server and separator and tool else None


def provider_safe(name: str) -> str:
    """Return a name every provider accepts; `name` itself if it is one.

    A changed name ends in a hash of the original: different names stay different (`a.b` and `a_b`), and the result
    does not depend on the rest of the list.
    """
    if _SAFE.fullmatch(name):
        return name
    import hashlib

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return _UNSAFE_CHARACTER.sub("_", name)[: PROVIDER_NAME_LIMIT - 9] + "_" + digest


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Map real names to names every provider accepts, with a hash only where two would collide.

    Both of two colliding names are hashed, so that neither can come to mean the other tool.
    """
    plain = {name: _UNSAFE_CHARACTER.sub("_", name)[:PROVIDER_NAME_LIMIT] for name in names}
    counts = Counter(plain.values())
    return {
        name: name if name == short else short if counts[short] == 1 else provider_safe(name)
        for name, short in plain.items()
    }


def meant_by(name: str, names: Iterable[str]) -> str | None:
    """Return the tool a model means by `time_now` (`time.now`); None unless exactly one fits."""
    if "_" not in name:
        return None
    found = [each for each in names if each != name and _UNSAFE_CHARACTER.sub("_", each) == name]
    return found[0] if len(found) == 1 else None


def provider_map(names: Iterable[str]) -> Mapping[str, str]:
    """Map the safe names of a tool list back to the real ones."""
    return {provider_safe(name): name for name in names}


def find_near(word: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return up to three of `known` that were probably meant: letters swapped (`Raed`), mistyped or missing."""
    from difflib import get_close_matches

    wanted, folded = word.lower(), {each.lower(): each for each in known}
    near = get_close_matches(wanted, folded, n=3, cutoff=cutoff)
    near.sort(key=lambda each: not _is_one_slip(each, wanted))
    near += [each for each in folded if len(wanted) > 2 and each.startswith(wanted) and each not in near]
    return [folded[each] for each in near[:3]]


def _is_one_slip(known: str, word: str) -> bool:
    """True if `word` has the letters of `known` in another order, or one letter mistyped: the likeliest errors."""
    swapped = sorted(known) == sorted(word)
    return swapped or (len(known) == len(word) and sum(map(str.__ne__, known, word)) == 1)


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the one of `known` that was probably meant, or None."""
    return next(iter(find_near(word, known, cutoff)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for a near name, or nothing."""
    near = nearest(word, known)
    return f" (did you mean {near!r}?)" if near else ""
