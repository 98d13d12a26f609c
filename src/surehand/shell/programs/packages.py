"""Package managers, containers and what runs programs out of packages; the versions of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from surehand.shell.options import names
from surehand.shell.programs.record import Form, Program, listing
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, runner, scripts

_NAME = r"[A-Za-z0-9@][\w@.+/-]*"  # of a package: neither an option nor a path
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
"""With which words `pip` only reads; the same words follow `python -m pip`."""
_PACKAGE_RUNNER = runner("exec", "x", "dlx")
_npm_scripts = scripts("--script-shell", "--node-options", "--shell", "--git", "--editor", "--viewer")


def _npm_starts(words: Sequence[Word]) -> Iterator[Started]:
    """Yield what `npm` runs: a command that it is given, and programs that its settings name."""
    yield from _PACKAGE_RUNNER(words)
    yield from _npm_scripts(words)


def _tell_version(programs: str, version: str = "--version --help", builds: bool = False) -> Iterator[Program]:
    """Yield programs of which no more is known than the options that tell their version and print help.

    Those that read a project's settings even then, and run what they find there (yarn, mvn, dotnet, hg, pytest...),
    are left out. Short spellings mean something else to others: `dash -V` and `vim -V` read commands from their input.
    """
    for name in sorted(names(programs)):
        runs = (f"{name} {version.split()[0]}",) if version else ()
        yield Program(name, version=version, builds=builds, runs=runs, asks=(f"{name} x",))


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
                Form("which", "@text", operand=r"[\w/-]+"),
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
    Program("rpm", version="--version --help", check=listing("-q", "-qailcdR @text"),
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
    Program("apt-get", version="--version --help", builds=True, runs=("apt-get --version",),
            asks=("apt-get install x",)),
    # A formula that is given as a file is Ruby, and run.
    Program("brew",
            forms=(
                Form("list", "-1 --versions --cask --formula @text", operand=_FORMULA),
                Form("--prefix", "@text", operand=_FORMULA),
            ),
            version="--version --help", builds=True, runs=("brew list", "brew --version", "brew --prefix openssl@3"),
            asks=("brew install jq", "brew --prefix ./x.rb", "brew list x.rb")),
    Program("pacman",
            forms=tuple(Form(f"-Q{letters}", "@text", operand=r"[\w.@+-]+") for letters in ("", "i", "l", "e", "q",
            "s", "m", "n", "d", "dt", "en", "em", "u", "eq")), runs=("pacman -Q",), asks=("pacman -R x",)),
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
    Program("kubectl", forms=(Form("version", "--client -o: --output: @none", needs=("--client",)),),
            version="--version --help", runs=("kubectl version --client", "kubectl version --client -o yaml"),
            asks=("kubectl apply -f x.yaml", "kubectl version")),
    Program("helm", exact=("version", "version --client", "version --short"), version="--version --help",
            runs=("helm version", "helm --version"), asks=("helm install x",)),
    Program("gh", exact=("version", "help"), version="--version --help", runs=("gh --version", "gh help"),
            asks=("gh pr view 1",)),
    Program("nginx", exact=("-v",), version="--version --help -V", runs=("nginx -V", "nginx -v"),
            asks=("nginx a.txt",)),
    *_tell_version("R Rscript aws az btop cabal clang-tidy code cpp ctags delta difft dune elixir eslint "
        "fzf gcloud gfortran glow gpg htop julia ld ldd luajit ncdu nix nvcc nvim opam pandoc pre-commit prettier "
        "protoc redis-cli stack surehand svn vim virtualenv"),
    *_tell_version("ant bazel gradle gradlew jest mix mocha msbuild mvn mvnw nox pytest rake sbt terraform tox "
        "vitest xcodebuild", "", builds=True),
    *_tell_version("deno ghc mysql nano psql tmux", "--version --help -V"),
    *_tell_version("gmake make", "--version --help -v", builds=True),
    *_tell_version("meson ninja", builds=True),
    *_tell_version("ffmpeg kotlin kotlinc screen sqlite3", "--version --help -version"),
    *_tell_version("cmake", "--version --help -version", builds=True),
    *_tell_version("emacs", "--version --help -V -version"),
)  # fmt: skip
