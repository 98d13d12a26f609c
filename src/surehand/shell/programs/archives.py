"""Programs for archives and other binary files: list, print, pack, unpack, dump, checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict, judge_words
from surehand.shell.programs.record import Call, Form, Program, by_words, double_dashes, listing, own_options, refusing
from surehand.shell.touches import Operands, Touch, parse_leniently
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
# Plain file names; the name of a directory would print all members below it, secrets too.
_TAR_MEMBER = lazy_pattern(r"(?:[\w@+-][\w.@+-]*/|\./)*(?:[\w@+-]+\.(?!d\Z)[\w.+-]+|[A-Z][A-Za-z-]+)")


def _judge_extraction(words: Sequence[Word]) -> Verdict:
    """Judge `tar -xOf ARCHIVE FILE...`, which prints files of an archive; their names count as reads."""
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
    """Judge `unzip -l ARCHIVE` and `unzip -p ARCHIVE FILE...`; unlike in `tar`, a directory prints nothing."""
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
    """Judge a compressor, which writes except with `-l`, `-t` and `-c`. Of two modes the last one counts."""
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
    parsed = parse_leniently(
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


_CHECKSUM = (
    "-b -c -t -z -w --binary --check --tag --text --zero --ignore-missing --quiet --status --strict --warn * @read"
)

# An argument `@file` is replaced by options from that file, which may load plug-ins.
_OPTIONS_FROM_FILES = refusing(r"\A@", "`{name} @file` takes its options from a file")
_XXD_NAMES = {"-ps": "-p", "-plain": "-p", "-postscript": "-p", "-include": "-i", "-bits": "-b", "-autoskip": "-a"}
_xxd_options = own_options(r"-|-[abeEipuC]|-[cglnosR](?:[0-9x+-].*)?")


def _judge_xxd(call: Call) -> Verdict:
    words = [Word(_XXD_NAMES.get(word.text, word.text)) if word.literal else word for word in call.words]
    return _xxd_options(Call(call.program, call.name, words))


_EXIFTOOL = Form("", "-j -json -s -G -a -g -n -u @read", whole=True)
_FILE_OR_OPTION = lazy_pattern(r"-[a-zA-Z]+|[^|]*\.[A-Za-z0-9]{1,5}")


def _judge_exiftool(call: Call) -> Verdict:
    """Judge `exiftool FILE.png`, which runs a file name that ends in `|` as a command, also one in a directory."""
    if not all(_FILE_OR_OPTION.fullmatch(word.text) for word in call.words):
        return Verdict("`exiftool` runs what has a name that ends in `|`")
    return _EXIFTOOL.judge(call.name, call.words)


_PDFTOTEXT = options.flags("--layout --raw --nopgbrk --q --f: --l: --enc: --table --simple @text")


def _judge_pdftotext(words: Sequence[Word]) -> Verdict:
    """Judge `pdftotext FILE -`; without the dash it writes a file beside the one it reads."""
    parsed = options.parse(list(double_dashes(words)), _PDFTOTEXT)
    if parsed.unknown or len(parsed.operands) != 2 or parsed.operands[1].text != "-":
        return Verdict("`pdftotext` that does not print is no read")
    if ":" in parsed.operands[0].text:
        return Verdict("`pdftotext` takes a name with a colon for an address")
    return judge_words("pdftotext", parsed.operands[:1], options.flags("@read"))


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
    Program("od", heeds="own", kind="read",
            reads="-A: -j: -N: -S: -t: -v -w? -abcdfilosx --address-radix: --skip-bytes: --read-bytes: --strings? "
            "--format: --output-duplicates --width? --endian: * @read", runs=("od -c a.txt", "od -An -tx1 f"),
            asks=("od --output=out a.txt",)),
    Program("hexdump", heeds="own", kind="read",
            reads="-bcCdoxv -n: -s: -e: -f:r --canonical --length: --skip: --no-squeezing * @read",
            runs=("hexdump -n 16 -C README.md", "hexdump a.txt"), asks=("hexdump --output=out a.txt",)),
    Program("hd", kind="read", reads="-bcCdoxv -n: -s: * @read", runs=("hd a.txt",), asks=("hd --output=out a.txt",)),
    Program("xxd", heeds="own", kind="read", reads="-abeEipuC -c: -g: -l: -n: -o: -s: -R: @one", check=_judge_xxd,
            touches=Operands("through", "-abeEipurC -c: -g: -l: -n: -o: -s: -R:"), runs=("xxd -p f", "xxd -ps f"),
            asks=("xxd a b",)),
    Program("hexyl", forms=(Form("", "-n: -s: -c: --length: --skip: --bytes: --color: --border: @one"),),
            runs=("hexyl a.bin", "hexyl a.txt"), asks=("hexyl *.txt",)),
    Program("strings", heeds="own", kind="read",
            reads="-afow -n: -t: -e: -d -# --all --bytes: --radix: --encoding: --print-file-name * @read",
            check=_OPTIONS_FROM_FILES, runs=("strings a.out", "strings README.md"),
            asks=("strings --target=x README.md",)),
    Program("base64", aliases=("base32",), kind="read", reads="-di -w: --decode --ignore-garbage --wrap: * @read",
            runs=("base64 -d f", "base64 -d a.b64"), asks=("base64 -o out README.md",)),
    Program("md5sum", heeds="own", aliases=("sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum"), kind="read",
            reads=_CHECKSUM, opens_list=("-c", "--check"), runs=("md5sum f", "md5sum a.txt"),
            asks=("md5sum --output=out a.txt",)),
    Program("b2sum", kind="read", reads=_CHECKSUM + " -l: --length:", opens_list=("-c", "--check"),
            runs=("b2sum README.md", "b2sum a.txt"), asks=("b2sum --output=out a.txt",)),
    Program("cksum", heeds="own", kind="read", reads=_CHECKSUM + " -a: --algorithm: --untagged --raw --base64",
            opens_list=("-c", "--check"), runs=("cksum README.md", "cksum a.txt"), asks=("cksum --output=out a.txt",)),
    Program("shasum", kind="read",
            reads="-a: -b -c -t -q -s -w -0 -U --algorithm: --binary --check --tag --text --status --quiet --strict "
            "--warn --ignore-missing --UNIVERSAL --01 * @read", opens_list=("-c", "--check"),
            runs=("shasum -a 256 README.md", "shasum a.txt"), asks=("shasum --output=out a.txt",)),
    Program("md5", kind="read", reads="-q -r -s: * @read", runs=("md5 a.txt",), asks=("md5 --output=out a.txt",)),
    Program("sum", kind="read", reads="-rs --sysv * @read", runs=("sum a.txt",), asks=("sum --output=out a.txt",)),
    Program("file", heeds="own", kind="read",
            reads="-bihkLNpPrsv0dE -F: -e: -P: --brief --mime --mime-type --mime-encoding --dereference "
            "--no-dereference --keep-going --no-pad --raw --extension --apple --separator: --exclude: --print0 "
            "--special-files --uncompress-noreport @read", runs=("file -i f", "file -L README.md"),
            asks=("file -S f",)),
    Program("nm", kind="read",
            reads="-aAgDnpPruSsCl --demangle? --dynamic --extern-only --undefined-only --defined-only "
            "--numeric-sort @read", check=_OPTIONS_FROM_FILES, runs=("nm -C a.o", "nm -l a.o"), asks=("nm -l @x",)),
    Program("size", kind="read", reads="-ABdox --format: --totals @read", check=_OPTIONS_FROM_FILES,
            runs=("size a.o", "size a.out"), asks=("size @f",)),
    Program("readelf", kind="read",
            reads="-ahlSgtesnrudVAIWDpx --all --file-header --program-headers --section-headers --symbols --dynamic "
            "--notes --wide -p: -x: @read", check=_OPTIONS_FROM_FILES, runs=("readelf -d a.o", "readelf -h a.o"),
            asks=("readelf @f",)),
    Program("objdump", kind="read",
            reads="-afhxtTrRspdDlwC -M: -j: -m: --disassemble? --all-headers --section-headers --syms @read",
            check=_OPTIONS_FROM_FILES, runs=("objdump -d a.out", "objdump -h a.out"), asks=("objdump -S a.out",)),
    Program("ar", forms=(Form("t", "@one", operand=r"[\w./+-]+"), Form("tv", "@one", operand=r"[\w./+-]+")),
            runs=("ar t x.a", "ar t lib.a"), asks=("ar x a.a",)),
    Program("c++filt", forms=(Form("", "-n -p -t -i -r --no-params --types @text", operand=r"[\w.$]+"),),
            runs=("c++filt _Z1fv", "c++filt a.txt"), asks=("c++filt @file",)),
    Program("exiftool", check=_judge_exiftool, version="",
            runs=("exiftool a.png", "exiftool -j img/*.jpg"),
            asks=("exiftool -@ x", "exiftool 'touch x |'", "exiftool img")),
    Program("pdfinfo", forms=(Form("", "-f: -l: -box -meta -rawdates -dests -struct -url @one", whole=True,
                                   operand="[^:]+"),),
            runs=("pdfinfo a.pdf", "pdfinfo a.txt"), asks=("pdfinfo -listenc x", "pdfinfo http://host.test/a.pdf")),
    Program("pdftotext", check=by_words(_judge_pdftotext), runs=("pdftotext a.pdf -", "pdftotext -layout x.pdf -"),
            asks=("pdftotext - out", "pdftotext http://host.test/a.pdf -")),
)  # fmt: skip
