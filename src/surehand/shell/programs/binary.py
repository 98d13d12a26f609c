"""Programs that look into binary files: dumps, checksums, object files, documents."""

from __future__ import annotations

from collections.abc import Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.programs.record import Call, Form, Program, by_words, double_dashes, own_options, refusing
from surehand.shell.touches import writes_second_operand
from surehand.shell.verdict import Verdict, judge_words
from surehand.shell.word import Word

_CHECKSUM = (
    "-b -c -t -z -w --binary --check --tag --text --zero --ignore-missing --quiet --status --strict --warn * @read"
)

# They take options out of a file named `@file`, among them plug-ins to load.
_OPTIONS_FROM_FILES = refusing(r"\A@", "`{name} @file` takes its options from a file")
_XXD_NAMES = {"-ps": "-p", "-plain": "-p", "-postscript": "-p", "-include": "-i", "-bits": "-b", "-autoskip": "-a"}
_xxd_options = own_options(r"-|-[abeEipuC]|-[cglnosR](?:[0-9x+-].*)?")


def _judge_xxd(call: Call) -> Verdict:
    words = [Word(_XXD_NAMES.get(word.text, word.text)) if word.literal else word for word in call.words]
    return _xxd_options(Call(call.program, call.name, words))


_EXIFTOOL = Form("", "-j -json -s -G -a -g -n -u @read", whole=True)
_FILE_OR_OPTION = lazy_pattern(r"-[a-zA-Z]+|[^|]*\.[A-Za-z0-9]{1,5}")


def _judge_exiftool(call: Call) -> Verdict:
    """Judge `exiftool FILE.png`: what it is given, or finds in a folder, under a name that ends in `|`, it runs."""
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
    Program("od", heeds="own", kind="read",
            reads="-A: -j: -N: -S: -t: -v -w? -abcdfilosx --address-radix: --skip-bytes: --read-bytes: --strings? "
            "--format: --output-duplicates --width? --endian: * @read", runs=("od -c a.txt", "od -An -tx1 f"),
            asks=("od --output=out a.txt",)),
    Program("hexdump", heeds="own", kind="read",
            reads="-bcCdoxv -n: -s: -e: -f:r --canonical --length: --skip: --no-squeezing * @read",
            runs=("hexdump -n 16 -C README.md", "hexdump a.txt"), asks=("hexdump --output=out a.txt",)),
    Program("hd", kind="read", reads="-bcCdoxv -n: -s: * @read", runs=("hd a.txt",), asks=("hd --output=out a.txt",)),
    Program("xxd", heeds="own", kind="read", reads="-abeEipuC -c: -g: -l: -n: -o: -s: -R: @one", check=_judge_xxd,
            touches=writes_second_operand("-abeEipurC -c: -g: -l: -n: -o: -s: -R:"), runs=("xxd -p f", "xxd -ps f"),
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
