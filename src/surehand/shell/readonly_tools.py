"""Reads of developers' tools: compilers, package managers and formatters, by forms that are known to change nothing.

Many of them obey files of the folder they run in. `HEEDS` names those: each states that it reads its folder, and
`policy/projects.py` looks there for settings that make the tool run, print or write something else. Forms that load
code of the project whatever its settings say (`pytest --version`, `mvn -v`, `uv pip list`), or connect somewhere
(`npm view`, `docker ps`), are left out on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from surehand.core.frozen import frozen
from surehand.shell import options
from surehand.shell.options import names
from surehand.shell.verdict import Check, Verdict, by_table
from surehand.shell.word import Word


@frozen
class Form:
    """One way to call a program that only reads: the `words` it begins with, then known options and operands.

    `needs` are options of which one must be given (`--check`), `operand` a pattern that every operand must fit.
    `whole` is for programs whose options have long names after one dash (`go list -json`), written so in `options`.
    """

    words: str = ""
    options: str = "@none"
    needs: tuple[str, ...] = ()
    operand: str = ""
    least: int = 0  # operands it must have
    whole: bool = False
    everything: bool = False  # the files it is given are folders to go through, links in them included

    def judge(self, name: str, words: Sequence[Word]) -> Verdict:
        """Judge the words after those the form begins with."""
        title = f"{name} {self.words}".strip()
        given = list(_single_dashed(words)) if self.whole else words
        known = options.flags(_doubled(self.options) if self.whole else self.options)
        parsed = options.parse(given, known)
        if self.needs and not parsed.has(*self.needs):
            return Verdict(f"`{title}` without {' or '.join(self.needs)} is not known to only read")
        if len(parsed.operands) < self.least:
            return Verdict(f"`{title}` alone is not known to only read")
        if odd := next((word for word in parsed.operands if self.operand and not _fits(word, self.operand)), None):
            return Verdict(f"`{title} {odd.text}` is not known to only read", unreadable=not odd.literal)
        verdict = by_table(title, given, known)
        verdict.follows = verdict.recursive = self.everything or verdict.recursive
        return verdict


def _fits(word: Word, pattern: str) -> bool:
    return word.literal and re.fullmatch(pattern, word.text) is not None


def _doubled(line: str) -> str:
    return re.sub(r"(?<!\S)-(?=[A-Za-z])", "--", line)


def _single_dashed(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the words with `-name` written `--name`, as the table of such a program has them: both mean the same."""
    for word in words:
        single = word.literal and re.match(r"-[A-Za-z]", word.text)
        yield Word("-" + word.text) if single else word


def check_of(name: str, forms: Sequence[Form], otherwise: Check | None = None) -> Check:
    """Return a check that tries each form which begins as the words do."""

    def check(words: Sequence[Word]) -> Verdict:
        verdict = otherwise(words) if otherwise is not None else Verdict(f"`{name}` is not a known read")
        for form in forms if verdict.problem else ():
            begins = form.words.split()
            if [word.text for word in words[: len(begins)] if word.literal] != begins:
                continue
            verdict = form.judge(name, words[len(begins) :])
            if not verdict.problem:
                break
        return verdict

    return check


HEEDS = names(
    """cargo rustc rustup rustfmt go gofmt node npm npx tsc ruff black mypy python python2 python3 pip pip3 ruby gem
    php perl java javac lua"""
)
"""Programs that a file in their folder, or above it, may choose or steer."""

_NAME = r"[A-Za-z0-9@][\w@.+/-]*"  # of a package: neither an option nor a path
_PACKAGE = r"(?!.*\.\./)(?:\./)?(?:[A-Za-z_][\w./-]*|\.{3})|\./?"  # of Go: inside the module, at no version
_GO_LIST = "-json? -m -f: -deps -e -find -test -tags: @text"
_RUFF = (
    "-v -q -s -n -e --verbose --quiet --silent --no-cache --preview --no-preview --target-version: --exclude: "
    "--respect-gitignore --no-respect-gitignore --force-exclude --no-force-exclude --stdin-filename: --isolated --diff "
)
_RUFF_CHECK = _RUFF + (
    "--no-fix --select: --ignore: --extend-select: --extend-exclude: --per-file-ignores: --output-format: --statistics "
    "--exit-zero --exit-non-zero-on-fix --show-files --show-settings --unsafe-fixes --no-unsafe-fixes --ignore-noqa "
    "--extend-per-file-ignores: --fixable: --unfixable: --dummy-variable-rgx: --no-show-fixes --show-fixes @walk"
)
_BLACK = (
    "--check --diff -q -v -l: -t: -S -C -x --quiet --verbose --line-length: --target-version: --color --no-color "
    "--fast --safe --preview --pyi --ipynb --skip-string-normalization --skip-magic-trailing-comma --include: "
    "--exclude: --extend-exclude: --force-exclude: --workers: -W: @walk_operands"
)
_PKG_CONFIG = (
    "--list-all --modversion --cflags --libs --exists --print-errors --short-errors --variable: --atleast-version: "
    "--max-version: --exact-version: --static --print-variables --print-requires --print-provides --libs-only-l "
    "--libs-only-L --cflags-only-I --cflags-only-other @text"
)
_JAVAP = "-c -p -s -v -l -private -public -protected -package -constants -verbose -sysinfo -cp:r -classpath:r @text"
_SHFMT = "-l -d -s -p -i: -ln: -bn -ci -sr -kp -fn -f -mn -language-dialect: -indent: -list -diff -find -simplify @walk"
_RUSTC_KINDS = (
    "sysroot|cfg|target-list|target-cpus|target-features|crate-name|file-names|host-tuple|target-libdir|"
    "calling-conventions|relocation-models|code-models|tls-models|native-static-libs"
)

FORMS: dict[str, tuple[Form, ...]] = {
    # JavaScript. Keys with `:` or `_` hold credentials of a registry.
    "npm": (
        *(Form(words, "--json -g --global @text", operand=r"[a-z][a-z-]*", least=1)
          for words in ("config get", "get")),
        *(Form(words, "--json --all -a --long -l --parseable -p --depth: -g --global --omit: --include: @text")
          for words in ("ls", "list")),
        *(Form(words, "--json @text", operand=_NAME, least=1) for words in ("explain", "why")),
        Form("pkg get", "--json @text", operand=r"[\w.@/\[\]-]+"),
        Form("query", "@text"),
        Form("run", "--json @none"),
        Form("run-script", "--json @none"),
    ),
    # Go. It heeds git for the version of what is built; `simple.run` has that judged beside it.
    "go": (
        Form("env", "-json @text", operand="[A-Z0-9_]+", whole=True),
        Form("list", _GO_LIST, operand=_PACKAGE, whole=True, everything=True),
        Form("doc", "-all -c -cmd -short -src -u @text", operand=r"(?!/|.*\.\.)[\w./-]+", whole=True, everything=True),
        Form("help", "@text", operand=r"[\w-]+"),
    ),
    "gofmt": (Form("", "-l -d -e -s -r: @read", needs=("--l", "--d"), whole=True, everything=True),),
    # Rust. With dependencies `cargo metadata` writes a lock file.
    "cargo": (
        Form("metadata", "--no-deps --format-version: --offline --locked --frozen -q --quiet --color: @none",
             needs=("--no-deps",), everything=True),
        Form("locate-project", "--workspace --message-format: -q --quiet --color: --offline @none"),
        Form("read-manifest", "--offline --frozen --locked -q @none"),
        Form("verify-project", "--offline --frozen --locked -q @none"),
        Form("pkgid", "--offline --frozen --locked -q @none"),
    ),
    "rustc": (
        Form("--print", "@text", operand=_RUSTC_KINDS),
        *(Form(f"--print={kind}") for kind in _RUSTC_KINDS.split("|")),
        Form("--explain", "@text", operand=r"E?\d{1,4}"),
    ),
    "rustfmt": (
        Form("", "--check -l -q -v --files-with-diff --edition: --style-edition: --color: --quiet --verbose @read",
             needs=("--check",), everything=True),
    ),
    # Python
    "ruff": (
        Form("check", _RUFF_CHECK, everything=True),
        Form("format", _RUFF + "--check --line-length: --range: @walk", needs=("--check", "--diff"), everything=True),
        Form("rule", "--all --output-format: @text", operand=r"[A-Z]+\d+"),
        Form("linter", "--output-format: @none"),
        Form("config", "--output-format: @text", operand=r"[a-z][a-z.-]*"),
        Form("version", "--output-format: @none"),
    ),
    "black": (Form("", _BLACK, needs=("--check", "--diff"), everything=True),),
    **{name: (Form("-VV"),) for name in ("python", "python3")},
    # C, C++, Java, .NET, PHP
    **{
        name: tuple(Form(flag) for flag in (
            "-v", "-dumpversion", "-dumpfullversion", "-dumpmachine", "-print-search-dirs", "-print-sysroot",
            "-print-multiarch", "-print-libgcc-file-name", "--print-search-dirs", "--print-sysroot",
        ))
        for name in ("gcc", "g++", "cc", "c++", "clang", "clang++")
    },
    **{name: (Form("", _PKG_CONFIG, operand=r"[\w.+-]+|[<>=!]+"),) for name in ("pkg-config", "pkgconf")},
    "javap": (Form("", _JAVAP, operand=r"[\w.$/-]+", whole=True, everything=True),),
    "jar": tuple(Form(words, "@read", operand=r"[\w./+-]+") for words in ("tf", "tvf", "-tf", "-tvf")),
    "jps": (Form("", "-lmvVq @none"),),
    "jcmd": (Form("-l"),),
    "dotnet": (Form("--list-sdks"), Form("--list-runtimes")),
    "php": (Form("-m"), Form("--ini"), Form("-l", "@one", operand=r"[\w./+-]+")),
    "zig": (Form("version"), Form("env")),
    # Shell
    "shfmt": (Form("", _SHFMT, needs=("--l", "--d", "--list", "--diff", "--find", "--f"), whole=True),),
    # The system
    "lsb_release": (Form("", "-aidrcsv --all --id --description --release --codename --short --version @none"),),
    "hostnamectl": (Form("", "--static --pretty --transient --json: @none"), Form("status", "--json: @none")),
    "timedatectl": (Form(""), Form("status"), Form("show", "-p: --property: --value -a --all @none"),
                    Form("list-timezones", "--no-pager @none")),
    "localectl": (Form(""), Form("status"), Form("list-locales", "--no-pager @none")),
    "lspci": (Form("", "-nvkmtDx @none"),),
    "lsusb": (Form("", "-tv -d: -s: @none"),),
    "lshw": (Form("-short"),),
    "iostat": (Form("", "-cdhkmNtxyz @text", operand=r"\d{1,3}"),),
    "mpstat": (Form("", "-A -P: -u @text", operand=r"\d{1,3}"),),
    "sysctl": (Form("", "-n -e -N -b --values --names --ignore @text", operand=r"[a-z][\w./-]*"),),
    "systemctl": (Form("--failed", "--no-pager --all -a @none"),),
    "last": (Form("", "-awxFiRd -n: -# @none"),),
    "stty": (Form("-a"), Form("size"), Form("speed")),
    "nvidia-smi": (Form(""), Form("-L"), Form("-q"),
                   Form("", "--query-gpu: --format: --query-compute-apps: @none", needs=("--query-gpu",
                        "--query-compute-apps"))),
    "dpkg-query": (Form("", "-W -l -s -L -S -f: --show --list --status --listfiles --search --showformat: @text",
                        needs=("-W", "-l", "-s", "-L", "-S", "--show", "--list", "--status", "--listfiles", "--search"),
                        operand=r"[\w./*+:-]+"),),
    "dpkg": (Form("--get-selections", "@text", operand=r"[\w.*+:-]+"), Form("--print-architecture"),
             Form("--print-foreign-architectures")),
    "pacman": tuple(Form(f"-Q{letters}", "@text", operand=r"[\w.@+-]+") for letters in
                    ("", "i", "l", "e", "q", "s", "m", "n", "d", "dt", "en", "em", "u", "eq")),
    "apk": (Form("info", "-vedL --installed --description @text", operand=r"[\w.@+-]+"), Form("list", "-I -i @none")),
    "snap": (Form("list"), Form("version")),
    "flatpak": (Form("list"),),
    "openssl": (Form("version", "-a -v -b -o -f -p -d -e -m -r -c @none", whole=True),),
    "sw_vers": (Form(""), Form("-productVersion"), Form("--productVersion"), Form("-buildVersion")),
    "xcode-select": (Form("-p"), Form("--print-path")),
    # Files of other kinds
    "sdiff": (Form("", "-abBdEiHlstW -w: -I: --text --ignore-case --ignore-all-space --ignore-space-change "
                   "--ignore-blank-lines --left-column --suppress-common-lines --width: --minimal @read"),),
    "7z": (Form("l", "-slt -ba @one", operand=r"[\w./+ -]+", whole=True),),
    "ar": (Form("t", "@one", operand=r"[\w./+-]+"), Form("tv", "@one", operand=r"[\w./+-]+")),
    "c++filt": (Form("", "-n -p -t -i -r --no-params --types @text", operand=r"[\w.$]+"),),
    "pdfinfo": (Form("", "-f: -l: -box -meta -rawdates -dests -struct -url @one", whole=True),),
    "exiftool": (Form("", "-j -json -s -G -a -g -n -u @read", whole=True),),
    "tokei": (Form("", "-f -C -n: -s: -e: -t: -o: --files --sort: --exclude: --type: --output: --compact --hidden "
                   "--no-ignore @walk"),),
    "scc": (Form("", "-w -c -a -x: -i: -s: -f: --wide --no-cocomo --no-complexity --by-file --exclude-dir: "
                 "--include-ext: --sort: --format: @walk"),),
    "hexyl": (Form("", "-n: -s: -c: --length: --skip: --bytes: --color: --border: @one"),),
}  # fmt: skip


_IP = re.compile(
    r"(?:-(?:4|6|br|brief|c|color|d|details|j|json|o|oneline|p|pretty|s|stats) )*"
    r"(?:a|addr|address|l|link|r|route|n|neigh|ru|rule)(?: (?:show|list|ls|s)(?: (?:dev )?[A-Za-z][\w.-]{0,14})?)?"
)


def _ip(words: Sequence[Word]) -> Verdict:
    if all(word.literal for word in words) and _IP.fullmatch(" ".join(word.text for word in words)):
        return Verdict()
    return Verdict("`ip` is not known to only read")


_PDFTOTEXT = options.flags("--layout --raw --nopgbrk --q --f: --l: --enc: --table --simple @text")


def _pdftotext(words: Sequence[Word]) -> Verdict:
    """Judge `pdftotext FILE -`; without the dash it writes a file beside the one it reads."""
    parsed = options.parse(list(_single_dashed(words)), _PDFTOTEXT)
    if parsed.unknown or len(parsed.operands) != 2 or parsed.operands[1].text != "-":
        return Verdict("`pdftotext` that does not print is no read")
    return by_table("pdftotext", parsed.operands[:1], options.flags("@read"))


TOOL_CHECKS: dict[str, Check] = {
    **{name: check_of(name, forms) for name, forms in FORMS.items()},
    "ip": _ip,
    "pdftotext": _pdftotext,
}

QUIET: dict[tuple[str, ...], dict[str, str]] = {
    ("go", "list"): {"GOPROXY": "off", "GOTOOLCHAIN": "local"},
    ("go", "doc"): {"GOPROXY": "off", "GOTOOLCHAIN": "local"},
    ("cargo",): {"CARGO_NET_OFFLINE": "true"},
    ("npm",): {"npm_config_offline": "true", "npm_config_update_notifier": "false", "npm_config_logs_max": "0"},
    ("ruff",): {"RUFF_NO_CACHE": "true"},
    ("black",): {"PYTHONDONTWRITEBYTECODE": "1"},
}
"""What keeps a tool, in a line that only reads, from writing caches and logs, and from fetching what is not there."""


def quiet_variables(commands: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return the variables to set for these commands, given as their words."""
    wanted = [dict(QUIET[key]) for words in commands for key in (tuple(words[:2]), tuple(words[:1])) if key in QUIET]
    return {name: value for each in wanted for name, value in each.items()}
