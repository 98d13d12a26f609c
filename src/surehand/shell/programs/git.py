"""The program `git`: per subcommand, the options that change nothing, run nothing and open no connection."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Flags, Verdict, judge_words, names
from surehand.shell.programs.record import Call, Program, by_words
from surehand.shell.touches import REMOTE, Touch, TouchKind, parse_leniently
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, value_of

_DIFF = (
    "-pus -U? -z -M? -C? -B? -D -R -a -b -w -W -S: -G: -O:r -l: --patch --no-patch --unified? --raw --patch-with-raw "
    "--minimal --patience --histogram --anchored: --diff-algorithm: --stat? --compact-summary --numstat --shortstat "
    "--dirstat? --cumulative --summary --patch-with-stat --name-only --name-status --submodule? --color? --no-color "
    "--color-moved? --no-color-moved --color-words? --word-diff? --word-diff-regex: --no-renames --rename-empty "
    "--no-rename-empty --check --full-index --binary --abbrev? --find-renames? --find-copies? --find-copies-harder "
    "--diff-filter: --pickaxe-all --pickaxe-regex --relative? --no-relative --text --ignore-cr-at-eol "
    "--ignore-space-at-eol --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines: "
    "--inter-hunk-context: --function-context --exit-code --quiet --no-ext-diff --no-textconv --ignore-submodules? "
    "--src-prefix: --dst-prefix: --no-prefix --default-prefix --line-prefix: --ita-invisible-in-index "
    "--output-indicator-new: --output-indicator-old: --output-indicator-context: --ws-error-highlight: --skip-to: "
    "--rotate-to: --indent-heuristic --no-indent-heuristic"
)
_LOG = (
    _DIFF + " -n: -g -i -E -F -P -c -m -t -r -# --oneline --decorate? --no-decorate --decorate-refs: "
    "--decorate-refs-exclude: "
    "--source --log-size --follow --no-follow --max-count: --skip: --since: --after: --until: --before: --author: "
    "--committer: --grep-reflog: --grep: --all-match --invert-grep --regexp-ignore-case --basic-regexp "
    "--extended-regexp --fixed-strings --perl-regexp --merges --no-merges --min-parents? --max-parents? --first-parent "
    "--not --all --branches? --tags? --remotes? --glob: --exclude: --reflog --bisect --cherry-mark "
    "--cherry-pick --left-only --right-only --cherry --walk-reflogs --merge --boundary --simplify-by-decoration "
    "--full-history --show-pulls --dense --sparse --simplify-merges --ancestry-path? --date-order --author-date-order "
    "--topo-order --reverse --no-walk? --pretty? --format? --abbrev-commit --no-abbrev-commit --no-abbrev --encoding: "
    "--notes? --no-notes --relative-date --date: --parents --children --left-right --graph --no-graph "
    "--show-linear-break? --cc --combined-all-paths --diff-merges: --no-diff-merges --remerge-diff --mailmap "
    "--no-mailmap --use-mailmap --full-diff --expand-tabs? --no-expand-tabs --clear-decorations "
    "--exclude-first-parent-only "
    "-L: @revisions"
)

# Options before the subcommand. Left out are those that name another repository, force the pager, or set anything but
# harmless configuration.
_GLOBAL = (
    "-P -C: -c: --no-pager --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs "
    "--icase-pathspecs --no-replace-objects --no-lazy-fetch --no-advice"
)

# What `-c` may set: how output looks. A value of `pager.*` or `core.pager` may be a program.
_HARMLESS_SETTING = lazy_pattern(
    r"(?:color\.\w+|core\.(?:quotepath|abbrev)|advice\.\w+|column\.\w+|log\.(?:date|decorate|abbrevcommit|follow)|"
    r"diff\.(?:noprefix|mnemonicprefix|renames|renamelimit|algorithm|context|colormoved)|"
    r"status\.(?:short|branch|relativepaths|renames|showstash|showuntrackedfiles)|i18n\.logoutputencoding)=[\w:. -]*"
    r"|(?:pager\.\w+|core\.pager)=(?:cat|false)?|(?:core\.fsmonitor|log\.showsignature)=false",
    re.IGNORECASE | re.ASCII,
)

SUBCOMMANDS: dict[str, str] = {
    "status": "-sbvzu? -s --short --branch --show-stash --porcelain? --long --verbose --untracked-files? "
    "--ignore-submodules? --ignored? --column? --no-column --ahead-behind --no-ahead-behind --renames --no-renames "
    "--find-renames? --null @revisions",
    "log": _LOG,
    "show": _LOG,
    "whatchanged": _LOG,
    "diff --no-index": _DIFF + " --no-index @walk_operands",
    "diff": _DIFF + " --cached --staged --merge-base --base --ours --theirs -0 -1 -2 -3 -c --cc @revisions",
    "diff-tree": _DIFF + " -r -t -m -c --root --cc --no-commit-id --pretty? --format? --merge-base -v @revisions",
    "diff-index": _DIFF + " -m --cached --merge-base @revisions",
    "diff-files": _DIFF + " -q -0 -1 -2 -3 -c --cc --base --ours --theirs @revisions",
    "range-diff": _DIFF + " --no-dual-color --creation-factor: --left-only --right-only @revisions",
    "shortlog": "-nsec -w? --numbered --summary --email --committer --group: --format? --since: --until: --after: "
    "--before: --author: --no-merges --merges --all --max-count: --first-parent --branches? --tags? @revisions",
    "blame": "-bcftslpnewkLMCh -L: -M? -C? -S:r --root --show-stats --date: --porcelain --line-porcelain --incremental "
    "--encoding: --contents:r --abbrev? --show-name --show-number --show-email --reverse --first-parent "
    "--ignore-rev: --ignore-revs-file:r --color-lines --color-by-age --since: --progress --no-progress @revisions",
    "annotate": "-ltn -L: -M? -C? --date: --porcelain @revisions",
    "grep": "-aIiEFPGnlLzcoqwvhHrpW -e: -f:r -m: -A: -B: -C: -# --text --ignore-case --word-regexp --invert-match "
    "--extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number --column --files-with-matches "
    "--name-only --files-without-match --null --only-matching --count --color? --no-color --break --heading "
    "--show-function --function-context --context: --after-context: --before-context: --max-count: --threads: --and "
    "--or --not --all-match --quiet --max-depth: --recursive --no-recursive --full-name --untracked --cached "
    "--exclude-standard --no-exclude-standard --no-textconv @revisions",
    "ls-files": "-cdmoistukvfzr -x: -X:r --cached --deleted --modified --others --ignored --stage --unmerged --killed "
    "--directory --no-empty-directory --eol --deduplicate --exclude: --exclude-from:r --exclude-per-directory:r "
    "--exclude-standard --error-unmatch --with-tree: --full-name --recurse-submodules --abbrev? --debug --sparse "
    "--format: --resolve-undo @revisions",
    "ls-tree": "-drtlz --long --name-only --name-status --object-only --abbrev? --full-name --full-tree --format: "
    "@revisions",
    "rev-parse": "-q --verify --quiet --abbrev-ref? --short? --symbolic --symbolic-full-name --show-toplevel "
    "--show-prefix --show-cdup --show-superproject-working-tree --git-dir --git-common-dir --git-path: "
    "--absolute-git-dir --is-inside-git-dir --is-inside-work-tree --is-bare-repository --is-shallow-repository "
    "--show-object-format? --all --branches? --tags? --remotes? --glob? --exclude? --since? --after? --until? "
    "--before? --default: --not --flags --no-flags --revs-only --no-revs --sq --path-format: --show-ref-format "
    "--local-env-vars --disambiguate? @revisions",
    "rev-list": _LOG + " --count --objects --objects-edge --use-bitmap-index --header --timestamp --no-commit-header "
    "--disk-usage? --missing? --filter? --quiet --bisect-vars --bisect-all --in-commit-order --unpacked",
    "describe": "--dirty? --broken? --all --tags --contains --abbrev? --candidates: --exact-match --debug --long "
    "--match: --exclude: --always --first-parent @revisions",
    "name-rev": "--tags --refs: --exclude: --all --name-only --no-undefined --always --annotate-stdin @revisions",
    "merge-base": "-a --all --octopus --independent --is-ancestor --fork-point @revisions",
    "cherry": "-v --abbrev? @revisions",
    "cat-file": "-t -s -e -p -Z --batch-check? --batch-all-objects --buffer --unordered "
    "--follow-symlinks --allow-unknown-type @revisions",
    "show-ref": "-qds --head --heads --branches --tags --dereference --hash? --abbrev? --verify --quiet --exists "
    "@revisions",
    "show-branch": "-art -g? --all --remotes --topo-order --date-order --sparse --more? --list --merge-base "
    "--independent --no-name --sha1-name --color? --no-color --topics --current @revisions",
    "for-each-ref": "-spt --count: --sort: --format: --color? --shell --perl --python --tcl --points-at? --merged? "
    "--no-merged? --contains? --no-contains? --ignore-case --omit-empty --exclude: --include-root-refs @revisions",
    "count-objects": "-vH --verbose --human-readable @none",
    "check-ignore": "-qvzn --quiet --verbose --stdin --non-matching --no-index @revisions",
    "check-attr": "-az --all --cached --stdin --source: @revisions",
    "check-ref-format": "--normalize --branch --allow-onelevel --refspec-pattern @revisions",
    "check-mailmap": "--stdin @revisions",
    "var": "-l @revisions",
    "version": "--build-options @none",
    "stripspace": "-s -c --strip-comments --comment-lines @none",
    "patch-id": "--stable --unstable --verbatim @none",
    "diff-pairs": "-z @none",
    "fsck": "--no-dangling --full --strict --verbose --connectivity-only --no-progress --no-reflogs @revisions",
    "help": "-agc --all --guides --config @names",
}

# Subcommands that only read in certain forms: (words or options of the form, its other options).
_LISTING = (
    "-avrl -i --all --list --verbose --remotes --sort: --format: --color? --no-color --column? --no-column --abbrev? "
    "--no-abbrev --contains? --no-contains? --merged? --no-merged? --points-at: --ignore-case --omit-empty"
)
FORMS: dict[str, tuple[tuple[str, str], ...]] = {
    "branch": (
        ("", _LISTING + " --show-current @none"),
        ("--list|-l", _LISTING + " @text"),
        ("--contains|--merged|--no-merged|--no-contains|--points-at", _LISTING + " @text"),
    ),
    "tag": (
        ("", "-l -n? -i --list --sort: --format: --color? --column? --no-column --ignore-case --omit-empty @none"),
        (
            "--list|-l",
            "-l -n? -i --list --sort: --format: --color? --column? --contains? --no-contains? --merged? --no-merged? "
            "--points-at: --ignore-case --no-column @text",
        ),
        (
            "--contains|--merged|--no-merged|--no-contains|--points-at",
            "-l -n? --list --sort: --format: --contains? --no-contains? --merged? --no-merged? --points-at: @text",
        ),
    ),
    "remote": (("", "-v --verbose @none"), ("get-url", "--push --all @text"), ("show", "@none")),
    # `stash show` takes every operand as a stash, never as a path.
    "stash": (
        ("list", _LOG),
        ("show", _DIFF.replace("-O:r ", "").replace(":", "?") + " -u --include-untracked --only-untracked @revisions"),
    ),
    "ls-remote": (("--get-url", "--get-url @none"),),
    "config": (
        ("", "-z --local --global --system --worktree --null --show-origin --show-scope --type: --bool --int --path "
        "@key"),
        ("--get|--get-all|--get-regexp|--list|-l|--get-urlmatch|--get-color", "-lz --get --get-all --get-regexp --list "
         "--get-urlmatch --local --global --system --worktree --null --name-only --show-origin --show-scope --type: "
         "--bool --int --path --default: --includes --no-includes --get-color @text"),
        ("get", "--all --regexp --local --global --system --worktree --show-origin --show-scope --null --name-only "
        "--type: "
         "--default: --value: --fixed-value --url: @text"),
        ("list", "--local --global --system --worktree --show-origin --show-scope --null --name-only --includes @none"),
    ),
    "worktree": (("list", "-vz --porcelain --verbose @none"),),
    "submodule": (
        ("", "-q --quiet --cached @none"),
        ("status", "--cached --recursive -q @text"),
        ("summary", "--cached --files -n: @text"),
    ),
    "notes": (("", "@none"), ("list", "@text"), ("show", "@text")),
    "reflog": (("show", _LOG), ("exists", "@text"), ("", _LOG.replace("@revisions", "@none"))),
    "bisect": (("log", "@none"),),
    "bundle": (("list-heads", "@read"), ("verify", "-q --quiet @read")),
    "symbolic-ref": (("", "-q --quiet --short --no-recurse @onetext"),),
    "lfs": (("ls-files", "-ls --long --size --all @text"), ("version", "@none"), ("env", "@none")),
    "sparse-checkout": (("list", "@none"),),
    "rerere": (("status", "@none"),),  # `diff` prints whatever files `MERGE_RR` names
    "archive": (("--list|-l", "-l --list @none"),),
    "apply": (("--stat|--check|--numstat|--summary", "--stat --check --numstat --summary -p: -R --cached --index -v "
    "@read"),),
}  # fmt: skip
# Subcommands that print only names of files, and the options with which they print more (changes, object ids).
_SHOW_NAMES = {
    "check-attr": "--source",
    "check-ignore": "--stdin",
    "ls-files": r"-\w*[sX]|--(?:stage|format|debug|exclude-(?:from|per))",
    "status": r"-\w*v|--verb|--porcelain=v?2",
}


def _judge_git(words: Sequence[Word]) -> Verdict:
    """Judge the words after `git`."""
    before = options.parse(words, options.flags(_GLOBAL), permute=False)
    rest = list(words[before.used :])
    if before.unknown:
        return Verdict(f"`git {before.unknown[0].text}` before the subcommand is not known to be read-only")
    if not rest or not rest[0].literal:
        return Verdict("`git` without a literal subcommand", unreadable=bool(rest))
    revisions = words[: words.index(Word("--"))] if Word("--") in words else words
    if any(word.kind == "opaque" for word in words[: before.used + 1]) or any(word.path for word in revisions):
        return Verdict("a word of `git` is not literal", unreadable=True)  # a file may have the name of a revision
    if not all(_HARMLESS_SETTING.fullmatch(each.text) for each in before.values("-c")):
        return Verdict("`git -c` before the subcommand is not known to be read-only")
    folders = before.values("-C")
    if len(folders) > 1:
        return Verdict("`git` with several -C is not known to be read-only")
    verdict = _judge_subcommand(rest[0].text, rest[1:])
    here = folders[0] if folders else Word(".")
    if not verdict.problem and before.used < len(words) and rest[0].text != "version":
        verdict.reads = (here, *(_below_folder(here, word) for word in verdict.reads))
    return verdict


def _below_folder(folder: Word, word: Word) -> Word:
    """Return a path relative to the directory of `git -C`."""
    if folder.text == "." or word.text.startswith("/"):
        return word
    return Word(f"{folder.text}/{word.text}", word.kind, f"{folder.text}/{word.fixed}")


# Built-in subcommands, which no alias can shadow.
_GIT_BUILT_IN = {*SUBCOMMANDS, *FORMS} | names(
    "add am checkout cherry-pick clean clone commit fetch init merge mv pull push rebase reset restore revert rm switch"
)


def _judge_subcommand(name: str, words: list[Word]) -> Verdict:
    if len(words) == 1 and words[0].text in ("-h", "--help") and name in _GIT_BUILT_IN:
        return Verdict()
    verdict = Verdict(f"`git {name}` is not known to be read-only")
    for known, rest in _forms_of(name, words):
        verdict = judge_words(f"git {name}", rest, known)
        if not verdict.problem:
            return verdict
    return verdict


def _forms_of(name: str, words: list[Word]) -> Iterator[tuple[Flags, list[Word]]]:
    """Yield the options of each form of a subcommand that may apply, and the words to judge by them."""
    if name == "diff" and any(word.literal and word.text == "--no-index" for word in words):
        name = "diff --no-index"  # its operands are files anywhere
    if name in SUBCOMMANDS:
        yield options.flags(SUBCOMMANDS[name]), words
    for wanted, line in FORMS.get(name, ()):
        known = options.flags(line)
        rest = _words_of_form(wanted, words, known)
        if rest is not None:
            yield known, rest


def spell_out(words: Sequence[str]) -> tuple[str, ...]:
    """Normalize a git command: every option a separate word with its value attached. Unknown commands stay unchanged.

    `git grep -ie KEY main` becomes `git grep -i -eKEY main`, so that words without a dash are operands.
    """
    every = [Word(each) for each in words]
    at = 2 + options.parse(every[1:], options.flags(_GLOBAL), permute=False).used
    for known, among in _forms_of(words[at - 1], every[at:]) if at <= len(words) else ():
        found = options.parse(among, known)
        if not found.unknown:
            begin, after = len(words) - len(among), [each.text for each in among[found.used :]]
            operands = [each.text for each in found.operands[: len(found.operands) - len(after)]]
            ends = ("--", *after) if found.used and among[found.used - 1].text == "--" else ()
            return (*words[:begin], *map(_glue, found.options), *operands, *ends)
    return tuple(words)


def _glue(option: tuple[str, Word | None]) -> str:
    name, value = option
    if value is None:
        return name
    return f"-{value.text}" if name == "-#" else f"{name}{'=' if name.startswith('--') else ''}{value.text}"


def _words_of_form(wanted: str, words: list[Word], known: Flags) -> list[Word] | None:
    """Return the words to judge if a form applies: those after its first word, or all if it is an option.

    An option counts only if git takes it for one: not as a value, not after `--`.
    """
    if not wanted:
        return words
    choices = wanted.split("|")
    if choices[0].startswith("-"):
        return words if options.parse(words, known).has(*choices) else None
    return words[1:] if words and words[0].text in choices else None


_GIT_PATHS: dict[str, TouchKind] = {"rm": "delete", "mv": "write", "restore": "write", "clean": "delete", "add": "read"}
_GIT_REMOTE = names("clone push pull fetch ls-remote remote submodule")


def _git_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = parse_leniently(
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


# Settings whose value is a command.
_GIT_PROGRAM = lazy_pattern(
    r"(pager(\..*)?|editor|sshcommand|fsmonitor|external|textconv|program|helper|command|cmd|driver|clean|smudge|"
    r"process|gitproxy|askpass)$"
)


_PROGRAM_OPTIONS = ("--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager")


def _names_program(option: str) -> bool:
    """Return whether an option, possibly abbreviated, takes a command."""
    return len(option) > 4 and any(each.startswith(option) for each in _PROGRAM_OPTIONS)


def _git_starts(words: Sequence[Word]) -> Iterator[Started]:
    for index, word in enumerate(words):
        following = words[index + 1 : index + 2]
        if word.text == "-c" and following:
            key, _, value = following[0].text.partition("=")
            if value.startswith("!") or _GIT_PROGRAM.search(key.lower()):
                yield Started(script=Word(value.removeprefix("!"), following[0].kind))
            elif key.lower().startswith("alias."):
                yield Started((Word("git"), *(Word(each, following[0].kind) for each in value.split())))
        elif word.text in ("-x", "-u") and following:
            yield Started(script=following[0])
        elif _names_program(word.text.partition("=")[0]) and ("=" in word.text or following):
            yield Started(script=value_of(word) if "=" in word.text else following[0])
        elif word.text in ("run", "foreach") and index and words[index - 1].text in ("bisect", "submodule"):
            rest = [each for each in words[index + 1 :] if each.text not in ("--recursive", "--quiet", "-q")]
            yield Started(script=rest[0]) if len(rest) == 1 else Started(tuple(rest))


_GREP_LISTS = names("-l -L --files-with-matches --files-without-match --name-only")
_GREP_PICKS = _GREP_LISTS | names("-i -w -v -E -F -P -G -I -e --ignore-case --word-regexp --fixed-strings")


def _lists_with_git(call: Call) -> bool:
    """Return whether git lists files of the index, and not those of other commits (`git diff HEAD~1`)."""
    name, words = call.words[:1], call.words[1:]
    if name == (Word("ls-files"),):
        return not any(word.text.startswith("--f") for word in words)
    paths = words.index(Word("--")) if Word("--") in words else len(words)
    if name == (Word("grep"),):
        parsed = options.parse(words[:paths], options.flags(SUBCOMMANDS["grep"]))
        asks = {option for option, _ in parsed.options}
        # A second operand may be a commit; its name would precede each path in the output.
        return bool(asks & _GREP_LISTS) and asks <= _GREP_PICKS and len(parsed.operands) == (not asks & {"-e"})
    return name == (Word("diff"),) and words[:paths] == (Word("--name-only"),)


PROGRAMS: tuple[Program, ...] = (
    Program("git", heeds="own",
            version="--version --help", check=by_words(_judge_git), touches=_git_touches, starts=_git_starts,
            run_by_others=True, lists_paths=_lists_with_git, names_only=_SHOW_NAMES,
            exit_1_means_no=("check-ignore", "diff", "diff-files", "diff-index", "grep", "merge-base", "show-ref"),
            runs=("git add -h", "git log -1"), asks=("git tag v1.0",)),
)  # fmt: skip
