"""What commands with words of their own reach: `dd`, `find`, `sed`, `tar`, `curl`, `git`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from surehand.shell.effects_table import CURL, WGET
from surehand.shell.options import names
from surehand.shell.programs import find_roots
from surehand.shell.touches import REMOTE, Touch, TouchKind, loosely
from surehand.shell.word import Word


def _dd(words: Sequence[Word]) -> Iterator[Touch]:
    for word in words:
        key, _, value = word.text.partition("=")
        if key in ("if", "of"):
            yield Touch("read" if key == "if" else "write", Word(value, word.kind))


def _find(words: Sequence[Word]) -> Iterator[Touch]:
    roots = find_roots(words)
    tested = any(word.text.startswith("-") and word.text not in ("-delete", "-depth", "-print") for word in words)
    deletes = any(word.text == "-delete" for word in words)
    for root in roots:
        yield Touch("read", root, True)
        if deletes:
            yield Touch("write", root, False) if tested else Touch("delete", root, True)
    for option, value in itertools.pairwise(words):
        if option.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            yield Touch("write", value)
        elif option.text in ("-newer", "-samefile", "-files0-from"):
            yield Touch("read", value)


def _sed(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(words, "-nrEsuzi? -e: -f:r -l: --expression: --file:r --in-place? --quiet --silent --line-length:")
    files = parsed.operands if parsed.has("-e", "--expression", "-f", "--file") else parsed.operands[1:]
    for word in [*parsed.read, *files]:
        yield Touch("read", word)
        if parsed.has("-i", "--in-place"):
            yield Touch("write", word)
    scripts = parsed.values("-e", "--expression") or parsed.operands[:1]
    for script in scripts:
        for hit in re.finditer(r"(?:^|[;{\n/$\d!gpI\s])w\s+([^\n;}]+)", script.text):
            yield Touch("write", Word(hit[1].strip(), script.kind))
        for hit in re.finditer(r"(?:^|[;{\n/$\d])[rR]\s+([^\n;}]+)", script.text):
            yield Touch("read", Word(hit[1].strip(), script.kind))


def _sort(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(
        words, "-bdfghiMnRrVcCmsuz -k: -t: -S: -T: -o: --key: --field-separator: --output: --files0-from:r"
    )
    for word in [*parsed.operands, *parsed.read]:
        yield Touch("read", word)
    for word in parsed.values("-o", "--output"):
        yield Touch("write", word)


def _second(line: str) -> Callable[[Sequence[Word]], Iterator[Touch]]:
    """Return the plan of a filter whose second operand is its output."""

    def plan(words: Sequence[Word]) -> Iterator[Touch]:
        operands = loosely(words, line).operands
        for kind, word in zip(("read", "write"), operands, strict=False):
            yield Touch("read" if kind == "read" else "write", word)

    return plan


def _tar(words: Sequence[Word]) -> Iterator[Touch]:
    given = list(words)
    if given and not given[0].text.startswith("-") and given[0].literal:
        given[0] = Word("-" + given[0].text)
    parsed = loosely(
        given,
        "-cxtruAdvzjJaphPkmOSWwlZ -f: -C: -T: -X: -I: -b: -g: -K: -N: -V: --file: --directory: --files-from: "
        "--exclude-from: --exclude: --strip-components: --transform: --checkpoint? --checkpoint-action? --create "
        "--extract --get --list --to-command: --use-compress-program: --index-file:",
    )
    target = next(iter(parsed.values("-C", "--directory")), None)
    archive = parsed.values("-f", "--file")
    if parsed.has("-x", "--extract", "--get"):
        yield Touch("write", target or Word("."))
    creates = parsed.has("-c", "-r", "-u", "-A", "--create")
    for word in archive:
        if word.text != "-":
            yield Touch("write" if creates else "read", word)
    for word in parsed.operands if creates else ():
        path = word if target is None or word.text.startswith("/") else Word(target.text + "/" + word.text, word.kind)
        yield Touch("read", path, True)
    for word in parsed.values("--index-file"):
        yield Touch("write", word)


_LOCAL_URL = re.compile(r"file:(?://[^/]*)?/", re.IGNORECASE)


def _curl(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(words, CURL)
    for word in [*parsed.operands, *parsed.values("--url")]:
        if local := _LOCAL_URL.match(word.text):
            from urllib.parse import unquote

            yield Touch("read", Word(unquote(word.text[local.end() - 1 :]), word.kind))
            continue
        yield Touch("connect", word)
        if parsed.has("-O", "--remote-name", "-J"):
            yield Touch("write", Word(re.split(r"[?#]", word.text)[0].rpartition("/")[2] or ".", word.kind))
    for word in parsed.values(
        "-o", "--output", "-c", "--cookie-jar", "-D", "--dump-header", "--trace", "--trace-ascii"
    ):
        if word.text != "-":
            yield Touch("write", word)
    for word in parsed.values("-T", "--upload-file", "-K", "--config", "--netrc-file", "--key", "--cacert"):
        if word.text != "-":
            yield Touch("read", word)
    sent = ("-d", "--data", "--data-ascii", "--data-binary", "--data-urlencode", "--json", "-F", "--form", "-H", "-b")
    for word in parsed.values(*sent):
        hit = re.match(r"(?:[^=@]*=)?[@<]([^;]+)", word.text)
        if hit and hit[1] != "-":
            yield Touch("read", Word(hit[1], word.kind))
    for word in parsed.values("-x", "--proxy", "--preproxy", "--socks5", "--doh-url"):
        yield Touch("connect", word)


def _wget(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(words, WGET)
    out = parsed.values("-O", "--output-document")
    folder = next(iter(parsed.values("-P", "--directory-prefix")), None)
    for word in parsed.operands:
        yield Touch("connect", word)
        if not out:
            yield Touch(
                "write", folder or Word(re.split(r"[?#]", word.text)[0].rpartition("/")[2] or "index.html", word.kind)
            )
    for word in [*out, *parsed.values("-o", "-a", "--output-file", "--save-cookies")]:
        if word.text != "-":
            yield Touch("write", word)
    for word in parsed.values("--post-file", "--body-file", "-i", "--input-file", "--load-cookies"):
        yield Touch("read", word)


_GIT_PATHS: dict[str, TouchKind] = {"rm": "delete", "mv": "write", "restore": "write", "clean": "delete", "add": "read"}
_GIT_REMOTE = names("clone push pull fetch ls-remote remote submodule")


def _git(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(
        words, "-C: -c: --git-dir:r --work-tree: -m: --message: -o: --output: --output-directory: -F:r --file:r"
    )
    for word in [*parsed.read, *parsed.values("-C")]:
        yield Touch("read", word)
    for word in [*parsed.values("-o", "--output", "--output-directory")]:
        yield Touch("write", word)
    if not parsed.operands:
        return
    name, rest = parsed.operands[0].text, parsed.operands[1:]
    if name in _GIT_PATHS:
        for word in rest:
            yield Touch(_GIT_PATHS[name], word, parsed.has("-r") or name == "clean")
    if name == "checkout" and (marks := [at for at, word in enumerate(words) if word.text == "--"]):
        for word in words[marks[0] + 1 :]:
            yield Touch("write", word)
    for word in rest if name in _GIT_REMOTE else ():
        if "://" in word.text or REMOTE.fullmatch(word.text):
            yield Touch("connect", word)
    if name == "clone" and len(rest) > 1:
        yield Touch("write", rest[1])


def _tests(words: Sequence[Word]) -> Iterator[Touch]:
    return iter(())


SPECIAL: dict[str, Callable[[Sequence[Word]], Iterator[Touch]]] = {
    "dd": _dd,
    "find": _find,
    "gfind": _find,
    "sed": _sed,
    "gsed": _sed,
    "sort": _sort,
    "uniq": _second("-cdDiuz -f: -s: -w: --skip-fields: --skip-chars: --check-chars:"),
    "xxd": _second("-abeEipurC -c: -g: -l: -n: -o: -s: -R:"),
    "tar": _tar,
    "gtar": _tar,
    "bsdtar": _tar,
    "curl": _curl,
    "wget": _wget,
    "git": _git,
    "test": _tests,
    "[": _tests,
}
