"""Developers' tools: languages, compilers, formatters, package managers and containers, where they change nothing.

Many of them obey files of their directory (`obeys_folder`): each call also reads its directory, and
`policy/projects.py` checks it for settings that make the tool run, print or write something else. Left out on purpose
are forms that load code of the project whatever its settings (`pytest --version`, `mvn -v`, `uv pip list`) and those
that connect (`npm view`, `docker ps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from surehand.core.frozen import replace_values
from surehand.shell.options import names
from surehand.shell.programs.record import Form, Program, listing
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, runner, scripts

_NAME = r"[A-Za-z0-9@][\w@.+/-]*"  # a package name: neither an option nor a path
_NO_PATH = r"[^/]+"
_FORMULA = r"(?!.*\.rb\Z)[\w@.+-]+"

PIP = (
    Form("list", "-v --format: --not-required --user --local --verbose --path:r -l @none"),
    Form("show", "-fv --files --verbose -q @text"),
    Form("freeze", "-l --local --user --all --exclude: @none"),
    Form("check"),
    Form("--version"),
    Form("help", "@text"),
    Form("cache dir"),
    Form("cache info"),
    Form("inspect", "--local --user @none"),
)
"""Forms in which `pip` only reads, also as `python -m pip`."""
_PACKAGE_RUNNER = runner("exec", "x", "dlx")
_npm_scripts = scripts("--script-shell", "--node-options", "--shell", "--git", "--editor", "--viewer")


def _npm_starts(words: Sequence[Word]) -> Iterator[Started]:
    """Yield the command `npm` is given, and programs named by its options."""
    yield from _PACKAGE_RUNNER(words)
    yield from _npm_scripts(words)


def _tell_version(programs: str, version: str = "--version --help", builds: bool = False) -> Iterator[Program]:
    """Yield records of programs of which only the options for version and help are known.

    Left out are programs that even then run what a project's settings name (yarn, mvn, dotnet, hg, pytest). Short
    options are not accepted in general: `dash -V` and `vim -V` read commands from standard input.
    """
    for name in sorted(names(programs)):
        runs = (f"{name} {version.split()[0]}",) if version else ()
        yield Program(name, version=version, builds=builds, runs=runs, asks=(f"{name} x",))


_PACKAGE = r"(?!.*\.\./)(?:\./)?(?:[A-Za-z_][\w./-]*|\.{3})|\./?"  # a Go package inside the module, without a version
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

_JSON_TOOL = "--sort-keys --no-ensure-ascii --json-lines --indent: --tab --no-indent --compact @one"
# Modules that only read and import only the standard library. Not `site`, which imports a `sitecustomize` from the
# directory, nor `tarfile`, which up to 3.11 imports its `org/python/core.py`.
_MODULES = (
    Form("-m json.tool", _JSON_TOOL),
    Form("-m tokenize", "-e --exact @one"),
    Form("-m ast", "-a -m: -i: --mode: --indent: --include-attributes --no-type-comments @one"),
    Form("-m dis", "-C -O --show-caches --show-offsets @one"),
    Form("-m tabnanny", "-qv @read", least=1, everything=True),
    Form("-m zipfile", "-l:r -t:r --list:r --test:r @none", needs=("-l", "-t", "--list", "--test")),
    Form("-m calendar", "-t: --type: @text", operand=r"\d{1,4}"),
    Form("-m platform", "@text", operand="terse|nonaliased"),
    Form("-m sysconfig"),
)
_X509 = (
    "-in:r -inform: -noout -text -subject -issuer -serial -dates -startdate -enddate -fingerprint -email -hash "
    "-subject_hash -issuer_hash -ocsp_uri -ocspid -purpose -pubkey -modulus -alias -ext: -nameopt: -certopt: -dateopt: "
    "-checkend: -checkhost: -checkemail: -checkip: -md5 -sha1 -sha256 -sha384 -sha512 @none"
)

_COMPILER = tuple(
    Form(option)
    for option in (
        "-v", "-dumpversion", "-dumpfullversion", "-dumpmachine", "-print-search-dirs", "-print-sysroot",
        "-print-multiarch", "-print-libgcc-file-name", "--print-search-dirs", "--print-sysroot",
    )
)  # fmt: skip
_CARGO_TREE = (
    "-e: -i: -p: -d -q --edges: --invert: --prefix: --depth: --prune: --package: --workspace --exclude: --duplicates "
    "--no-dedupe --charset: --format: --features: --all-features --no-default-features --target: --color: --quiet "
    "--offline --locked --frozen @none"
)
_GO_VERBS = ("build", "clean", "fmt", "generate", "get", "install", "mod", "run", "test", "tool", "vet", "work")
_GO_OFFLINE = {"GOPROXY": "off", "GOTOOLCHAIN": "local"}
_go_scripts = scripts("-exec", "-toolexec", "-vettool", "--exec", "--toolexec", "--vettool")


def _go_starts(words: Sequence[Word]) -> Iterator[Started]:
    """Yield what `go` runs: programs named by options, and git for version information."""
    yield from _go_scripts(words)
    if words and words[0].text in ("list", "doc"):
        yield Started((Word("git"), Word("status"), Word("--porcelain")))


PROGRAMS: tuple[Program, ...] = (
    Program("pip", aliases=("pip3", *(f"pip3.{minor}" for minor in range(6, 20))), forms=PIP,
            version="--version --help -V", obeys_folder=True, builds=True,
            runs=("pip cache dir", "pip cache info"), asks=("pip uninstall -y x",)),
    Program("npm",
            forms=(
                # Keys with `:` or `_` hold credentials of a registry.
                *(Form(words, "--json -g --global @text", operand=r"[a-z][a-z-]*", least=1)
                  for words in ("config get", "get")),
                *(Form(words, "--json --all -a --long -l --parseable -p --depth: -g --global --omit: --include: "
                     "@text") for words in ("ls", "list")),
                *(Form(words, "--json @text", operand=_NAME, least=1) for words in ("explain", "why")),
                Form("pkg get", "--json @text", operand=r"[\w.@/\[\]-]+"),
                *(Form(f"config {words}", "-l --long @none") for words in ("list", "ls")),
                Form("query", "@text"),
                Form("fund", "--json @none"),
                Form("run", "--json @none"),
                Form("run-script", "--json @none"),
            ),
            exact=("-v", "version", "ls", "list", "root", "root -g", "bin", "prefix", "prefix -g"),
            version="--version --help", obeys_folder=True,
            quiet={"": {"npm_config_offline": "true", "npm_config_update_notifier": "false",
            "npm_config_logs_max": "0"}}, starts=_npm_starts, builds=True, runs=("npm ls -g", "npm root -g"),
            asks=("npm i -D typescript",)),
    Program("pnpm",
            forms=(
                *(Form(words, "--depth: --json --long --parseable --prod --dev -P -D -g --global @text", operand=_NAME)
                  for words in ("list", "ls", "why")),
                Form("root", "-g --global @none"),
            ),
            version="--version -v", obeys_folder=True, starts=_PACKAGE_RUNNER, builds=True,
            runs=("pnpm -v", "pnpm ls --depth=0", "pnpm why react"), asks=("pnpm install", "pnpm -C x ls")),
    Program("yarn", version="--version -v", obeys_folder=True, starts=_PACKAGE_RUNNER, builds=True,
            runs=("yarn --version",), asks=("yarn install", "yarn list")),
    Program("bun", version="--version --help", starts=_PACKAGE_RUNNER, builds=True, runs=("bun --version",),
            asks=("bun install",)),
    Program("bunx", aliases=("pnpx",), starts=runner(), asks=("bunx a.txt",)),
    Program("uv", version="--version --help -V", starts=runner("run"), builds=True, runs=("uv --version", "uv -V"),
            asks=("uv run x",)),
    Program("uvx", version="--version --help", starts=runner(), runs=("uvx --version",), asks=("uvx x",)),
    Program("poetry", starts=runner("run"), builds=True, asks=("poetry run x",)),
    Program("pdm", aliases=("pipenv", "hatch", "rye"), starts=runner("run"), asks=("pdm a.txt",)),
    Program("pipx", forms=(Form("list", "--short --json --include-injected @none"),), version="--version --help",
            starts=runner("run"), runs=("pipx --version", "pipx list"), asks=("pipx run x",)),
    Program("conda", aliases=("mamba",),
            forms=(
                Form("list", "-n: -f -e --name: --json --export --explicit --full-name @text", operand=r"[\w.+-]+"),
                *(Form(words, "--json -e --envs @none") for words in ("env list", "info")),
            ),
            version="--version --help -V", starts=runner("run"), runs=("conda list", "conda env list"),
            asks=("conda run x", "conda list -p x")),
    Program("dotenv", starts=runner("run"), asks=("dotenv a.txt",)),
    Program("bundle", starts=_PACKAGE_RUNNER, builds=True, asks=("bundle exec x",)),
    Program("gem",
            forms=(
                *(Form(words, "-l -i -a -d --local --all --installed --details --versions @text", operand=r"[\w.^$-]+")
                  for words in ("list", "query")),
                *(Form(words, "@text", operand="[a-z]+") for words in ("env", "environment")),
                *(Form(words, "@text", operand=r"[\w/-]+") for words in ("which", "contents")),
            ),
            version="--version --help -v", obeys_folder=True, runs=("gem --version", "gem list", "gem env"),
            asks=("gem list -r",)),
    Program("mise", aliases=("asdf",), starts=_PACKAGE_RUNNER, asks=("mise a.txt",)),
    Program("pyenv", aliases=("rbenv", "nodenv"),
            forms=(Form("versions", "--bare @none"), Form("version"), Form("root"), Form("global"), Form("local"),
                   Form("version-name"), Form("version-file"), Form("which", "@text", operand=r"[\w.-]+")),
            version="--version --help", obeys_folder=True, starts=_PACKAGE_RUNNER,
            runs=("pyenv versions", "rbenv version"),
            asks=("pyenv global 3.12", "pyenv exec ls")),
    Program("direnv", starts=_PACKAGE_RUNNER, asks=("direnv a.txt",)),
    Program("dpkg",
            forms=(
                Form("--get-selections", "@text", operand=r"[\w.*+:-]+"),
                Form("--print-architecture"),
                Form("--print-foreign-architectures"),
            ),
            version="--version --help",
            check=listing("-l -L -s -S --list", "-lLsS --list --listfiles --status --search @text"),
            runs=("dpkg -L bash", "dpkg -s bash"), asks=("dpkg -i x",)),
    Program("dpkg-query",
            forms=(
                Form("", "-W -l -s -L -S -f: --show --list --status --listfiles --search --showformat: @text",
                     needs=("-W", "-l", "-s", "-L", "-S", "--show", "--list", "--status", "--listfiles", "--search"),
                     operand=r"[\w./*+:-]+"),
            ),
            runs=("dpkg-query -W",), asks=("dpkg-query --admindir=x -W",)),
    Program("rpm", version="--version --help", check=listing("-q", "-qafilcdR @text"),
            runs=("rpm -qa", "rpm --version"), asks=("rpm -e x",)),
    Program("apt",
            forms=(
                Form("list", "--installed --upgradable @text"),
                Form("show", "@text", operand=_NO_PATH),
                Form("search", "@text"),
            ),
            version="--version --help", builds=True, runs=("apt show curl", "apt list --installed"),
            asks=("apt remove x", "apt show ../x.deb")),
    Program("apt-cache", forms=tuple(Form(words, "@text") for words in ("search", "show", "policy", "depends")),
            runs=("apt-cache policy git", "apt-cache policy bash"), asks=("apt-cache policy -c x",)),
    Program("apt-mark",
            forms=tuple(Form(f"show{which}", "@text", operand=r"[\w.+:-]+") for which in ("auto", "manual", "hold")),
            runs=("apt-mark showhold",), asks=("apt-mark hold x", "apt-mark showhold -f x")),
    Program("apt-get", version="--version --help", builds=True, runs=("apt-get --version",),
            asks=("apt-get install x",)),
    # A formula given as a path is Ruby code, which `brew` runs.
    Program("brew",
            forms=(
                Form("list", "-1 --versions --cask --formula @text", operand=_FORMULA),
                Form("--prefix", "@text", operand=_FORMULA),
            ),
            version="--version --help", builds=True, runs=("brew list", "brew --version", "brew --prefix openssl@3"),
            asks=("brew install jq", "brew --prefix ./x.rb", "brew list x.rb")),
    Program("pacman",
            forms=tuple(Form(f"-Q{letters}", "@text", operand=r"[\w.@+-]+") for letters in ("", "i", "l", "e", "q",
            "s", "m", "n", "d", "dt", "en", "em", "u", "eq"))
            + tuple(Form(f"-S{letters}", "@text", operand=r"[\w.@+-]+") for letters in ("s", "i", "l", "g")),
            runs=("pacman -Q", "pacman -Ss vim"), asks=("pacman -R x", "pacman -Ssy x", "pacman -S x")),
    Program("nix-env", exact=("-q", "--query", "-q --installed"), version="--version --help", runs=("nix-env -q",),
            asks=("nix-env -i x", "nix-env -qa")),
    Program("apk",
            forms=(
                Form("info", "-vedL --installed --description @text", operand=r"[\w.@+-]+"),
                Form("list", "-I -i @none"),
            ),
            runs=("apk info",), asks=("apk add x",)),
    Program("snap", forms=(Form("list"), Form("version")), runs=("snap list",), asks=("snap install x",)),
    Program("flatpak", forms=(Form("list"),), runs=("flatpak list",), asks=("flatpak run x",)),
    Program("docker", exact=("version", "-v", "compose version"), version="--version --help", builds=True,
            runs=("docker -v", "docker --help"), asks=("docker run --rm x",)),
    Program("podman", version="--version --help", builds=True, runs=("podman --version",), asks=("podman run x",)),
    Program("docker-compose", exact=("version",), runs=("docker-compose version",), asks=("docker-compose up",)),
    # Its configuration file names programs that it runs.
    Program("kubectl", forms=(Form("version", "--client -o: --output: @none", needs=("--client",)),),
            starts=scripts("--kubeconfig"), version="--version --help",
            runs=("kubectl version --client", "kubectl version --client -o yaml"),
            asks=("kubectl apply -f x.yaml", "kubectl version")),
    Program("helm", exact=("version", "version --client", "version --short"), version="--version --help",
            runs=("helm version", "helm --version"), asks=("helm install x",)),
    Program("gh", exact=("version", "help"), version="--version --help", runs=("gh --version", "gh help"),
            asks=("gh pr view 1",)),
    Program("terraform", aliases=("tofu",),
            forms=(Form("fmt", "-check -diff -list -recursive -no-color @walk", needs=("--check",), whole=True,
                        everything=True),),
            exact=("version", "-version", "-help"), version="--version --help", obeys_folder=True, builds=True,
            runs=("terraform version", "terraform fmt -check -recursive"),
            asks=("terraform plan", "terraform fmt", "terraform fmt -diff", "terraform fmt -check=false .",
                  "terraform fmt -check -chdir=x")),
    Program("nginx", exact=("-v",), version="--version --help -V", runs=("nginx -V", "nginx -v"),
            asks=("nginx a.txt",)),
    *_tell_version("R Rscript aws az btop cabal clang-tidy code cpp ctags delta difft dune elixir eslint "
        "fzf gcloud gfortran glow gpg htop julia ld ldd luajit ncdu nix nvcc nvim opam pandoc pre-commit prettier "
        "protoc redis-cli stack surehand svn vim virtualenv"),
    *_tell_version("ant bazel gradle gradlew jest mix mocha msbuild mvn mvnw nox pytest rake sbt tox "
        "vitest xcodebuild", "", builds=True),
    *_tell_version("deno ghc mysql nano psql tmux", "--version --help -V"),
    *_tell_version("gmake make", "--version --help -v", builds=True),
    *_tell_version("meson ninja", builds=True),
    *_tell_version("ffmpeg kotlin kotlinc screen sqlite3", "--version --help -version"),
    Program("cmake",
            forms=(
                *(Form(f"--help-{what}", "@onetext", operand=r"\w+") for what in ("command", "variable", "module",
                  "property", "policy")),
                *(Form(f"--help-{what}-list") for what in ("command", "variable", "module", "property", "policy")),
            ),
            version="--version --help -version", builds=True,
            runs=("cmake --version", "cmake --help-command add_library"),
            asks=("cmake .", "cmake --help-command x out")),
    *_tell_version("emacs", "--version --help -V -version"),
    # `-m` searches the current directory first; `policy/projects.py` checks whether it finds a module there.
    Program("python", aliases=("python3", *(f"python3.{minor}" for minor in range(6, 20))),
            forms=(
                Form("-VV"),
                *_MODULES,
                *(replace_values(form, words=f"-m pip {form.words}") for form in PIP),
            ),
            version="--version --help -V", obeys_folder=True,
            runs=("python -V", "python3.12 -VV", "python3 -m json.tool a.json", "python -m pip list",
                  "python3 -m ast src/app.py", "python3 -m zipfile -l x.zip"),
            asks=("python setup.py install", "python -m json.tool a.json b.json", "python -m pip install x",
                  "python3 -m zipfile -e x.zip .", "python3 -m zipfile -l x.zip -c y.zip a", "python3 -m tarfile -l x",
                  "python3 -m timeit x")),
    Program("python2", version="--version --help -V", obeys_folder=True, runs=("python2 --version", "python2 -V"),
            asks=("python2 a.py",)),
    Program("ruff",
            forms=(
                Form("check", _RUFF_CHECK, everything=True),
                Form("format", _RUFF + "--check --line-length: --range: @walk", needs=("--check", "--diff"),
                     everything=True),
                Form("rule", "--all --output-format: @text", operand=r"[A-Z]+\d+"),
                Form("linter", "--output-format: @none"),
                Form("config", "--output-format: @text", operand=r"[a-z][a-z.-]*"),
                Form("version", "--output-format: @none"),
            ),
            version="--version --help -V", obeys_folder=True, quiet={"": {"RUFF_NO_CACHE": "true"}},
            runs=("ruff check .", "ruff check -q"), asks=("ruff check -w",)),
    Program("black", forms=(Form("", _BLACK, needs=("--check", "--diff"), everything=True),),
            version="--version --help", obeys_folder=True, quiet={"": {"PYTHONDONTWRITEBYTECODE": "1"}},
            runs=("black --check .", "black --diff src"), asks=("black -c 'x'",)),
    Program("isort",
            forms=(
                Form("", "-c -q -v -m: -l: -w: --check --check-only --diff --df --quiet --verbose --profile: --color "
                     "--line-length: --skip: --skip-glob: --filter-files --skip-gitignore @walk_operands",
                     needs=("-c", "--check", "--check-only", "--diff", "--df"), everything=True),
            ),
            version="--version --help", obeys_folder=True, quiet={"": {"PYTHONDONTWRITEBYTECODE": "1"}},
            runs=("isort --check-only src", "isort --diff src/app.py"), asks=("isort src",)),
    Program("yamllint", forms=(Form("", "-f: -s --format: --strict --no-warnings --list-files @walk", least=1,
                                    everything=True),),
            version="--version --help -v", obeys_folder=True, runs=("yamllint config.yaml",),
            asks=("yamllint -c x config.yaml",)),
    Program("shellcheck",
            forms=(
                Form("", "-f: -e: -i: -o: -s: -S: -W: -C? --format: --exclude: --include: --enable: --shell: "
                     "--severity: --wiki-link-count: --color? --norc --list-optional @read"),
            ),
            version="--version --help -V", obeys_folder=True,
            runs=("shellcheck script.sh", "shellcheck -S error -f gcc a.sh"),
            asks=("shellcheck -x a.sh", "shellcheck --rcfile=x a.sh")),
    Program("hadolint", forms=(Form("", "-f: -t: --format: --ignore: --no-color --failure-threshold: @read"),),
            version="--version --help -v", runs=("hadolint Dockerfile",), asks=("hadolint -c x Dockerfile",)),
    Program("clang-format",
            forms=(
                Form("", "-n --dry-run --Werror --fallback-style: --lines: --offset: --length: --verbose "
                     "--sort-includes @read", operand="[^@].*"),
            ),
            version="--version --help", runs=("clang-format --dry-run x.c", "clang-format x.c"),
            asks=("clang-format -i x.c", "clang-format --files=x", "clang-format @x")),
    Program("mypy", version="--version --help -V", obeys_folder=True, runs=("mypy --version", "mypy -V"),
            asks=("mypy .",)),
    Program("node", forms=tuple(Form(option, "@one", least=1) for option in ("--check", "-c")), exact=("-v",),
            version="--version --help", obeys_folder=True, runs=("node -v", "node --version", "node --check a.js"),
            asks=("node -e 'console.log(1)'", "node --check a.js -r ./x", "node -r ./x --check a.js")),
    Program("npx", version="--version --help", obeys_folder=True, starts=runner(), builds=True,
            runs=("npx --version",), asks=("npx create-react-app x",)),
    Program("tsc", version="--version --help -v", obeys_folder=True, builds=True, runs=("tsc --version",),
            asks=("tsc -p .",)),
    Program("go",
            forms=(
                Form("env", "-json @text", operand="[A-Z0-9_]+", whole=True),
                Form("list", _GO_LIST, operand=_PACKAGE, whole=True, everything=True),
                Form("doc", "-all -c -cmd -short -src -u @text", operand=r"(?!/|.*\.\.)[\w./-]+", whole=True,
                     everything=True),
                Form("mod graph"),  # not `why`, which updates go.mod and go.sum
                Form("mod verify"),
                Form("help", "@text", operand=r"[\w-]+"),
                Form("tool"),
                *(Form(f"{verb} {option}") for verb in _GO_VERBS for option in ("-h", "-help", "--help")),
            ),
            exact=("version", "help", "env"), version="--version --help", obeys_folder=True,
            quiet={"list": _GO_OFFLINE, "doc": _GO_OFFLINE, **dict.fromkeys(_GO_VERBS, _GO_OFFLINE)}, starts=_go_starts,
            builds=True, runs=("go doc fmt", "go list -m", "go vet --help", "go mod graph"),
            asks=("go run main.go", "go vet ./...", "go mod tidy", "go mod why -m a.test/x")),
    Program("gofmt", forms=(Form("", "-l -d -e -s -r: @read", needs=("--l", "--d"), whole=True, everything=True),),
            obeys_folder=True, runs=("gofmt -d .", "gofmt -l ."), asks=("gofmt -w .",)),
    Program("rustc",
            forms=(
                Form("--print", "@text", operand=_RUSTC_KINDS),
                *(Form(f"--print={kind}") for kind in _RUSTC_KINDS.split("|")),
                Form("--explain", "@text", operand=r"E?\d{1,4}"),
            ),
            exact=("-vV", "--version --verbose"), version="--version --help -V", obeys_folder=True, builds=True,
            runs=("rustc --print cfg", "rustc --explain E0308"), asks=("rustc main.rs",)),
    Program("rustup",
            forms=tuple(Form(f"{what} list", "--installed --toolchain: -v --verbose -q --quiet @none")
                        for what in ("toolchain", "target", "component")),
            version="--version --help -V", obeys_folder=True, runs=("rustup --version", "rustup toolchain list"),
            asks=("rustup default x", "rustup show")),
    Program("rustfmt",
            forms=(
                Form("", "--check -l -q -v --files-with-diff --edition: --style-edition: --color: --quiet --verbose "
                     "@read", needs=("--check",), everything=True),
            ),
            version="--version --help", obeys_folder=True, runs=("rustfmt --check src/main.rs", "rustfmt --version"),
            asks=("rustfmt --backup x.rs",)),
    Program("cargo",
            forms=(
                # Without `--no-deps` it writes a lock file.
                Form("metadata", "--no-deps --format-version: --offline --locked --frozen -q --quiet --color: @none",
                     needs=("--no-deps",), everything=True),
                Form("locate-project", "--workspace --message-format: -q --quiet --color: --offline @none"),
                Form("read-manifest", "--offline --frozen --locked -q @none"),
                Form("verify-project", "--offline --frozen --locked -q @none"),
                Form("pkgid", "--offline --frozen --locked -q @none"),
                # Without these options it writes a lock file that is missing or out of date.
                Form("tree", _CARGO_TREE, needs=("--locked", "--frozen"), everything=True),
                *(Form(words, "--check -q -v --quiet --verbose --all @none", needs=("--check",), everything=True)
                  for words in ("fmt", "fmt --", "fmt --all --")),
            ),
            exact=("version", "help", "--list", "--version --verbose", "-vV", "version -v", "version --verbose"),
            version="--version --help -V", obeys_folder=True,
            quiet={"": {"CARGO_NET_OFFLINE": "true"}}, builds=True, starts=scripts("--config"),
            runs=("cargo metadata --no-deps", "cargo locate-project --workspace", "cargo tree --offline --locked",
                  "cargo fmt --check", "cargo fmt -- --check"),
            asks=("cargo add x", "cargo tree --offline", "cargo fmt", "cargo fmt --check -- --emit files")),
    Program("gcc", aliases=("g++", "cc", "c++", "clang", "clang++"), forms=_COMPILER, version="--version --help",
            builds=True, runs=("gcc -v", "gcc --version"), asks=("gcc -E x.c",)),
    Program("pkg-config", aliases=("pkgconf",), forms=(Form("", _PKG_CONFIG, operand=r"[\w.+-]+|[<>=!]+"),),
            runs=("pkg-config --exists zlib", "pkg-config --modversion openssl"),
            asks=("pkg-config --cflags ./x.pc",)),
    Program("java", version="--version --help -version", obeys_folder=True, runs=("java -version", "java --version"),
            asks=("java -jar x.jar",)),
    Program("javac", version="--version --help -version", obeys_folder=True, builds=True,
            runs=("javac -version", "javac --version"), asks=("javac X.java",)),
    Program("javap", forms=(Form("", _JAVAP, operand=r"(?!/|.*\.\.)[\w.$/-]+", whole=True, everything=True),),
            runs=("javap -c Foo", "javap -c Foo.class"), asks=("javap -XDx Foo", "javap ../x.class")),
    Program("jps", forms=(Form("", "-lmvVq @none"),), runs=("jps", "jps -v -l"), asks=("jps -J-x",)),
    Program("jcmd", forms=(Form("-l"),), runs=("jcmd -l",), asks=("jcmd 1 VM.version",)),
    Program("dotnet", forms=(Form("--list-sdks"), Form("--list-runtimes")), builds=True,
            runs=("dotnet --list-sdks", "dotnet --list-runtimes"), asks=("dotnet build",)),
    Program("php", forms=(Form("-m"), Form("--ini"), Form("-l", "@one", operand=r"[\w./+-]+")), exact=("-v",),
            version="--version --help", obeys_folder=True, runs=("php -l index.php", "php -m"),
            asks=("php artisan migrate",)),
    Program("zig", forms=(Form("version"), Form("env")), runs=("zig version",), asks=("zig build",)),
    Program("perl", exact=("-v",), version="--version --help -V -version", obeys_folder=True,
            runs=("perl -V", "perl -v"), asks=("perl -i -pe 's/a/b/' README.md",)),
    Program("ruby", exact=("-v",), version="--version --help", obeys_folder=True, runs=("ruby -v", "ruby --version"),
            asks=("ruby -e 1",)),
    Program("lua", exact=("-v",), version="--version --help", obeys_folder=True, runs=("lua -v", "lua --version"),
            asks=("lua -e 1",)),
    Program("swift", exact=("-v",), version="--version --help -version", builds=True, runs=("swift --version",),
            asks=("swift x.swift",)),
    Program("shfmt",
            forms=(Form("", _SHFMT, needs=("--l", "--d", "--list", "--diff", "--find", "--f"), whole=True),),
            version="--version --help", runs=("shfmt -l .", "shfmt -d a.sh"), asks=("shfmt -w a.sh",)),
    Program("openssl",
            forms=(
                Form("version", "-a -v -b -o -f -p -d -e -m -r -c @none", whole=True),
                Form("dgst", "-md5 -sha1 -sha256 -sha512 -hex -r @read", whole=True,
                     needs=("--md5", "--sha1", "--sha256", "--sha512")),
                *(Form(digest, "-hex -r @read", whole=True) for digest in ("md5", "sha1", "sha256", "sha512")),
                Form("rand", "-hex -base64 @text", needs=("--hex", "--base64"), whole=True, operand=r"\d{1,6}"),
                # A name with a colon may be a URL (`http:`), which it fetches.
                Form("x509", _X509, needs=("--noout",), whole=True, operand="[^:]+"),
                Form("req", "-in:r -inform: -noout -text -subject -pubkey -modulus -nameopt: -reqopt: @none",
                     needs=("--noout",), whole=True, operand="[^:]+"),
            ),
            exact=("version",), version="--version --help -version",
            runs=("openssl version -a", "openssl rand -hex 16", "openssl x509 -in a.crt -noout -text",
                  "openssl dgst -sha256 a.txt"),
            asks=("openssl rand -hex -out x 16", "openssl rand -hex -rand x 16", "openssl dgst -sha256 -out x a.txt",
                  "openssl dgst -sign k a.txt",
                  "openssl x509 -in a.crt -out x", "openssl x509 -noout -engine ./x.so",
                  "openssl x509 -noout -in http://host.test/x")),
    Program("gdb", aliases=("lldb",), version="--version --help", starts=runner("--args", "--"),
            runs=("gdb --version", "lldb --version"), asks=("gdb -p 1",)),
    Program("perf", starts=runner("stat", "record", "trace", "mem"), asks=("perf stat ls",)),
    Program("valgrind", version="--version --help", starts=runner(), runs=("valgrind --version",),
            asks=("valgrind ls",)),
    Program("hyperfine", version="--version --help", starts=runner(), runs=("hyperfine --version",),
            asks=("hyperfine a.txt",)),
    Program("cross-env", starts=runner(), asks=("cross-env a.txt",)),
    Program("dumb-init", starts=runner(), asks=("dumb-init a.txt",)),
    Program("tini", starts=runner(), asks=("tini a.txt",)),
    Program("xvfb", starts=runner(), asks=("xvfb a.txt",)),
)  # fmt: skip
