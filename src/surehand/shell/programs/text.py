"""Programs that print text: filters, comparisons, pagers, and those that query JSON and YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict, names
from surehand.shell.programs.record import Call, Form, Program, own_options, refusing, without
from surehand.shell.touches import Operands, Touch, parse_leniently
from surehand.shell.word import Word
from surehand.shell.wrappers import scripts

_pager_options = own_options(r"-[A-WYZa-wyz~]*(?:x?\d+(?:,\d+)*|x)?|-p[^$]*")


def _judge_pager(call: Call) -> Verdict:
    """Judge a pager, which runs commands given as `+!command` or after the end of a `-p` pattern."""
    if any(word.text.startswith("+") or not word.text.isprintable() for word in call.words):
        return Verdict(f"`{call.name} +command` runs a command")
    if any(re.match(r"-[A-Za-z~]*[px][A-Za-z]*", word.text) and "$" in word.text for word in call.words):
        return Verdict(f"`{call.name}` takes what follows a dollar sign for further options")
    return _pager_options(call)


# Filters that read other files (`import "x" as $x;`) or print the environment. Fields may have any name: `.include` and
# `.env` are data.
_JQ_READS_MORE = r"""(?<![.$\w"])(?:include|import|env|modulemeta|ENV)\b|\$ENV\b"""
# Operators of `yq` need neither blanks around them nor brackets after them.
_YQ_READS_MORE = lazy_pattern(r"load|env|eval|system|" + _JQ_READS_MORE)
_YQ_DATA = lazy_pattern(r"""(\.{2,3})|"(?:[^"\\]|\\.)*"|\.[A-Za-z_][\w-]*""")
_YQ_NO_DATA = lazy_pattern(r"\\\(|#")  # interpolation; a comment, in which a quote opens no string
_PLAIN_FILE = lazy_pattern(r"[\w./-]+")
_YQ_SUBCOMMANDS = names("e ea eval eval-all")


def _judge_yq(call: Call) -> Verdict:
    """Judge both programs named `yq`: one takes filters of `jq`, the other its own expressions.

    The latter reads an expression that is the name of a file as that file.
    """
    words = call.words
    given = words[1:] if words and words[0].literal and words[0].text in _YQ_SUBCOMMANDS else words
    operands = options.parse(given, options.flags(call.program.reads)).operands
    for at, word in enumerate(operands):
        text = word.text if _YQ_NO_DATA.search(word.text) else _YQ_DATA.sub(r"\1 ", word.text)
        is_file = at > 0 and _PLAIN_FILE.fullmatch(word.text)
        if not is_file and (_YQ_READS_MORE.search(text) or word.text.endswith(".yq")):
            return Verdict("the expression of `yq` may read other files")
    verdict = call.judge_options(given)
    verdict.may_read = tuple(operands[:1])
    return verdict


_CHARACTER_SET = lazy_pattern(r"[\w.:+-]*(?://\w*)*", re.ASCII)


def _judge_iconv(call: Call) -> Verdict:
    """Judge `iconv`, which loads a character set whose name has a `/` from a file."""
    parsed = options.parse(call.words, options.flags(call.program.reads))
    named = parsed.values("-f", "-t", "--from-code", "--to-code")
    if not all(word.literal and _CHARACTER_SET.fullmatch(word.text) for word in named):
        return Verdict("`iconv` may read a character set from a file")
    return call.judge_options()


def _sort_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = parse_leniently(
        words, "-bdfghiMnRrVcCmsuz -k: -t: -S: -T: -o: --key: --field-separator: --output: --files0-from:r"
    )
    for word in [*parsed.operands, *parsed.read]:
        yield Touch("read", word)
    for word in parsed.values("-o", "--output"):
        yield Touch("write", word)


PROGRAMS: tuple[Program, ...] = (
    Program("cat", heeds="own", kind="read",
            reads="-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
            "--show-nonprinting * @read", runs=("cat -n a.txt", "cat a.txt b.txt"), asks=("cat /etc/passwd",)),
    Program("tac", heeds="own",
            kind="read", reads="-b -r -s: --before --regex --separator: * @read", runs=("tac f", "tac a.txt"),
            asks=("tac --output=out a.txt",)),
    Program("rev", heeds="own", kind="read", reads="-0 --zero * @read", runs=("rev f", "rev a.txt"),
            asks=("rev --output=out a.txt",)),
    Program("nl", heeds="own", kind="read",
            reads="-b: -d: -f: -h: -i: -l: -n: -p -s: -v: -w: --body-numbering: --starting-line-number: "
            "--number-width: * @read", runs=("nl -ba a.txt", "nl -ba src/app.py"), asks=("nl --output=out a.txt",)),
    Program("head", heeds="own", kind="read",
            reads="-qvz -n: -c: -# --lines: --bytes: --quiet --silent --verbose --zero-terminated * @read",
            keeps_lines=without("-c", "--bytes", "-v", "--verbose"), runs=("head -n1 *.md", "head -1 data.csv"),
            asks=("head --output=out a.txt",)),
    Program("tail", heeds="own", kind="read",
            reads="-qvzfFr -n: -c: -s: -# --lines: --bytes: --follow? --retry --quiet --silent --verbose "
            "--zero-terminated --sleep-interval: --pid: * @read",
            keeps_lines=without("-c", "--bytes", "-v", "--verbose"), runs=("tail -5 a.txt", "tail -1 app.log"),
            asks=("tail --output=out a.txt",)),
    Program("wc", heeds="own",
            kind="read", reads="-clmwL --bytes --chars --lines --words --max-line-length --total: * @read",
            runs=("wc -c f", "wc -l *.py"), asks=("wc --files0-from=list",)),
    Program("sort", heeds="own", kind="read",
            reads="-bdfghiMnRrVcCmsuz -k: -t: -S: --ignore-leading-blanks --dictionary-order --ignore-case "
            "--general-numeric-sort --human-numeric-sort --ignore-nonprinting --month-sort --numeric-sort "
            "--random-sort --reverse --version-sort --sort: --check? --merge --key: --field-separator: --stable "
            "--unique --zero-terminated --buffer-size: --parallel: --batch-size: --debug @read",
            touches=_sort_touches, starts=scripts("--compress-program"), keeps_lines=without("--debug"),
            runs=("sort -n f", "sort -u f"), asks=("sort -u data.csv -o data.csv",)),
    Program("uniq", heeds="own", kind="read",
            reads="-cdDiuz -f: -s: -w: -# --count --repeated --all-repeated? --group? --ignore-case --unique "
            "--skip-fields: --skip-chars: --check-chars: --zero-terminated @one",
            touches=Operands("through", "-cdDiuz -f: -s: -w: --skip-fields: --skip-chars: --check-chars:"),
            keeps_lines=without("-c", "--count"), runs=("uniq -c a.txt", "uniq -c data.csv"), asks=("uniq - out",)),
    Program("cut", heeds="own", kind="read",
            reads="-b: -c: -d: -f: -nsz --bytes: --characters: --delimiter: --fields: --only-delimited --complement "
            "--output-delimiter: --zero-terminated * @read", runs=("cut -f2 f", "cut -c1-80 f"),
            asks=("cut --output=out a.txt",)),
    Program("tr", heeds="own",
            kind="read", reads="-cCdst --complement --delete --squeeze-repeats --truncate-set1 * @text",
            runs=("tr a-z A-Z",), asks=("tr --output=out a.txt",)),
    Program("paste", heeds="own", kind="read", reads="-d: -s -z --delimiters: --serial --zero-terminated * @read",
            runs=("paste -sd, f", "paste -sd, a.txt"), asks=("paste --output=out a.txt",)),
    Program("join", heeds="own", kind="read",
            reads="-a: -e: -i -j: -o: -t: -v: -1: -2: -z --ignore-case --check-order --nocheck-order --header "
            "--zero-terminated * @read", runs=("join a.txt b.txt", "join -t, a.txt b.txt"),
            asks=("join --output=out a.txt",)),
    Program("comm", heeds="own", kind="read",
            reads="-123z --check-order --nocheck-order --output-delimiter: --total --zero-terminated * @read",
            exit_1_means_no=True, runs=("comm a.txt b.txt", "comm -3 a.txt b.txt"), asks=("comm --output=out a.txt",)),
    Program("fold", heeds="own", kind="read", reads="-bs -w: -# --bytes --spaces --width: * @read",
            runs=("fold -w 80 f", "fold -w 80 a.txt"), asks=("fold --output=out a.txt",)),
    Program("fmt", heeds="own", kind="read",
            reads="-cstu -w: -g: -p: -# --crown-margin --tagged-paragraph --split-only --uniform-spacing --width: "
            "--goal: --prefix: * @read", runs=("fmt README.md", "fmt -w 72 a.txt"), asks=("fmt --output=out a.txt",)),
    Program("expand", kind="read", reads="-i -t: -# --initial --tabs: * @read",
            runs=("expand -t4 src/app.py", "expand README.md"), asks=("expand --output=out a.txt",)),
    Program("unexpand", kind="read", reads="-a -t: --all --first-only --tabs: * @read",
            runs=("unexpand -a src/app.py", "unexpand a.txt"), asks=("unexpand --output=out a.txt",)),
    Program("column", heeds="own", kind="read",
            reads="-txJeL -s: -o: -c: -N: -H: -R: -T: -W: -O: -E: -d --table --separator: --output-separator: "
            "--columns: --output-width: --table-columns: --table-hide: --table-right: --fillrows --json "
            "--table-name: * @read", runs=("column -t f", "column -t data.csv"), asks=("column -n a",)),
    Program("col", aliases=("colcrt",), kind="read", reads="-bfhpx2 -l: @none", runs=("col -bx",), asks=("col a.txt",)),
    Program("pv", kind="read", reads="-p -t -e -r -b -a -n -q -l -f -i -W -s: -N: @read", runs=("pv a.txt",),
            asks=("pv -o x a.txt", "pv -d 1")),
    Program("ts", kind="read", reads="-r -i -s -m @text", runs=("ts -s",), asks=("ts -x",)),
    Program("colrm", kind="read", reads="@text", runs=("colrm 5 10",), asks=("colrm -x",)),
    Program("ul", kind="read", reads="-i -t: -T: @read", runs=("ul a.txt",), asks=("ul -x a.txt",)),
    Program("pr", kind="read", reads="-adFfmtTvr -h: -l: -o: -s? -w: -W: -n? -e? -i? -# @read",
            runs=("pr -t README.md", "pr a.txt"), asks=("pr -x README.md",)),
    Program("tsort", kind="read", reads="* @read", runs=("tsort names.txt", "tsort a.txt"),
            asks=("tsort --output=out a.txt",)),
    Program("shuf", kind="read",
            reads="-erz -n: -i: --echo --head-count: --input-range: --repeat --zero-terminated @read",
            runs=("shuf -n 1 f", "shuf -n 1 a.txt"), asks=("shuf --output=out f",)),
    Program("iconv", kind="read", reads="-f: -t: -c -s -l --from-code: --to-code: --list --silent @read",
            check=_judge_iconv, runs=("iconv -l", "iconv -f latin1 -t utf8 f", "iconv -t ascii//TRANSLIT f"),
            asks=("iconv --output=out f", "iconv -f ./x f", "iconv --to-code=../x f")),
    Program("numfmt", kind="read",
            reads="--from: --to: --from-unit: --to-unit: --padding: --round: --suffix: --format: --field: --header? "
            "--delimiter: --grouping --invalid: -d: -z * @text",
            runs=("numfmt --to=iec 1024", "numfmt --to=iec 123456"), asks=("numfmt --output=out a.txt",)),
    Program("seq", heeds="own", kind="read", reads="-f: -s: -w --format: --separator: --equal-width -# * @text",
            runs=("seq 1 10", "seq -s, 5"), asks=("seq --output=out a.txt",)),
    Program("expr", heeds="own", kind="read", reads="* @anything", exit_1_means_no=True,
            runs=("expr length abc", "expr length hello")),
    Program("factor", kind="read", reads="* @anything", runs=("factor 12", "factor 42")),
    Program("bc", kind="read", reads="-lqsw --mathlib --quiet --standard --warn @read", runs=("bc -l",),
            asks=("bc -f x",)),
    Program("yes", reads="* @anything", runs=("yes n",)),
    Program("diff", heeds="own", kind="read",
            reads="-qsraNiEbwBuyctednpTHW: -U: -C: -I: -F: -x: -X:r -S: -W: -D: --brief --report-identical-files "
            "--recursive --text --new-file --unidirectional-new-file --ignore-case --ignore-tab-expansion "
            "--ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines: "
            "--ignore-trailing-space --unified? --context? --side-by-side --width: --suppress-common-lines "
            "--left-column --show-c-function --show-function-line: --label: --exclude: --exclude-from:r "
            "--strip-trailing-cr --minimal --speed-large-files --color? --palette: --normal --ed --rcs "
            "--no-dereference --tabsize: --expand-tabs --starting-file: --line-format: @walk_operands",
            follows=("-r", "--recursive"), exit_1_means_no=True, runs=("diff a.txt b.txt", "diff *.md README.md"),
            asks=("diff -l a b",)),
    Program("colordiff", kind="read", forms=(Form("", "-uqrybwBiEaNs -U: -C: -W: --brief --unified? --side-by-side "
                                                  "--recursive --ignore-all-space --color: @walk_operands",
                                                  everything=True),),
            version="--version --help", exit_1_means_no=True, runs=("colordiff -u a.txt b.txt",),
            asks=("colordiff -l a b", "colordiff --difftype=x a b")),
    Program("sdiff",
            forms=(
                Form("", "-abBdEiHlstW -w: -I: --text --ignore-case --ignore-all-space --ignore-space-change "
                     "" "--ignore-blank-lines --left-column --suppress-common-lines --width: --minimal @read"),
            ),
            runs=("sdiff a.txt b.txt", "sdiff a.txt"), asks=("sdiff --output=x a b",)),
    Program("diff3", kind="read",
            reads="-aAeEiTxX3m --text --show-all --ed --show-overlap --easy-only --overlap-only --merge --initial-tab "
            "--strip-trailing-cr --label: -L: @read", exit_1_means_no=True, runs=("diff3 a.txt b.txt README.md",),
            asks=("diff3 --diff-program=./x a b c",)),
    Program("cmp", heeds="own", kind="read",
            reads="-bls -i: -n: --print-bytes --verbose --ignore-initial: --bytes: --quiet --silent * @read",
            exit_1_means_no=True, runs=("cmp a.bin b.bin", "cmp a.txt b.txt"), asks=("cmp --output=out a.txt",)),
    Program("diffstat", kind="read", reads="-p: -w: -n: -k -l -r: -s -t -u -C -c @read", runs=("diffstat a.patch",),
            asks=("diffstat --output=out a.txt",)),
    Program("less", heeds="own", kind="read",
            reads="-eEFgiIJmMnNqQrRsSuUwWXx: -p: -# --quit-if-one-screen --RAW-CONTROL-CHARS --LINE-NUMBERS "
            "--chop-long-lines --no-init --ignore-case @read", check=_judge_pager,
            runs=("less -N README.md", "less -N src/app.py"), asks=("less -t tag",)),
    Program("more", heeds="own",
            kind="read", reads="-dflpcsu -n: -# @read", check=_judge_pager, runs=("more f", "more a.txt"),
            asks=("more +!x a",)),
    Program("bat", heeds="own", kind="read",
            reads="-Anpfu -l: -r: -H: --plain --number --show-all --style: --color: --paging: --line-range: "
            "--language: --highlight-line: --decorations: --wrap: --theme: --tabs: --list-languages --list-themes "
            "--file-name: @read", runs=("bat -n f", "bat -p README.md"), asks=("bat --pager=./x a",)),
    Program("batcat", kind="read",
            reads="-Anp -l: -r: --plain --number --style: --color: --paging: --line-range: @read",
            runs=("batcat a.txt",), asks=("batcat --output=out a.txt",)),
    Program("look", kind="search", reads="-adf -t: --alternative --alphanum --ignore-case --terminate: @filter",
            runs=("look word",), asks=("look --output=out a.txt",)),
    Program("jq", heeds="own", kind="read",
            reads="-ncrRsaSCMejh -C --tab --indent: --null-input --raw-input --slurp --compact-output --raw-output "
            "--join-output --ascii-output --sort-keys --color-output --monochrome-output --exit-status --arg:: "
            "--argjson:: --args --jsonargs --seq --stream --stream-errors --unbuffered --raw-output0 @filter",
            check=refusing(_JQ_READS_MORE, "the filter of `jq` may read other files"),
            runs=("jq -n '1+1'", "jq . *.json"), asks=("jq -n env",)),
    # Left out are options that load DTDs, entities or includes named in the document (also `--c14n`). A file with a
    # colon in its name may be a URL.
    Program("xmllint", kind="read",
            forms=(
                Form("", "--noout --format --pretty: --xpath: --recover --nonet --noblanks --nocdata --nsclean --huge "
                     "--html --quiet --nowarning --encode: --dropdtd --timing @read",
                     operand="[^:]+"),
            ),
            version="--version", runs=("xmllint --noout a.xml", "xmllint --xpath '//a/text()' a.xml"),
            asks=("xmllint --noent a.xml", "xmllint --output x a.xml", "xmllint http://host.test/a.xml")),
    Program("xsv", kind="read",
            forms=(
                *(Form(words, "-d: -n --delimiter: --no-headers --just-names @one")
                  for words in ("headers", "count", "stats", "table", "frequency", "flatten")),
                Form("slice", "-n -s: -e: -l: -i: -d: --start: --end: --len: --delimiter: @one"),
                Form("select", "-d: -n --delimiter: --no-headers @filter"),
                Form("search", "-i -v -s: -d: -n --select: --delimiter: @filter"),
            ),
            version="--version --help", runs=("xsv headers data.csv", "xsv select a,b data.csv"),
            asks=("xsv index data.csv", "xsv table -o x data.csv")),
    Program("csvlook", aliases=("csvstat", "csvcut", "csvgrep", "csvsort", "csvjson"), kind="read",
            forms=(
                Form("", "-d: -c: -n -H -r: -m: -i -C: -q: -e: --delimiter: --columns: --names --no-header-row "
                     "--regex: --match: --invert-match --max-rows: --max-columns: --csv --json --count --encoding: "
                     "@one"),
            ),
            version="--version --help", runs=("csvlook data.csv", "csvcut -c 1,2 data.csv"),
            asks=("csvgrep -f x data.csv", "csvlook a b")),
    Program("yq", kind="read",
            reads="-ncrRPCMejN -I: -o: -p: --null-input --raw-output --prettyPrint --colors --no-colors "
            "--exit-status --indent: --output-format: --input-format: --no-doc --unwrapScalar? -y -Y @filter",
            check=_judge_yq, runs=("yq . config.yml", "yq . config.yaml"), asks=("yq -ni '.a=1'",)),
)  # fmt: skip
