"""The everyday reads: which options of which command are known to change nothing, and what its operands are.

One line per command in the notation of `options.py`. An option that is not here makes a command no read, so options
that write, delete, run a program, open a connection or take file names from a file are left out on purpose. Long
options count only when spelled out: an abbreviation may stand for an option that is left out.

Operands: `@read` files, `@list` files or else the current directory, `@walk` trees or else the current directory,
`@pattern` a pattern and then files, `@filter` a program text and then files, `@text` no files, `@none` must be absent,
`@one` at most one file, `@key` one dotted name, `@anything` any words at all, those that are not literal too.
"""

from __future__ import annotations

from surehand.shell.options import names

_CHECKSUM = (
    "-b -c -t -z -w --binary --check --tag --text --zero --ignore-missing --quiet --status --strict --warn * @read"
)
_ZCAT = "-f -q -v --force --quiet --verbose @read"
_GREP = (
    "-EFGPivwxcoqsnHhbaILlTUzZruRdDmABCy -e: -f:r -# --extended-regexp --fixed-strings --basic-regexp --perl-regexp "
    "--regexp: --file:r --ignore-case --no-ignore-case --invert-match --word-regexp --line-regexp --count --color? "
    "--colour? --files-without-match --files-with-matches --max-count: --only-matching --quiet --silent --no-messages "
    "--byte-offset --with-filename --no-filename --label: --line-number --initial-tab --null --after-context: "
    "--before-context: --context: --group-separator: --no-group-separator --text --binary-files: --devices: "
    "--directories: --exclude: --exclude-from:r --exclude-dir: --include: --recursive --dereference-recursive "
    "--line-buffered --null-data --binary -m: -A: -B: -C: -d: -D: * @pattern"
)

CHECKSUMS = names("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum shasum")
"""Programs that take the names of files out of a list (`-c`): `file_lists.py` reads it."""

READ_ONLY: dict[str, str] = {
    # Text and files
    "cat": "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
    "--show-nonprinting * @read",
    "tac": "-b -r -s: --before --regex --separator: * @read",
    "rev": "-0 --zero * @read",
    "nl": "-b: -d: -f: -h: -i: -l: -n: -p -s: -v: -w: --body-numbering: --starting-line-number: --number-width: * "
    "@read",
    "head": "-qvz -n: -c: -# --lines: --bytes: --quiet --silent --verbose --zero-terminated * @read",
    "tail": "-qvzfFr -n: -c: -s: -# --lines: --bytes: --follow? --retry --quiet --silent --verbose --zero-terminated "
    "--sleep-interval: --pid: * @read",
    "wc": "-clmwL --bytes --chars --lines --words --max-line-length --total: * @read",
    "sort": "-bdfghiMnRrVcCmsuz -k: -t: -S: --ignore-leading-blanks --dictionary-order --ignore-case "
    "--general-numeric-sort --human-numeric-sort --ignore-nonprinting --month-sort --numeric-sort --random-sort "
    "--reverse --version-sort --sort: --check? --merge --key: --field-separator: --stable --unique --zero-terminated "
    "--buffer-size: --parallel: --batch-size: --debug @read",
    "uniq": "-cdDiuz -f: -s: -w: -# --count --repeated --all-repeated? --group? --ignore-case --unique --skip-fields: "
    "--skip-chars: --check-chars: --zero-terminated @one",
    "cut": "-b: -c: -d: -f: -nsz --bytes: --characters: --delimiter: --fields: --only-delimited --complement "
    "--output-delimiter: --zero-terminated * @read",
    "tr": "-cCdst --complement --delete --squeeze-repeats --truncate-set1 * @text",
    "paste": "-d: -s -z --delimiters: --serial --zero-terminated * @read",
    "join": "-a: -e: -i -j: -o: -t: -v: -1: -2: -z --ignore-case --check-order --nocheck-order --header "
    "--zero-terminated * @read",
    "comm": "-123z --check-order --nocheck-order --output-delimiter: --total --zero-terminated * @read",
    "fold": "-bs -w: -# --bytes --spaces --width: * @read",
    "fmt": "-cstu -w: -g: -p: -# --crown-margin --tagged-paragraph --split-only --uniform-spacing --width: --goal: "
    "--prefix: * @read",
    "expand": "-i -t: -# --initial --tabs: * @read",
    "unexpand": "-a -t: --all --first-only --tabs: * @read",
    "column": "-txJeL -s: -o: -c: -N: -H: -R: -T: -W: -O: -E: -d --table --separator: --output-separator: --columns: "
    "--output-width: --table-columns: --table-hide: --table-right: --fillrows --json --table-name: * @read",
    "pr": "-adFfmtTvr -h: -l: -o: -s? -w: -W: -n? -e? -i? -# @read",
    "tsort": "* @read",
    "shuf": "-erz -n: -i: --echo --head-count: --input-range: --repeat --zero-terminated @read",
    "iconv": "-f: -t: -c -s -l --from-code: --to-code: --list --silent @read",
    "numfmt": "--from: --to: --from-unit: --to-unit: --padding: --round: --suffix: --format: --field: --header? "
    "--delimiter: --grouping --invalid: -d: -z * @text",
    "diff": "-qsraNiEbwBuyctednpTHW: -U: -C: -I: -F: -x: -X:r -S: -W: -D: --brief --report-identical-files --recursive "
    "--text --new-file --unidirectional-new-file --ignore-case --ignore-tab-expansion --ignore-space-change "
    "--ignore-all-space --ignore-blank-lines --ignore-matching-lines: --ignore-trailing-space --unified? --context? "
    "--side-by-side --width: --suppress-common-lines --left-column --show-c-function --show-function-line: --label: "
    "--exclude: --exclude-from:r --strip-trailing-cr --minimal --speed-large-files --color? --palette: --normal "
    "--ed --rcs --no-dereference --tabsize: --expand-tabs --starting-file: --line-format: @walk_operands",
    "cmp": "-bls -i: -n: --print-bytes --verbose --ignore-initial: --bytes: --quiet --silent * @read",
    "diffstat": "-p: -w: -n: -k -l -r: -s -t -u -C -c @read",
    "od": "-A: -j: -N: -S: -t: -v -w? -abcdfilosx --address-radix: --skip-bytes: --read-bytes: --strings? --format: "
    "--output-duplicates --width? --endian: * @read",
    "hexdump": "-bcCdoxv -n: -s: -e: -f:r --canonical --length: --skip: --no-squeezing * @read",
    "hd": "-bcCdoxv -n: -s: * @read",
    "xxd": "-abeEipuC -c: -g: -l: -n: -o: -s: -R: @one",
    "strings": "-afow -n: -t: -e: -d -# --all --bytes: --radix: --encoding: --print-file-name * @read",
    "base64": "-di -w: --decode --ignore-garbage --wrap: * @read",
    "base32": "-di -w: --decode --ignore-garbage --wrap: * @read",
    **dict.fromkeys(CHECKSUMS, _CHECKSUM),
    "b2sum": _CHECKSUM + " -l: --length:",
    "cksum": _CHECKSUM + " -a: --algorithm: --untagged --raw --base64",
    "md5": "-q -r -s: * @read",
    "shasum": "-a: -b -c -t -q -s -w -0 -U --algorithm: --binary --check --tag --text --status --quiet --strict --warn "
    "--ignore-missing --UNIVERSAL --01 * @read",
    "sum": "-rs --sysv * @read",
    "file": "-bihkLNpPrsv0dE -F: -e: -P: --brief --mime --mime-type --mime-encoding --dereference --no-dereference "
    "--keep-going --no-pad --raw --extension --apple --separator: --exclude: --print0 --special-files "
    "--uncompress-noreport @read",
    "stat": "-fLt -c: --file-system --dereference --terse --format: --printf: --cached: * @read",
    "readlink": "-fenqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet --silent "
    "--verbose --zero * @read",
    "realpath": "-eLmPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet --relative-to: "
    "--relative-base: --strip --no-symlinks --zero * @read",
    "basename": "-az -s: --multiple --suffix: --zero * @text",
    "dirname": "-z --zero * @text",
    "pathchk": "-pP --portability * @text",
    "jq": "-ncrRsaSCMejh -C --tab --indent: --null-input --raw-input --slurp --compact-output --raw-output "
    "--join-output --ascii-output --sort-keys --color-output --monochrome-output --exit-status --arg:: --argjson:: "
    "--args --jsonargs --seq --stream --stream-errors --unbuffered --raw-output0 @filter",
    "yq": "-ncrRPCMejN -I: -o: -p: --null-input --raw-output --prettyPrint --colors --no-colors --exit-status "
    "--indent: --output-format: --input-format: --no-doc --unwrapScalar? -y -Y @filter",
    "zcat": _ZCAT,
    "gzcat": _ZCAT,
    "bzcat": _ZCAT,
    "xzcat": _ZCAT,
    "zstdcat": _ZCAT,
    "zgrep": "-EFivwxcoqsnHhLlm: -e: -A: -B: -C: @pattern",
    "zipinfo": "-12smlvhMtTzC @read",
    "less": "-eEFgiIJmMnNqQrRsSuUwWXx: -p: -# --quit-if-one-screen --RAW-CONTROL-CHARS --LINE-NUMBERS "
    "--chop-long-lines --no-init --ignore-case @read",
    "more": "-dflpcsu -n: -# @read",
    "bat": "-Anpfu -l: -r: -H: --plain --number --show-all --style: --color: --paging: --line-range: --language: "
    "--highlight-line: --decorations: --wrap: --theme: --tabs: --list-languages --list-themes --file-name: @read",
    "batcat": "-Anp -l: -r: --plain --number --style: --color: --paging: --line-range: @read",
    "nm": "-aAgDnpPruSsCl --demangle? --dynamic --extern-only --undefined-only --defined-only --numeric-sort @read",
    "size": "-ABdox --format: --totals @read",
    "readelf": "-ahlSgtesnrudVAIWDpx --all --file-header --program-headers --section-headers --symbols --dynamic "
    "--notes --wide -p: -x: @read",
    "objdump": "-afhxtTrRspdDlwC -M: -j: -m: --disassemble? --all-headers --section-headers --syms @read",
    # Directories
    "ls": "-aAbBcCdDfFgGhHiIklLmnNopqQrRsStTuUvwxXZ1 -I: -w: -T: --all --almost-all --author --escape --block-size: "
    "--ignore-backups --color? --directory --dired --classify? --file-type --format: --full-time "
    "--group-directories-first --no-group --human-readable --si --dereference-command-line "
    "--dereference-command-line-symlink-to-dir --hide: --hyperlink? --indicator-style: --inode --ignore: --kibibytes "
    "--dereference --numeric-uid-gid --literal --hide-control-chars --show-control-chars --quote-name --quoting-style: "
    "--reverse --recursive --size --sort: --time: --time-style: --tabsize: --width: --context --zero * @list",
    "dir": "-aAlhRrtS1 --color? * @list",
    "vdir": "-aAlhRrtS1 --color? * @list",
    "exa": "-1aadFGhilLmrRsTuUxHgSBn -L: -s: -I: --long --tree --level: --all --git --icons --sort: --color: @list",
    "eza": "-1aadFGhilLmrRsTuUxHgSBn -L: -s: -I: --long --tree --level: --all --git --icons? --sort: --color? @list",
    "tree": "-adflxqNQpugshDFiUvtcrnACJX -L: -P: -I: --prune --dirsfirst --filesfirst --noreport --charset: "
    "--filelimit: "
    "--gitignore --gitfile:r --matchdirs --ignore-case --si --du --inodes --device --timefmt: --sort: --metafirst "
    "--fromfile --info -S -Z @walk",
    "du": "-0aAbBcDHhklLmPsSx -B: -d: -t: -X:r --null --all --apparent-size --block-size: --bytes --total "
    "--dereference-args --max-depth: --human-readable --inodes --count-links --dereference --no-dereference "
    "--separate-dirs --si --summarize --threshold: --time? --time-style: --exclude-from:r --exclude: --one-file-system "
    "* @walk",
    "df": "-aBhHiklPTx -B: -t: -x: --all --block-size: --human-readable --si --inodes --local --no-sync --output? "
    "--portability --print-type --total --type: --exclude-type: @text",
    "getfacl": "-acedsnptLPR @read",
    "lsattr": "-RVadlpv @list",
    "pwd": "-LP * @none",
    # Search
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": "-.0FHILNPSUabchilnopqsuvwxV -A: -B: -C: -E: -M: -T: -d: -e: -f:r -g: -j: -m: -r: -t: --after-context: "
    "--auto-hybrid-regex --before-context: --binary --block-buffered --byte-offset --case-sensitive --color: --colors: "
    "--column --context: --context-separator: --count --count-matches --crlf --debug --dfa-size-limit: --encoding: "
    "--engine: --field-context-separator: --field-match-separator: --file:r --files --files-with-matches "
    "--files-without-match --fixed-strings --follow --glob: --glob-case-insensitive --heading --hidden --iglob: "
    "--ignore-case --ignore-file:r --ignore-file-case-insensitive --include-zero --invert-match --json --line-buffered "
    "--line-number --line-regexp --max-columns: --max-columns-preview --max-count: --max-depth: --max-filesize: --mmap "
    "--multiline --multiline-dotall --no-config --no-filename --no-heading --no-hidden --no-ignore --no-ignore-dot "
    "--no-ignore-exclude --no-ignore-files --no-ignore-global --no-ignore-messages --no-ignore-parent --no-ignore-vcs "
    "--no-line-number --no-messages --no-mmap --no-pcre2-unicode --no-require-git --no-unicode --null --null-data "
    "--one-file-system --only-matching --passthru --path-separator: --pcre2 --pcre2-version --pretty --quiet "
    "--regex-size-limit: --regexp: --replace: --smart-case --sort: --sortr: --stats --stop-on-nonmatch --text "
    "--threads: "
    "--trace --trim --type: --type-list --type-not: --unrestricted --version --vimgrep --with-filename --word-regexp "
    "--type-add: --type-clear: --no-column --no-trim --no-multiline --no-json --no-crlf --no-text --no-stats "
    "--maxdepth: --generate: @pattern_or_files",
    "ag": "-acgGhHilLnoQrRsSuUvwz0 -A? -B? -C? -G: -m: -g: --ackmate --after? --before? --context? --column --count "
    "--color --nocolor --depth: --files-with-matches --files-without-matches --filename --nofilename --heading "
    "--noheading --hidden --ignore: --ignore-case --ignore-dir: --literal --max-count: --numbers --nonumbers "
    "--only-matching --smart-case --stats --vimgrep --word-regexp @pattern",
    "fd": "-HIuseagpLqF0lv1 -d: -t: -e: -S: -E: -c: -j: -o: -M: --hidden --no-ignore --no-ignore-vcs --unrestricted "
    "--case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path --full-path --follow --print0 "
    "--max-depth: --min-depth: --exact-depth: --type: --extension: --size: --changed-within: --changed-before: "
    "--exclude: --color: --threads: --max-results: --quiet --list-details --prune --strip-cwd-prefix? "
    "@pattern_or_files",
    "fdfind": "-HIuseagpLqF0lv1 -d: -t: -e: -S: -E: -c: --hidden --no-ignore --glob --full-path --max-depth: --type: "
    "--extension: --exclude: --color: @pattern_or_files",
    "locate": "-AbceiLlnqrSw0 -l: -n: -r: --basename --count --existing --ignore-case --limit: --regex --wholename "
    "@text",
    "which": "-as --all --skip-alias --skip-functions --skip-dot --skip-tilde --tty-only * @text",
    "whereis": "-bmsu * @text",
    "type": "-afptP * @text",
    "look": "-adf -t: --alternative --alphanum --ignore-case --terminate: @filter",
    # The system
    "date": "-uRI? -d: -r:r -u -R --date: --utc --universal --rfc-email --rfc-3339: --iso-8601? --reference:r "
    "--debug @date",
    "cal": "-1 -3 -j -m -s -y -w -n: @text",
    "uname": "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine --processor "
    "--hardware-platform --operating-system * @none",
    "arch": "* @none",
    "nproc": "--all --ignore: @none",
    "whoami": "* @none",
    "logname": "* @none",
    "id": "-aGgnruzZ --group --groups --name --real --user --zero --context * @text",
    "groups": "* @text",
    "users": "* @none",
    "who": "-abdHlmpqrstTu --all --heading * @read",
    "w": "-hfsio @text",
    "hostname": "-fsdiIAy --fqdn --long --short --domain --ip-address --all-ip-addresses --all-fqdns @none",
    "hostid": "@none",
    "tty": "-s --silent --quiet @none",
    "uptime": "-ps --pretty --since @none",
    "free": "-bkmghltw -s: -c: --bytes --kibi --mebi --gibi --human --si --lohi --total --wide @none",
    "ps": "-AadefFHjlLmMNrTuvwxXyZcgsS1 -C: -G: -g: -o: -O: -p: -s: -t: -u: -U: --pid: --ppid: --sort: --format: "
    "--forest --no-headers --headers --cols: --columns: --width: --user: --group: --sid: --tty: --deselect @text",
    "pgrep": "-acfilLnovwx -d: -g: -G: -P: -s: -t: -u: -U: --list-name --list-full --count --full --exact --newest "
    "--oldest --parent: --euid: @text",
    "pidof": "-sqcx -o: @text",
    "pstree": "-aAcghHlnNpsStTuUZ @text",
    "ss": "-46abelmnoprstuwxHO --all --listening --numeric --processes --summary --tcp --udp @text",
    "netstat": "-46aelnoprstuvwx @none",
    "vmstat": "-adDfmnstwS: @text",
    "top": "-bHiSc -n: -d: -p: -o: -u: -w? -# @none",
    "lscpu": "-abceJpxy -e? -p? --all --extended? --json --parse? @none",
    "lsmod": "@none",
    "findmnt": "-aAlrJnuD -t: -o: --json --list --raw @text",
    "journalctl": "-aefrxq -n: -u: -p: -S: -U: -g: -o: -b? -k --no-pager --since: --until: --unit: --lines: "
    "--priority: --output: --grep: --reverse --boot? --dmesg --list-boots --disk-usage --user --system @none",
    "lsblk": "-abdDfJilmnOPpSstTz -o: -e: -I: -x: --all --bytes --fs --json --list --output: --paths --topology @text",
    "getconf": "-a @text",
    "locale": "-a -m -c -k --all-locales --charmaps @text",
    "printenv": "-0 --null * @text",
    "tput": "@text",
    "sleep": "@text",
    "true": "* @anything",
    "false": "* @anything",
    ":": "* @anything",
    "echo": "-neE * @anything",
    "seq": "-f: -s: -w --format: --separator: --equal-width -# * @text",
    "expr": "* @anything",
    "factor": "* @anything",
    "yes": "* @anything",
    "bc": "-lqsw --mathlib --quiet --standard --warn @read",
    "man": "-kfwaWiI -s: -S: --apropos --whatis --where --path --all --sections: @names",
    "apropos": "-ae -s: @text",
    "whatis": "-w -s: @text",
    "help": "-dms @text",
    "lsof": "-ablnPRtUVw -p: -i? -s? -c: -u: -d: @read",
    # The shell itself
    "cd": "-LPe@ @anything",
    "pushd": "-n @anything",
    "popd": "-n @anything",
    "dirs": "-lpv @text",
    "exit": "* @anything",
    "return": "* @anything",
    "break": "@text",
    "continue": "@text",
    "shift": "@text",
    "wait": "-f -n @anything",
    "jobs": "-lnprs @text",
    "times": "@none",
}

# Programs that tell their version or print help and do nothing else when that is all they are asked. Those that read
# a project's settings even then, and run what they find there (yarn, mvn, dotnet, hg, pytest...), are left out.
VERSION_FLAGS = frozenset(("--version", "--help"))
VERSIONED = names(
    """
    python python2 python3 pip pip3 node npm npx tsc ruby gem perl php java javac go rustc cargo rustup gcc g++ cc c++
    clang clang++ cmake make gmake ninja meson docker podman kubectl helm aws gcloud az gh git svn curl wget ssh rsync
    tar gzip zip unzip xz bzip2 zstd sed awk gawk bash sh dash zsh ls cat grep rg fd find sort jq yq sqlite3 psql mysql
    redis-cli vim nvim emacs nano code tmux screen black ruff mypy uv uvx pipx shfmt shellcheck pandoc ffmpeg protoc
    rustfmt hyperfine tokei scc fzf delta htop btop ncdu difft glow lsd pre-commit virtualenv cabal stack opam dune
    gfortran nvcc gdb lldb valgrind ltrace
    swift ghc lua luajit julia R Rscript openssl gpg nginx systemctl dpkg rpm apt apt-get brew nix deno bun surehand
    cp mv rm mkdir rmdir touch chmod chown ln dd tee split truncate install mktemp patch kill
    ldd xargs timeout nice nohup stdbuf tree less man df du ps env head tail wc cut uniq tr diff file stat test printf
    """
)
# The short spellings, which mean something else to others: `dash -V` and `vim -V` read commands from standard input.
SHORT_VERSIONED: dict[str, frozenset[str]] = {
    "-V": names(
        """
        python python2 python3 pip pip3 perl cargo rustc rustup ruff uv mypy ssh rsync curl wget psql mysql nginx tmux
        nano emacs ghc deno gzip xz zstd gawk kill
        """
    ),
    "-version": names("java javac perl cmake ffmpeg sqlite3 screen emacs swift find openssl"),
}
# Others spell it in a way of their own.
EXACT: dict[str, tuple[tuple[str, ...], ...]] = {
    "go": (("version",), ("help",), ("env",)),
    "node": (("-v",),),
    "npm": (
        ("-v",),
        ("version",),
        ("ls",),
        ("list",),
        ("root",),
        ("root", "-g"),
        ("bin",),
        ("prefix",),
        ("prefix", "-g"),
    ),
    "ruby": (("-v",),),
    "perl": (("-v",),),
    "php": (("-v",),),
    "kubectl": (("version", "--client"),),
    "docker": (("version",), ("-v",)),
    "cargo": (("version",), ("help",), ("--list",)),
    "rustc": (("-vV",), ("--version", "--verbose")),
    "openssl": (("version",),),
    "ifconfig": ((), ("-a",)),
    "nginx": (("-v",),),
    "lua": (("-v",),),
    "helm": (("version",),),
    "gh": (("version",),),
    "swift": (("-v",),),
    "docker-compose": (("version",),),
}
