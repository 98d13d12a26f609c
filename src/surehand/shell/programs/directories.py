"""Programs that list directories, and print metadata of files: names, sizes, owners."""

from __future__ import annotations

from surehand.shell import options
from surehand.shell.options import names
from surehand.shell.programs.record import Call, Form, Program, own_options, refusing

_CLOC = (
    "--by-file --by-file-by-lang --csv --json --yaml --md --quiet --hide-rate --sum-one --skip-uniqueness --no-recurse "
    "--exclude-dir: --exclude-ext: --include-ext: --exclude-lang: --include-lang: --max-file-size: --progress-rate: "
    "--timeout: @walk"
)

_ORDERS = names("-1 -c -r -S -t -u -U -v -X --reverse --sort --time")


def _lists_with_ls(call: Call) -> bool:
    """Tell whether `ls` prints the names that patterns find, and no more: it is told in what order alone."""
    parsed = options.parse(call.words, options.flags(call.program.reads))
    named = bool(parsed.operands) and all(word.kind == "glob" for word in parsed.operands)
    return named and all(name in _ORDERS for name, _ in parsed.options)


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
    # Not with archives, which it unpacks, nor with what may name a commit: it has git export that.
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
)  # fmt: skip
