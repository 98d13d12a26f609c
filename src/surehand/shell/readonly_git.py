"""The reads of git: which options of which subcommand are known to change nothing, run nothing and connect nowhere."""

from __future__ import annotations

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

# Options before the subcommand. `-C` moves to another directory; the options that name another repository, set
# configuration or force the pager are left out.
GLOBAL = (
    "-P -C: --no-pager --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs "
    "--icase-pathspecs --no-replace-objects --no-lazy-fetch --no-advice"
)

READ_ONLY: dict[str, str] = {
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
    "--directory --no-empty-directory --eol --deduplicate --exclude: --exclude-from:r --exclude-per-directory: "
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
    "help": "-a --all @none",
}

# Subcommands that read only in certain forms: the option that asks for a listing, then what may go with it.
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
    "stash": (("list", _LOG), ("show", _DIFF + " -u --include-untracked --only-untracked @revisions")),
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
    "rerere": (("status", "@none"), ("diff", "@none")),
    "archive": (("--list|-l", "-l --list @none"),),
    "apply": (("--stat|--check|--numstat|--summary", "--stat --check --numstat --summary -p: -R --cached --index -v "
    "@read"),),
}  # fmt: skip
