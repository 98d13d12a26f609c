"""Programs that change files, folders and devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell.options import Verdict
from surehand.shell.programs.record import Form, Program, by_words
from surehand.shell.touches import Operands, Touch
from surehand.shell.word import Word
from surehand.shell.wrappers import scripts

_STREAM = lazy_pattern(r"/dev/(?:null|stdout|stderr)")


def _judge_tee(words: Sequence[Word]) -> Verdict:
    """Judge `tee`, which writes no file if it is given only standard streams."""
    if words and all(word.literal and _STREAM.fullmatch(word.text) for word in words):
        return Verdict()
    return Verdict("`tee` writes the files it is given")


_DD_READS = lazy_pattern(r"(?:if=.+|(?:i?bs|count|skip|iseek)=\w+|status=\w+|iflag=[\w,]+)", re.ASCII)


def _judge_dd(words: Sequence[Word]) -> Verdict:
    """Judge `dd`, which without `of=` prints what it reads."""
    if not words or not all(word.literal and _DD_READS.fullmatch(word.text) for word in words):
        return Verdict("`dd` writes the file it is given")
    return Verdict(reads=tuple(Word(word.text[3:]) for word in words if word.text.startswith("if=")))


def _dd_touches(words: Sequence[Word]) -> Iterator[Touch]:
    for word in words:
        key, _, value = word.text.partition("=")
        if key in ("if", "of"):
            yield Touch("read" if key == "if" else "write", Word(value, word.kind))


PROGRAMS: tuple[Program, ...] = (
    Program("rm", heeds="own", kind="silent", version="--version --help",
            touches=Operands("delete", "-rRfidvI --recursive --force --dir --verbose --interactive? "
            "--one-file-system --preserve-root?"), run_by_others=True, runs=("rm --help", "rm --version"),
            asks=("rm -f *.tmp",)),
    Program("unlink", kind="silent", touches=Operands("delete"), run_by_others=True, asks=("unlink a",)),
    Program("rmdir", kind="silent", version="--version --help",
            touches=Operands("delete", "-pv --parents --verbose --ignore-fail-on-non-empty"), run_by_others=True,
            runs=("rmdir --version",), asks=("rmdir src",)),
    Program("shred", touches=Operands("delete", "-fuvxz -n: -s: --iterations: --size: --random-source:"),
            run_by_others=True, asks=("shred a",)),
    Program("srm", touches=Operands("delete", "-rfvz"), asks=("srm a",)),
    Program("trash", touches=Operands("delete"), asks=("trash a.txt",)),
    Program("mv", heeds="own", kind="silent", version="--version --help",
            touches=Operands("move", "-bfinuvTZ -t: -S: --target-directory: --suffix: --backup?"),
            run_by_others=True, runs=("mv --version",), asks=("mv *.md docs/",)),
    Program("cp", heeds="own", kind="silent", version="--version --help",
            touches=Operands("copy", "-abdfilLnPprRsuvxTZH -t: -S: --target-directory: --suffix: --backup? "
            "--preserve? --sparse:"), run_by_others=True, runs=("cp --help", "cp --version"),
            asks=("cp README.md docs/",)),
    Program("install", kind="silent", version="--version --help",
            touches=Operands("copy", "-bcCDdpsTvZ -g: -m: -o: -S: -t: --group: --mode: --owner: --target-directory: "
            "--suffix:"), run_by_others=True, runs=("install --version",), asks=("install a b",)),
    Program("ln", heeds="own", kind="silent", version="--version --help",
            touches=Operands("link", "-bdfFiLnPrsTv -t: -S: --target-directory: --suffix:"), run_by_others=True,
            runs=("ln --version",), asks=("ln -sf ../x y",)),
    Program("touch", heeds="own", kind="silent", version="--version --help",
            touches=Operands("write", "-acfhm -d: -r: -t: --date: --reference: --time:"), run_by_others=True,
            runs=("touch --version",), asks=("touch a.txt b.txt",)),
    Program("mkdir", heeds="own", kind="silent", version="--version --help",
            touches=Operands("write", "-pvZ -m: --mode: --parents"), run_by_others=True, runs=("mkdir --version",),
            asks=("mkdir -p a/b",)),
    Program("mkfifo", kind="silent", touches=Operands("write", "-m: --mode:"), asks=("mkfifo p",)),
    Program("mknod", touches=Operands("first", "-m: --mode:"), asks=("mknod p p",)),
    Program("mktemp", kind="silent", version="--version --help", runs=("mktemp --version",), asks=("mktemp -d",)),
    Program("truncate", kind="silent", version="--version --help",
            touches=Operands("write", "-co -r: -s: --reference: --size:"), run_by_others=True,
            runs=("truncate --version",), asks=("truncate -s 0 app.log",)),
    Program("fallocate", touches=Operands("write", "-cdinpxz -l: -o: --length: --offset:"),
            asks=("fallocate -l 1 x",)),
    Program("tee", heeds="own", version="--version --help", check=by_words(_judge_tee),
            touches=Operands("write", "-aip --append --ignore-interrupts --output-error?"), run_by_others=True,
            runs=("tee --version", "tee /dev/null"), asks=("tee -a out",)),
    Program("sponge", touches=Operands("write", "-a"), asks=("sponge a.txt",)),
    Program("chmod", kind="silent", version="--version --help",
            touches=Operands("mode", "-cfvR --reference: --recursive"), run_by_others=True,
            runs=("chmod --help", "chmod --version"), asks=("chmod +x run.sh",)),
    Program("chown", kind="silent", version="--version --help",
            touches=Operands("mode", "-cfvhHLPR --from: --reference: --recursive"), run_by_others=True,
            runs=("chown --version",), asks=("chown -R me src",)),
    Program("chgrp", kind="silent", touches=Operands("mode", "-cfvhHLPR --reference: --recursive"),
            asks=("chgrp x a",)),
    Program("chattr", touches=Operands("mode", "-RVf"), asks=("chattr +i a",)),
    Program("setfacl", touches=Operands("write", "-bkRLPd -m: -x: -M: -X:"), asks=("setfacl -m u:x:r a",)),
    Program("patch", version="--version --help",
            touches=Operands("patch", "-bcefNRstuvZ -B: -d: -D: -F: -g: -i: -o: -p: -r: -V: -Y: -z: --input: "
            "--output: --directory:"), runs=("patch --version",), asks=("patch a.txt",)),
    Program("split", heeds="own", version="--version --help",
            touches=Operands("through", "-dexu -a: -b: -C: -l: -n: -t: --bytes: --lines: --filter:"),
            starts=scripts("--filter"), runs=("split --help", "split --version"),
            asks=("split -l 100 data.csv part_",)),
    Program("csplit", touches=Operands("through", "-ksz -b: -f: -n:"), asks=("csplit f 1",)),
    Program("dd", heeds="own", version="--version --help", check=by_words(_judge_dd), touches=_dd_touches,
            run_by_others=True, runs=("dd --version", "dd if=a.txt bs=1 count=16 status=none"),
            asks=("dd if=a of=b", "dd of=b", "dd if=$X", "dd if=a.txt conv=notrunc of=a.txt")),
    Program("mkfs", touches=Operands("device", "-Vv -t:"), run_by_others=True, asks=("mkfs x",)),
    Program("mke2fs", touches=Operands("device", "-t: -b: -L:"), asks=("mke2fs a.txt",)),
    Program("mkswap", touches=Operands("device", "-L:"), asks=("mkswap a.txt",)),
    Program("wipefs", touches=Operands("device", "-afnq"), asks=("wipefs a.txt",)),
    Program("fdisk", aliases=("sfdisk", "gdisk"), touches=Operands("device", "-l"), asks=("fdisk -l",)),
    Program("sgdisk", touches=Operands("device"), asks=("sgdisk a.txt",)),
    Program("parted", touches=Operands("device", "-ls"), asks=("parted -l",)),
    Program("blkdiscard", touches=Operands("device", "-f"), asks=("blkdiscard a.txt",)),
    Program("cryptsetup", touches=Operands("device"), asks=("cryptsetup a.txt",)),
    Program("badblocks", touches=Operands("device", "-wsv"), asks=("badblocks a.txt",)),
    Program("hdparm", touches=Operands("device"), asks=("hdparm a.txt",)),
    Program("mount", forms=(Form("", "-l @none"),), touches=Operands("write", "-arw -t: -o:"), runs=("mount",),
            asks=("mount x y",)),
    Program("umount", touches=Operands("write", "-afl"), asks=("umount x",)),
)  # fmt: skip
