"""Programs for archives and compressed files, which list and print, pack and unpack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.programs.record import Call, Form, Program, by_words, listing
from surehand.shell.touches import Operands, Touch, loosely
from surehand.shell.verdict import Verdict, judge_words
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, scripts, value_of

_ZCAT = "-f -q -v --force --quiet --verbose @read"
_TAR_LIST = lazy_pattern(r"-?[tvzjJa]*t[tvzjJa]*f?")


def _judge_tar(words: Sequence[Word]) -> Verdict:
    if not words or any(word.kind == "opaque" for word in words):
        return Verdict("`tar` is not known to be read-only")
    first = words[0].text
    rest = list(words[1:])
    if first == "--list":
        first = "-t"
    if not _TAR_LIST.fullmatch(first):
        return _judge_extraction(words)
    if not first.endswith("f") and rest and rest[0].text in ("-f", "--file"):
        rest = rest[1:]
    elif rest and rest[0].literal and rest[0].text.startswith("--file="):
        rest[0] = Word(rest[0].text.partition("=")[2])
    if any(word.may_be_flag for word in rest if word.text != "--wildcards"):
        return Verdict("`tar` with these options is not known to be read-only")
    if rest and ":" in rest[0].text:
        return Verdict("`tar` takes a name with a colon for one on another host")
    return Verdict(reads=tuple(rest[:1]))


_TAR_PRINT = options.flags(
    "-xOvzjJa -f: --extract --get --to-stdout --file: --gzip --bzip2 --xz --zstd --verbose @text"
)
# Members by what they are called, and no pattern: a folder stands for all that is in it, whatever that is called.
_TAR_MEMBER = lazy_pattern(r"(?:[\w@+-][\w.@+-]*/|\./)*(?:[\w@+-]+\.(?!d\Z)[\w.+-]+|[A-Z][A-Za-z-]+)")


def _judge_extraction(words: Sequence[Word]) -> Verdict:
    """Judge `tar -xOf ARCHIVE FILE...`, which prints files of an archive. Those with names of secrets are none."""
    given = list(words)
    if re.fullmatch("[xOvzjJa]+f", given[0].text):
        given[0] = Word("-" + given[0].text)
    parsed = options.parse(given, _TAR_PRINT)
    extracts, prints = parsed.has("-x", "--extract", "--get"), parsed.has("-O", "--to-stdout")
    if parsed.unknown or not extracts or not prints or not all(word.literal for word in words):
        return Verdict("`tar` that neither lists nor prints is no read")
    archives = parsed.values("-f", "--file")
    if len(archives) != 1 or ":" in archives[0].text:
        return Verdict("`tar` takes a name with a colon for one on another host")
    if not parsed.operands or not all(_TAR_MEMBER.fullmatch(word.text) for word in parsed.operands):
        return Verdict("`tar` may print files whose names are not known")
    return Verdict(reads=(*(word for word in archives if word.text != "-"), *parsed.operands))


_unzip_listing = listing("-l -Z -v -t -p", "-lZvtpqC12 @read")


def _judge_unzip(call: Call) -> Verdict:
    """Judge `unzip -l ARCHIVE`, and `unzip -p ARCHIVE FILE...`: other than with `tar`, a folder stands for nothing."""
    if any(word.text == "--" for word in call.words):
        return Verdict("`unzip --` takes back the option that follows")
    verdict = _unzip_listing(call)
    prints = any(re.match(r"-\w*p", word.text) for word in call.words)
    named = [word.literal and not re.search(r"[*?[\\]", word.text) for word in verdict.reads[1:]]
    if prints and not verdict.problem and not (named and all(named)):
        return Verdict("`unzip` may print files whose names are not known")
    return verdict


_STREAMED = options.flags("-ltcdvqkf --list --test --stdout --decompress --verbose --quiet --keep @read")


def _judge_compressor(call: Call) -> Verdict:
    """Judge a program that lists and tests too; where two modes are given, the last one counts."""
    parsed = options.parse(call.words, _STREAMED)
    prints = parsed.has("-c", "--stdout")
    looks = parsed.has("-l", "-t", "--list", "--test") and not parsed.has("-d", "--decompress")
    if not prints and not looks:
        return Verdict(f"`{call.name}` writes a file beside the one it reads")
    return judge_words(call.name, call.words, _STREAMED)


def _tar_touches(words: Sequence[Word]) -> Iterator[Touch]:
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


def _tar_starts(words: Sequence[Word]) -> Iterator[Started]:
    yield from scripts(
        "--to-command", "--use-compress-program", "-I", "--rmt-command", "--rsh-command", "--info-script"
    )(words)
    for index, word in enumerate(words):
        if word.text.startswith("--checkpoint-action"):
            value = value_of(word) if "=" in word.text else (words[index + 1] if index + 1 < len(words) else Word(""))
            if value.text.startswith("exec="):
                yield Started(script=Word(value.text[5:], value.kind))


PROGRAMS: tuple[Program, ...] = (
    Program("tar", heeds="own",
            version="--version --help", check=by_words(_judge_tar), touches=_tar_touches, starts=_tar_starts,
            runs=("tar tf a.tar", "tar -tf a.tar", "tar -xzOf x.tgz package/package.json"),
            asks=("tar xzf x.tgz", "tar -xOf x.tar", "tar -xOf x.tar src", "tar -xOf x.tar --to-command=./x a.txt")),
    Program("gtar", check=by_words(_judge_tar), touches=_tar_touches, starts=_tar_starts, runs=("gtar tf x.tar.gz",),
            asks=("gtar xf x.tar.gz",)),
    Program("bsdtar", touches=_tar_touches, starts=_tar_starts, asks=("bsdtar -xf x.tar",)),
    Program("gzip", version="--version --help -V", check=_judge_compressor,
            touches=Operands("compress", "-cdfhklnNqrtvV123456789 -S:"), runs=("gzip -l a.gz", "gzip -l x.gz"),
            asks=("gzip -k f",)),
    Program("gunzip", check=_judge_compressor, touches=Operands("compress", "-cfklnNqrtv -S:"),
            runs=("gunzip -c a.gz",), asks=("gunzip -k a.gz",)),
    Program("bzip2", version="--version --help", check=_judge_compressor,
            touches=Operands("compress", "-cdfkqstvz123456789"), runs=("bzip2 -t a.bz2",), asks=("bzip2 -dk a.bz2",)),
    Program("bunzip2", check=_judge_compressor, touches=Operands("compress", "-cfkqstv"), runs=("bunzip2 -c a.bz2",),
            asks=("bunzip2 a.bz2",)),
    Program("xz", version="--version --help -V", check=_judge_compressor,
            touches=Operands("compress", "-cdfklqtvz0123456789eT: -S:"), runs=("xz -l a.xz", "xz --version"),
            asks=("xz -d a.xz",)),
    Program("unxz", check=_judge_compressor, touches=Operands("compress", "-cfkqtv"), runs=("unxz -c a.xz",),
            asks=("unxz a.txt",)),
    Program("zstd", version="--version --help -V", check=_judge_compressor,
            touches=Operands("compress", "-cdfklqrtv0123456789 -o:"), runs=("zstd -l a.zst", "zstd --version"),
            asks=("zstd -d f",)),
    Program("zip", version="--version --help", touches=Operands("archive", "-rqujmy9 -x: -i: -P: -t:"),
            runs=("zip --version",), asks=("zip -r x.zip src",)),
    Program("unzip", version="--version --help", check=_judge_unzip,
            touches=Operands("extract", "-anoqjvltpZ -d: -x: -P:"), runs=("unzip -l a.zip", "unzip -p x.zip src/a.py"),
            asks=("unzip x.zip -d out", "unzip -p x.zip", "unzip -p x.zip '*'", "unzip -l -- -l x.zip")),
    Program("zipinfo", kind="list", reads="-12smlvhMtTzC @read", runs=("zipinfo -1 a.zip", "zipinfo -1 x.zip"),
            asks=("zipinfo -x a.zip",)),
    Program("7z", forms=(Form("l", "-slt -ba @one", operand=r"[\w./+ -]+", whole=True),), touches=Operands("read"),
            runs=("7z l a.7z", "7z l a.zip"), asks=("7z l -si",)),
    Program("jar", forms=tuple(Form(words, "@read", operand=r"[\w./+-]+") for words in ("tf", "tvf", "-tf", "-tvf")),
            runs=("jar tf app.jar",), asks=("jar tf @args",)),
    Program("zcat", aliases=("gzcat", "bzcat", "xzcat", "zstdcat"), kind="read", reads=_ZCAT,
            runs=("zcat a.gz", "zcat a.txt"), asks=("zcat --output=out a.txt",)),
)  # fmt: skip
