"""Programs that search: text in files, files by name, programs and manual pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from surehand.shell.programs.record import Call, Program, without
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

_FILES = ("-l", "-L", "--files-with-matches", "--files-without-match")
# With these a line of the input is not printed as it is.
_ADDED_TO_LINES = (
    "-o", "-n", "-H", "-b", "-c", "-T", "-A", "-B", "-C", "-#", "--only-matching", "--line-number", "--with-filename",
    "--byte-offset", "--count", "--initial-tab", "--after-context", "--before-context", "--context", "--label",
    "--color", "--colour",
)  # fmt: skip


def _lists_with_grep(call: Call) -> bool:
    return call.has(*_FILES) and not call.has("--label")


def _lists_with_rg(call: Call) -> bool:
    return call.has("-l", "--files", *_FILES[2:]) and not call.has("--path-separator", "--json", "--stats")


def _fd_starts(words: Sequence[Word]) -> Iterator[Started]:
    for index, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            rest = list(words[index + 1 :])
            end = next((at for at, each in enumerate(rest) if each.text == ";"), len(rest))
            yield Started(tuple(rest[:end]), below=(".",))
        elif word.text.startswith(("--exec=", "--exec-batch=")):
            yield Started((value_of(word),), below=(".",))


PROGRAMS: tuple[Program, ...] = (
    Program("grep", kind="search", reads=_GREP, lists_paths=_lists_with_grep,
            keeps_lines=without(*_ADDED_TO_LINES), exit_1_means_no=True,
            runs=("grep foo README.md", "grep TODO README.md"), asks=("grep -r x /etc",)),
    Program("egrep", aliases=("fgrep",), kind="search", reads=_GREP, exit_1_means_no=True,
            runs=("egrep 'a|b' a.txt",), asks=("egrep --output=out a.txt",)),
    Program("zgrep", kind="search", reads="-EFivwxcoqsnHhLlm: -e: -A: -B: -C: @pattern", exit_1_means_no=True,
            runs=("zgrep foo a.gz", "zgrep foo x.gz"), asks=("zgrep --output=out a.txt",)),
    Program("rg", kind="search",
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
    Program("ag", kind="search",
            reads="-acgGhHilLnoQrRsSuUvwz0 -A? -B? -C? -G: -m: -g: --ackmate --after? --before? --context? --column "
            "--count --color --nocolor --depth: --files-with-matches --files-without-matches --filename "
            "--nofilename --heading --noheading --hidden --ignore: --ignore-case --ignore-dir: --literal "
            "--max-count: --numbers --nonumbers --only-matching --smart-case --stats --vimgrep --word-regexp "
            "--cc --cpp --css --go --html --java --js --json --make --markdown --md --php --py --python --ruby --rust "
            "--shell --sql --ts --xml --yaml @pattern", exit_1_means_no=True, runs=("ag -l main", "ag --py TODO src"),
            asks=("ag --pager=./x foo",)),
    # A project's `.ackrc` may not name a pager or an output, of which ack would make code.
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
    Program("fd", kind="search",
            reads="-HIuseagpLqF0lv1 -d: -t: -e: -S: -E: -c: -j: -o: -M: --hidden --no-ignore --no-ignore-vcs "
            "--unrestricted --case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path "
            "--full-path --follow --print0 --max-depth: --min-depth: --exact-depth: --type: --extension: --size: "
            "--changed-within: --changed-before: --exclude: --color: --threads: --max-results: --quiet "
            "--list-details --prune --strip-cwd-prefix? @pattern_or_files", starts=_fd_starts,
            lists_paths=without("-l", "--list-details"), runs=("fd -d 2", "fd -t f"), asks=("fd -X rm",)),
    Program("fdfind", kind="search",
            reads="-HIuseagpLqF0lv1 -d: -t: -e: -S: -E: -c: --hidden --no-ignore --glob --full-path --max-depth: "
            "--type: --extension: --exclude: --color: @pattern_or_files", starts=_fd_starts, lists_paths=without("-l"),
            runs=("fdfind -e py", "fdfind a.txt"), asks=("fdfind --output=out a.txt",)),
    Program("locate", kind="search",
            reads="-AbceiLlnqrSw0 -l: -n: -r: --basename --count --existing --ignore-case --limit: --regex "
            "--wholename @text", runs=("locate app.py",), asks=("locate --output=out a.txt",)),
    Program("which", kind="search",
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
