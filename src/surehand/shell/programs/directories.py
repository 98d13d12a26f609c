"""Programs that list directories, find files in them, and print metadata: names, sizes, owners."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence

from surehand.shell import options
from surehand.shell.options import Verdict, names
from surehand.shell.programs.record import Call, Form, Program, by_words, own_options, refusing
from surehand.shell.touches import Touch
from surehand.shell.word import Word
from surehand.shell.wrappers import Started

_CLOC = (
    "--by-file --by-file-by-lang --csv --json --yaml --md --quiet --hide-rate --sum-one --skip-uniqueness --no-recurse "
    "--exclude-dir: --exclude-ext: --include-ext: --exclude-lang: --include-lang: --max-file-size: --progress-rate: "
    "--timeout: @walk"
)

_ORDERS = names("-1 -c -r -S -t -u -U -v -X --reverse --sort --time")


def _lists_with_ls(call: Call) -> bool:
    """Return whether `ls` has only globs as operands, and only options that sort or arrange the names."""
    parsed = options.parse(call.words, options.flags(call.program.reads))
    named = bool(parsed.operands) and all(word.kind == "glob" for word in parsed.operands)
    return named and all(name in _ORDERS for name, _ in parsed.options)


_FIND_RUNS = names("-exec -execdir -ok -okdir")
_ALONE = names(
    """-and -a -or -o -not ! ( ) , -true -false -depth -d -mount -xdev -noleaf -daystart -follow -empty -executable
    -readable -writable -nogroup -nouser -print -print0 -ls -prune -quit -nowarn -warn -ignore_readdir_race
    -noignore_readdir_race -help --help -version --version"""
)
_ONE = names(
    """-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype -size -mtime -atime
    -ctime -mmin -amin -cmin -newer -anewer -cnewer -newermt -newerat -newerct -newermm -newerma -newermc -newerBt
    -newerBm -user -group -uid -gid -perm -links -inum -samefile -maxdepth -mindepth -regextype -printf -fstype -used
    -context"""
)

_COMPARES = names("-newer -anewer -cnewer -newermm -newerma -newermc -newerBm -samefile")


def picked_files(words: Sequence[Word]) -> list[Word]:
    """Return patterns of the files that `-name` and the like select directly below the starting points."""
    roots = [root.text.rstrip("/") for root in find_roots(words) if root.literal]
    found: list[Word] = []
    for before, test, value in zip(["", *(word.text for word in words)], words, words[1:], strict=False):
        if not value.literal or before in ("!", "-not"):
            continue
        if test.text in ("-name", "-iname"):
            found += [_pattern(f"{root}/{value.text}") for root in roots]
        elif test.text in ("-path", "-ipath", "-wholename", "-iwholename"):
            found.append(_pattern(value.text))
    return found


def picks_link(words: Sequence[Word]) -> Callable[[str], bool]:
    """Return a test whether `find` may list a link with a given path."""
    texts = [word.text for word in words]
    if joins_tests(words):
        return bool
    tests = list(itertools.pairwise(texts))
    if ("-type", "f") in tests:
        return _no_link
    named = [
        re.compile(fnmatch.translate(value), re.IGNORECASE) for test, value in tests if test in ("-name", "-iname")
    ]
    return lambda path: all(each.match(os.path.basename(path)) for each in named)


def joins_tests(words: Sequence[Word]) -> bool:
    """Return whether `find` may list paths that do not pass all its tests (`-o`, `!`)."""
    return not _JOINS.isdisjoint(word.text for word in words)


def _no_link(path: str) -> bool:
    return False


_JOINS = names("-o -or , ! -not ( -L -H -follow")


def _compared_files(words: Sequence[Word]) -> list[Word]:
    """Return the files that tests such as `-newer` compare with: the result reveals something about them."""
    return [value for test, value in itertools.pairwise(words) if test.text in _COMPARES and value.text[:1] != "-"]


def _pattern(text: str) -> Word:
    magic = any(character in text for character in "*?[")
    return Word(text, "glob", text.partition("*")[0]) if magic else Word(text)


def _problem_of(words: Sequence[Word]) -> str:
    """Return why the words after `find` are not known to only read; `-exec` commands are judged separately."""
    rest = list(words)
    while rest and rest[0].text in ("-H", "-L", "-P"):
        rest = rest[1:]
    start = 0 if rest and rest[0].text[:1] in ("-", "(", "!") else len(find_roots(rest))
    if any(root.may_be_flag for root in rest[:start]):
        return "a starting point of `find` could be an option"
    index = start
    while index < len(rest):
        taken = _count_words(rest, index)
        if not taken:
            return f"`find {rest[index].text}` is not known to be read-only"
        index += taken
    return ""


def _count_words(words: Sequence[Word], index: int) -> int:
    word = words[index]
    if not word.literal:
        return 0
    if word.text in _ALONE:
        return 1
    if word.text in _ONE:
        value = words[index + 1] if index + 1 < len(words) else None
        # An unquoted glob may match several names, one of which may be an action.
        certain = value is not None and (value.literal or (value.kind == "glob" and not value.may_be_flag))
        return 2 if certain else 0
    if word.text != "-exec":
        return 0
    end = index + 1
    while end < len(words) and words[end].text not in (";", "+"):
        if words[end].kind != "literal" and not words[end].path:  # it may be the `;` that ends the command
            return 0
        end += 1
    return end - index + 1 if end < len(words) else 0


def find_roots(words: Sequence[Word]) -> list[Word]:
    """Return the starting points of `find`, before its first test."""
    roots: list[Word] = []
    rest = list(words)
    while rest and rest[0].literal and (rest[0].text in ("-H", "-L", "-P") or rest[0].text.startswith(("-O", "-D"))):
        rest = rest[2 if rest[0].text == "-D" else 1 :]
    for word in rest:
        if word.literal and (word.text[:1] in ("-", "(", ")", "!") or word.text == ","):
            break
        roots.append(word)
    return roots or [Word(".")]


def _judge_find(words: Sequence[Word]) -> Verdict:
    if problem := _problem_of(words):
        return Verdict(problem)
    picked = picked_files(words) if any(word.text == "-exec" for word in words) else []
    follows = any(word.text in ("-L", "-follow") for word in words)
    return Verdict(reads=(*find_roots(words), *picked, *_compared_files(words)), recursive=True, follows=follows)


def _find_touches(words: Sequence[Word]) -> Iterator[Touch]:
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


def _find_starts(words: Sequence[Word]) -> Iterator[Started]:
    below = tuple(root.text for root in find_roots(words) if root.literal)
    index = 0
    while index < len(words):
        if words[index].text not in _FIND_RUNS:
            index += 1
            continue
        end = index + 1
        while end < len(words) and not (
            words[end].text == ";" or (words[end].text == "+" and _ends_in_braces(words, end))
        ):
            end += 1
        many = end < len(words) and words[end].text == "+"
        yield Started(tuple(words[index + 1 : end]), below=below, picks_link=picks_link(words), many=many)
        index = end + 1


def _ends_in_braces(words: Sequence[Word], end: int) -> bool:
    return words[end - 1].text == "{}"


def _lists_with_find(call: Call) -> bool:
    return not any(word.text in ("-printf", "-ls", "-exec") for word in call.words)


PROGRAMS: tuple[Program, ...] = (
    Program("ls", heeds="own", kind="list",
            reads="-aAbBcCdDfFgGhHiIklLmnNopqQrRsStTuUvwxXZ1 -I: -w: -T: --all --almost-all --author --escape "
            "--block-size: --ignore-backups --color? --directory --dired --classify? --file-type --format: "
            "--full-time --group-directories-first --no-group --human-readable --si --dereference-command-line "
            "--dereference-command-line-symlink-to-dir --hide: --hyperlink? --indicator-style: --inode --ignore: "
            "--kibibytes --dereference --numeric-uid-gid --literal --hide-control-chars --show-control-chars "
            "--quote-name --quoting-style: --reverse --recursive --size --sort: --time: --time-style: --tabsize: "
            "--width: --context --zero * @list", follows=("-L", "--dereference"), lists_paths=_lists_with_ls,
            names_only={"": "-X|--exclude-from"}, runs=("ls -d */", "ls -d .*"), asks=("ls /etc",)),
    Program("dir", aliases=("vdir",), kind="list", reads="-aAlhRrtS1 --color? * @list",
            follows=("-L", "--dereference"), names_only={"": "-X|--exclude-from"}, runs=("dir", "dir a.txt"),
            asks=("dir --output=out a.txt",)),
    Program("exa", kind="list",
            reads="-1aadFGhilLmrRsTuUxHgSBn -L: -s: -I: --long --tree --level: --all --git --icons --sort: --color: "
            "@list", runs=("exa -l", "exa -la"), asks=("exa --output=out a.txt",)),
    Program("eza", heeds="own", kind="list",
            reads="-1aadFGhilLmrRsTuUxHgSBn -L: -s: -I: --long --tree --level: --all --git --icons? --sort: "
            "--color? @list", runs=("eza --tree --level=2", "eza -la"), asks=("eza --output=out a.txt",)),
    Program("tree", heeds="own", kind="list",
            reads="-adflxqNQpugshDFiUvtcrnACJX -L: -P: -I: --prune --dirsfirst --filesfirst --noreport --charset: "
            "--filelimit: --gitignore --gitfile:r --matchdirs --ignore-case --si --du --inodes --device --timefmt: "
            "--sort: --metafirst --fromfile --info -S -Z @walk",
            check=own_options(r"-[A-HJKM-OQ-Za-z]*(?:[LPI]|L\d+)?"), follows=("-l",),
            runs=("tree -L 2", "tree -f -i"), asks=("tree -o out",)),
    Program("du", heeds="own", kind="list",
            reads="-0aAbBcDHhklLmPsSx -B: -d: -t: -X:r --null --all --apparent-size --block-size: --bytes --total "
            "--dereference-args --max-depth: --human-readable --inodes --count-links --dereference --no-dereference "
            "--separate-dirs --si --summarize --threshold: --time? --time-style: --exclude-from:r --exclude: "
            "--one-file-system * @walk", follows=("-L", "--dereference"), names_only={"": "-X|--exclude-from"},
            runs=("du -sh *", "du -sh ."), asks=("du --files0-from=f",)),
    Program("df", heeds="own", kind="list",
            reads="-aBhHiklPTx -B: -t: -x: --all --block-size: --human-readable --si --inodes --local --no-sync "
            "--output? --portability --print-type --total --type: --exclude-type: @text",
            runs=("df -h .", "df -h /"), asks=("df --output=x --sync",)),
    Program("stat", heeds="own", kind="list",
            reads="-fLt -c: --file-system --dereference --terse --format: --printf: --cached: * @read",
            names_only={"": "-X|--exclude-from"}, runs=("stat -f README.md", "stat --format='%y' README.md"),
            asks=("stat --output=out a.txt",)),
    Program("readlink", heeds="own", kind="read",
            reads="-fenqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet "
            "--silent --verbose --zero * @read", names_only={"": "-X|--exclude-from"},
            runs=("readlink -f .", "readlink -f f"), asks=("readlink --output=out a.txt",)),
    Program("realpath", heeds="own", kind="read",
            reads="-eLmPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet "
            "--relative-to: --relative-base: --strip --no-symlinks --zero * @read",
            names_only={"": "-X|--exclude-from"}, runs=("realpath --relative-to=. src/app.py", "realpath ."),
            asks=("realpath --output=out a.txt",)),
    Program("basename", heeds="own", kind="read", reads="-az -s: --multiple --suffix: --zero * @text",
            runs=("basename src/app.py .py", "basename /a/b/c.txt .txt"), asks=("basename --output=out a.txt",)),
    Program("dirname", heeds="own",
            kind="read", reads="-z --zero * @text", runs=("dirname /a/b/c", "dirname src/app.py"),
            asks=("dirname --output=out a.txt",)),
    Program("pathchk", reads="-pP --portability * @text", runs=("pathchk a.txt",),
            asks=("pathchk --output=out a.txt",)),
    Program("getfacl", kind="list", reads="-acedsnptLPR @read",
            check=refusing(r"\A-\Z", "`getfacl -` takes the names of files from its input"), runs=("getfacl a.txt",),
            asks=("getfacl --output=out a.txt",)),
    Program("lsattr", kind="list", reads="-RVadlpv @list", runs=("lsattr file", "lsattr a.txt"),
            asks=("lsattr --output=out a.txt",)),
    Program("pwd", kind="read", reads="-LP * @none", heeds="none", runs=("pwd -L", "pwd"),
            asks=("pwd a.txt",)),
    # Not archives, which it unpacks, nor what may name a commit, which it has git export.
    Program("cloc", kind="list",
            forms=(Form("", _CLOC, operand=r"\.{1,2}|(?!.*\.(?:zip|tar|t?[gbx]z2?|jar|war|ear|whl|rpm|deb|Z)\Z)"
                        r"(?:[\w.@+-]*/[\w./@+-]*|[\w-]+\.[a-z]{1,4})", everything=True),),
            version="--version --help", runs=("cloc .", "cloc --by-file src/"),
            asks=("cloc --out=x .", "cloc --git HEAD", "cloc x.zip")),
    Program("tokei",
            forms=(
                Form("", "-f -C -n: -s: -e: -t: -o: --files --sort: --exclude: --type: --output: --compact --hidden "
                     "" "--no-ignore @walk"),
            ),
            version="--version --help", runs=("tokei", "tokei a.txt"), asks=("tokei -i x",)),
    Program("lsd", kind="list", reads="-1aAdFhilrRStUv --all --almost-all --long --tree --depth: --recursive @list",
            version="--version --help", runs=("lsd -la", "lsd --tree src"), asks=("lsd --config-file x",)),
    Program("dust", kind="list", reads="-bcfHprsx -d: -n: -X: -z: --depth: @walk", version="--version --help",
            runs=("dust -d 2", "dust src"), asks=("dust --config x",)),
    Program("duf", kind="list", reads="--all --hide: --only: --inodes --json --sort: --output: @none",
            version="--version --help", runs=("duf",), asks=("duf a.txt",)),
    Program("scc",
            forms=(
                Form("", "-w -c -a -x: -i: -s: -f: --wide --no-cocomo --no-complexity --by-file --exclude-dir: "
                     "" "--include-ext: --sort: --format: @walk"),
            ),
            version="--version --help", runs=("scc", "scc a.txt"), asks=("scc -o x",)),
    Program("find", heeds="own", kind="search", version="--version --help -version", check=by_words(_judge_find),
            touches=_find_touches, starts=_find_starts, run_by_others=True, lists_paths=_lists_with_find,
            runs=("find . -ls", "find . -empty"), asks=("find build -delete", 'find src -exec echo "$X" ";"')),
    Program("gfind", kind="search", check=by_words(_judge_find), touches=_find_touches, starts=_find_starts,
            runs=("gfind . -name '*.py'",), asks=("gfind . -delete",)),
)  # fmt: skip
