"""Programs that search: text in files, files by name, programs and manual pages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict, names
from surehand.shell.programs.record import Call, Form, Program, without
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, scripts, value_of

_GREP = (
    "-EFGPivwxcoqsnHhbaILlTUzZruRdDmABCy -e: -f:r -# --extended-regexp --fixed-strings --basic-regexp --perl-regexp "
    "--regexp: --file:r --ignore-case --no-ignore-case --invert-match --word-regexp --line-regexp --count --color? "
    "--colour? --files-without-match --files-with-matches --max-count: --only-matching --quiet --silent --no-messages "
    "--byte-offset --with-filename --no-filename --label: --line-number --initial-tab --null --after-context: "
    "--before-context: --context: --group-separator: --no-group-separator --text --binary-files: --devices: "
    "--directories: --exclude: --exclude-from:r --exclude-dir: --include: --recursive --dereference-recursive "
    "--line-buffered --null-data --binary -m: -A: -B: -C: -d: -D: * @pattern"
)

_FD = (
    "-HIuseagpLqF0lv1 -d: -t: -e: -S: -E: -c: -j: -o: -M: --hidden --no-ignore --no-ignore-vcs --unrestricted "
    "--case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path --full-path --follow --print0 "
    "--max-depth: --min-depth: --exact-depth: --type: --extension: --size: --changed-within: --changed-before: "
    "--exclude: --color: --threads: --max-results: --quiet --list-details --prune --strip-cwd-prefix? "
    "@pattern_or_files"
)

_AG = (
    "-achHilLnoQrRsSuUvwz0 -A? -B? -C? -G: -m: --ackmate --after? --before? --context? --column --count --color "
    "--nocolor --depth: --files-with-matches --files-without-matches --filename --nofilename --heading --noheading "
    "--hidden --ignore: --ignore-case --ignore-dir: --literal --max-count: --numbers --nonumbers --only-matching "
    "--smart-case --stats --vimgrep --word-regexp --cc --cpp --css --go --html --java --js --json --make "
    "--markdown --md --php --py --python --ruby --rust --shell --sql --ts --xml --yaml "
)

_FILES = ("-l", "-L", "--files-with-matches", "--files-without-match")
# Options that change printed lines.
_ADDED_TO_LINES = (
    "-o", "-n", "-H", "-b", "-c", "-T", "-A", "-B", "-C", "-#", "--only-matching", "--line-number", "--with-filename",
    "--byte-offset", "--count", "--initial-tab", "--after-context", "--before-context", "--context", "--label",
    "--color", "--colour",
)  # fmt: skip


def _lists_with_grep(call: Call) -> bool:
    return call.has(*_FILES) and not call.has("--label")


def _lists_with_rg(call: Call) -> bool:
    return call.has("-l", "--files", *_FILES[2:]) and not call.has("--path-separator", "--json", "--stats")


_FD_RUNS = names("-x -X --exec --exec-batch")
_FD_PLACEHOLDER = lazy_pattern(r"\{(?:/|//|\.|/\.)\}")


def _split_fd(words: Sequence[Word]) -> tuple[list[Word], list[tuple[Word, list[Word]]]]:
    """Return the words of `fd` itself, and each `-x`/`-X` option with its command."""
    own: list[Word] = []
    runs: list[tuple[Word, list[Word]]] = []
    rest = iter(words)
    for word in rest:
        if word.literal and word.text in _FD_RUNS:
            runs.append((word, list(itertools.takewhile(lambda each: each.text != ";", rest))))
        else:
            own.append(word)
    return own, runs


def _judge_fd(call: Call) -> Verdict:
    """Judge `fd` by its own words, and secrets it selects for a command; that command is judged separately."""
    own, runs = _split_fd(call.words)
    if not all(command and all(word.literal or word.path for word in command) for _, command in runs):
        return Verdict(f"`{call.name}` runs a command that is missing, or may end before its words do")
    verdict = call.judge_options(own)
    if not runs or verdict.problem:
        return verdict
    parsed = options.parse(own, options.flags(call.program.reads))
    endings = [Word(f"*.{value.text}", "glob") for value in parsed.values("-e", "--extension")]
    picked = [Word(re.sub(r"[\\^$]", "", word.text)) for word in parsed.operands[:1]]
    verdict.reads = (*verdict.reads, *endings, *(word for word in picked if is_secret(word.text)))
    return verdict


def _fd_starts(words: Sequence[Word]) -> Iterator[Started]:
    own, runs = _split_fd(words)
    roots = options.parse(own, options.flags(_FD)).operands[1:]
    below = tuple(root.text for root in roots) if all(root.literal for root in roots) else ()
    for option, command in runs:
        # `{/}` and the like give parts of paths, which name other files from here: opaque.
        given = [Word(word.text, "opaque") if _FD_PLACEHOLDER.search(word.text) else word for word in command]
        if not any("{}" in word.text or word.kind == "opaque" for word in given):
            given.append(Word("{}"))
        many = option.text in ("-X", "--exec-batch")
        yield Started(tuple(given), below=below if roots else (".",), many=many, bare=True)
    for word in own:
        if word.text.startswith(("--exec=", "--exec-batch=")):
            yield Started((value_of(word),), below=(".",))


def _judge_locate(call: Call) -> Verdict:
    """Judge `locate`, whose database lists files of the whole disk."""
    verdict = call.judge_options(call.words)
    verdict.reads = (Word("/"),)
    return verdict


def _lists_with_fd(call: Call) -> bool:
    own, runs = _split_fd(call.words)
    return not runs and not options.parse(own, options.flags(call.program.reads)).has("-l", "--list-details")


PROGRAMS: tuple[Program, ...] = (
    Program("grep", heeds="own", kind="search", reads=_GREP, lists_paths=_lists_with_grep,
            keeps_lines=without(*_ADDED_TO_LINES), exit_1_means_no=True,
            runs=("grep foo README.md", "grep TODO README.md"), asks=("grep -r x /etc",)),
    Program("egrep", heeds="own", aliases=("fgrep",), kind="search", reads=_GREP, exit_1_means_no=True,
            runs=("egrep 'a|b' a.txt",), asks=("egrep --output=out a.txt",)),
    Program("zgrep", kind="search", reads="-EFivwxcoqsnHhLlm: -e: -A: -B: -C: @pattern", exit_1_means_no=True,
            runs=("zgrep foo a.gz", "zgrep foo x.gz"), asks=("zgrep --output=out a.txt",)),
    Program("rg", heeds="own", kind="search",
            reads="-.0FHILNPSUabchilnopqsuvwxV -A: -B: -C: -E: -M: -T: -d: -e: -f:r -g: -j: -m: -r: -t: "
            "--after-context: --auto-hybrid-regex --before-context: --binary --block-buffered --byte-offset "
            "--case-sensitive --color: --colors: --column --context: --context-separator: --count --count-matches "
            "--crlf --debug --dfa-size-limit: --encoding: --engine: --field-context-separator: "
            "--field-match-separator: --file:r --files --files-with-matches --files-without-match --fixed-strings "
            "--follow --glob: --glob-case-insensitive --heading --hidden --iglob: --ignore-case --ignore-file:r "
            "--ignore-file-case-insensitive --include-zero --invert-match --json --line-buffered --line-number "
            "--line-regexp --max-columns: --max-columns-preview --max-count: --max-depth: --max-filesize: --mmap "
            "--multiline --multiline-dotall --no-config --no-filename --no-heading --no-hidden --no-ignore "
            "--no-ignore-dot --no-ignore-exclude --no-ignore-files --no-ignore-global --no-ignore-messages "
            "--no-ignore-parent --no-ignore-vcs --no-line-number --no-messages --no-mmap --no-pcre2-unicode "
            "--no-require-git --no-unicode --null --null-data --one-file-system --only-matching --passthru "
            "--path-separator: --pcre2 --pcre2-version --pretty --quiet --regex-size-limit: --regexp: --replace: "
            "--smart-case --sort: --sortr: --stats --stop-on-nonmatch --text --threads: --trace --trim --type: "
            "--type-list --type-not: --unrestricted --version --vimgrep --with-filename --word-regexp --type-add: "
            "--type-clear: --no-column --no-trim --no-multiline --no-json --no-crlf --no-text --no-stats "
            "--maxdepth: --generate: @pattern_or_files", starts=scripts("--pre", "--hostname-bin"),
            lists_paths=_lists_with_rg, exit_1_means_no=True, runs=("rg -N foo", "rg -S Foo"),
            asks=("rg --pre ./x y",)),
    # With -g, which gives the pattern, all operands are directories.
    Program("ag", kind="search",
            forms=(Form("", _AG + "-g: @walk", needs=("-g",)), Form("", _AG + "@pattern_or_files")),
            version="--version --help -V", exit_1_means_no=True, runs=("ag -l main", "ag -V", "ag -g py src"),
            asks=("ag --pager=./x foo", "ag -g passwd /etc")),
    # ack itself refuses options in a project's `.ackrc` that would run code (a pager, an output).
    Program("ack", kind="search",
            reads="-cfghHilLnoQrRsSvw1 -A: -B: -C? -m: --after-context: --before-context: --context? --break "
            "--no-break --color --no-color --nocolor --colour --count --column --files-with-matches "
            "--files-without-matches --filename --no-filename --group --nogroup --heading --noheading "
            "--ignore-case --ignore-dir: --ignore-directory: --ignore-file: --noignore-dir: --literal --max-count: "
            "--no-recurse --passthru --print0 --recurse --show-types --smart-case --no-smart-case --sort-files "
            "--type: --types -t: -T: --help-types --cc --cpp --css --go --html --java --js --json --make --markdown "
            "--perl --php --py --python --ruby --rust --shell --sql --ts --xml --yaml @pattern_or_files",
            exit_1_means_no=True, obeys_folder=True, runs=("ack main", "ack -l --python TODO src"),
            asks=("ack --ackrc=./x y", "ack --pager=./x y", "ack --output='$x' y", "ack -x y")),
    Program("fd", heeds="own", aliases=("fdfind",), kind="search", reads=_FD, check=_judge_fd, starts=_fd_starts,
            lists_paths=_lists_with_fd, runs=("fd -d 2", "fd -t f", "fd -e py -x wc -l", "fd -X head -n 1 {}"),
            asks=("fd -e tmp -X rm", "fd -x uniq {} x", "fd -X uniq", "fd -x sort", "fd --exec=ls", "fd -x cat {/}",
                  'fd -x echo "$X" -X rm')),
    Program("locate", kind="search",
            reads="-AbceiLlnqrSw0 -l: -n: -r: --basename --count --existing --ignore-case --limit: --regex "
            "--wholename @text", check=_judge_locate, runs=("locate --version",),
            asks=("locate app.py", "locate --output=out a.txt")),
    Program("which", heeds="own", kind="search",
            reads="-as --all --skip-alias --skip-functions --skip-dot --skip-tilde --tty-only * @text",
            exit_1_means_no=True, runs=("which -a node", "which -a python"), asks=("which --output=out a.txt",)),
    Program("whereis", kind="search", reads="-bmsu * @text", runs=("whereis gcc", "whereis git"),
            asks=("whereis --output=out a.txt",)),
    Program("apropos", kind="search", reads="-ae -s: @text", runs=("apropos copy",),
            asks=("apropos --output=out a.txt",)),
    Program("whatis", reads="-w -s: @text", runs=("whatis ls",), asks=("whatis --output=out a.txt",)),
    Program("man", kind="read", reads="-kfwaWiI -s: -S: --apropos --whatis --where --path --all --sections: @names",
            starts=scripts("-P", "--pager", "--html"), runs=("man -f ls", "man -k foo"), asks=("man -l f",)),
)  # fmt: skip
