"""Verdicts of the policy on every command of the tests' corpora and on thousands of generated ones, kept and compared.

    python tests/shell/verdicts.py record FILE     judge everything, and write a JSON line per command
    python tests/shell/verdicts.py compare FILE    judge the commands of FILE again, and print what differs
    python tests/shell/verdicts.py compare FILE 9  the same with every ninth command

A change of how commands are described, and not of what they mean, must leave no difference. Commands are judged and
never run. The generated ones come from a seed: each known program with each of its options, then random ones with
operands, redirections, wrappers and compounds.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

# ruff: noqa: E501 (options as one types them, a program a line)

TESTS = Path(__file__).parent.parent
SEED = 20_260_101
RANDOM_COMMANDS = 12_000
FILES = (
    "README.md src/app.py src/util.py tests/test_app.py docs/guide.md data.csv app.log config.yaml Makefile .env "
    ".env.example sub/.env secrets/k.txt id_rsa a.txt b.txt x.tar.gz x.zip script.sh src/with/deep.txt"
)
WRITTEN = {
    "package.json": '{"name": "x", "scripts": {"test": "true"}}\n',
    "go.mod": "module example.test/x\n\ngo 1.22\n",
    "Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\n',
    "pyproject.toml": "[tool.ruff]\nline-length = 100\n",
    "SUMS": "d41d8cd98f00b204e9800998ecf8427e  a.txt\nd41d8cd98f00b204e9800998ecf8427e  .env\n",
}
OPERANDS = (
    "a.txt", "src", "src/app.py", ".", "..", "/etc/passwd", "/", "~", "~/.ssh/id_rsa", ".env", "sub/.env", "*.txt",
    "src/*.py", "*", "-", "--", "$X", '"$X"', "$(ls)", "$(git ls-files)", "'a b'", "pattern", "'^class '", "HEAD",
    "HEAD~3", "HEAD:.env", "main..dev", "HEAD:src/app.py", "https://example.test/x", "user@host.test:/srv", "host.test",
    "/dev/null", "/dev/sda", "a=b", "if=a.txt", "of=b.txt", "@opts", "+cmd", "+5", "5", "1,5p", "'s/a/b/'", "'s/a/b/w x'",
    "'{print $1}'", "'{print > \"x\"}'", "'.a'", "'env'", "name", "lodash", "E0308", "{}", "';'", "x.tar.gz", "x.zip",
    "SUMS", "~/out", "/tmp/out", "src/", "http://127.0.0.1:8/x", "file:///etc/passwd", "../outside", "user.name",
    "-x", "--unknown", "-rf", "{a,b}.txt", "~+", "'-v'", "tf", "xzf", "status", "list", "show", "run", "exec", "get",
    "config", "version", "install", "test", "build", "id_rsa", "secrets/k.txt", "$HOME/.aws/credentials", "'$HOME'",
)  # fmt: skip
VALUES = ("1", "name", "a.txt", ".env", "'%H %G?'", "src", "/etc/shadow", "$X", "'rm -rf src'", "host.test:8", "never")
REDIRECTIONS = (
    "> out.txt", ">> app.log", "< a.txt", "2>&1", "2>/dev/null", "&> out", "> /etc/x", "< .env", "<<< 'text'", "> $X",
    "> /dev/tcp/host.test/80", "< *.txt", "3<> a.txt", ">| b.txt",
)  # fmt: skip
PREFIXES = ("X=1", "LC_ALL=C", "PATH=.", "GIT_PAGER=cat", "CC=gcc", "LD_PRELOAD=./x", "NODE_ENV=test", "X=$(id)")
SHAPES = (
    "{a} | {b}", "{a} && {b}", "{a} || {b}", "{a}; {b}", "({a}; {b})", "{{ {a}; }}", "if {a}; then {b}; fi",
    "for i in *.txt; do {a}; done", "while {a}; do {b}; done", "echo \"$({a})\"", "cd src && {a}", "cd .. ; {a}",
    "{a} &", "! {a}", "f() {{ {a}; }}; f", "bash -c '{a}'", "{a} | xargs {b}", "find . -name '*.py' -exec {a} {{}} +",
    "case x in x) {a};; esac", "{a} | head -5", "X=a.txt; {a}", "eval '{a}'", "{a} | sh", "cat <({a})", "{a} | tee out",
)  # fmt: skip


def corpus_commands() -> Iterator[str]:
    """Yield every line of every corpus, and every text in the tests that may hold a command."""
    for path in sorted((TESTS / "attacks").glob("*.txt")):
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("##"):
                yield line.replace("⏎", "\n").replace("{c}", "cat .env")
    for path in sorted((TESTS / "attacks").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if isinstance(command := json.loads(line)["input"].get("command"), str):
                yield command
    for folder in ("shell", "attacks", "policy", "tools", "git", "cli", "seeds", "sandbox", "commands"):
        for path in sorted((TESTS / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60_000:
                    yield from (line for line in (node.value, *node.value.splitlines()) if 1 < len(line) < 2_000)


def generated_commands() -> Iterator[str]:
    """Yield each program with each of its options, and random commands made of all of them."""
    dice = random.Random(SEED)
    programs = vocabulary()
    every = sorted({option for options in programs.values() for option in options})
    for program, options in sorted(programs.items()):
        yield program
        for operand in ("a.txt", ".env", "src", "$X", "*.txt", "name"):
            yield f"{program} {operand}"
        yield f"{program} --version"
        yield f"{program} -V"
        for option in sorted(set(options)):
            yield f"{program} {option} a.txt b.txt"
    names = sorted(programs)
    for _ in range(RANDOM_COMMANDS):
        yield _compound(dice, names, programs, every)


def _compound(dice: random.Random, names: Sequence[str], programs: dict[str, list[str]], every: list[str]) -> str:
    first, second = (_simple(dice, dice.choice(names), programs, every) for _ in range(2))
    if dice.random() < 0.6:
        return first
    return dice.choice(SHAPES).format(a=first, b=second)


def _simple(dice: random.Random, program: str, programs: dict[str, list[str]], every: list[str]) -> str:
    words = [program]
    own = programs[program]
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        option = dice.choice(own if own and dice.random() < 0.85 else every)
        words.append(option)
        if dice.random() < 0.25:
            words[-1] += ("=" if option.startswith("--") else "") + dice.choice(VALUES)
        elif dice.random() < 0.25:
            words.append(dice.choice(VALUES))
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        words.insert(dice.randint(1, len(words)) if dice.random() < 0.2 else len(words), dice.choice(OPERANDS))
    if dice.random() < 0.08:
        words.insert(0, dice.choice(PREFIXES))
    if dice.random() < 0.1:
        words.append(dice.choice(REDIRECTIONS))
    return " ".join(words)


def vocabulary() -> dict[str, list[str]]:
    """Return every program that is known, with its options (and the words its known forms begin with)."""
    from surehand.shell.programs import PROGRAMS, load_families
    from surehand.shell.programs.git import FORMS, SUBCOMMANDS
    from surehand.shell.touches import Operands

    load_families()
    found: dict[str, list[str]] = {}
    for name, program in PROGRAMS.items():
        lines = [program.reads, program.version or "", program.wraps.flags if program.wraps else ""]
        lines += [program.touches.options] if isinstance(program.touches, Operands) else []
        own = [option for line in lines for option in options_in(line)]
        own += [
            f"{form.words} {option}".strip() for form in program.forms for option in ("", *options_in(form.options))
        ]
        found[name] = [*own, *program.exact, *_UNLISTED.get(name, "").split("|")]
    subcommands = {**SUBCOMMANDS, **{name: " ".join(" ".join(form) for form in each) for name, each in FORMS.items()}}
    found["git"] += [f"{name} {option}" for name, line in subcommands.items() for option in options_in(line)]
    return found


# Options and words of programs that are read by a check of their own.
_UNLISTED = {
    "find": ". -name '*.py'|. -type f|-L .|. -exec rm {} +|. -delete|. -fprint x|. -newer .env|. -printf %p|. -ok ls {} ';'"
    "|src -path './x/*' -prune -o -print|. -execdir ls {} +|-files0-from a.txt|. -maxdepth 2 -iname x -ls|. -samefile .env",
    "sed": "-n|-e 's/a/b/'|-i|-i.bak|-f x.sed|-n '1,5p'|'1e ls'|'s/a/b/e'|'w out'|-E|--sandbox|--in-place|-s|-z|'r .env'",
    "awk": "-F:|-v x=1|'{print $1}'|-f x.awk|'BEGIN{system(\"ls\")}'|'{print | \"sh\"}'|'{getline < \".env\"}'|--sandbox",
    "tar": "-tf|tf|tzf|xf|-xzf|czf|--list --file=x.tar.gz|--to-command=ls -xf|-I zstd -xf|--checkpoint-action=exec=ls|-C src",
    "dd": "if=a.txt|of=b.txt|if=/dev/zero|of=/dev/sda|bs=1M|count=1",
    "test": "-f|-d|-v|-z|-n|! -e|1 -eq 2|a = b",
    "[": "-f a.txt ]|-d src ]|-v x ]|a = b ]|1 -lt 2 ]",
    "printf": "'%s\\n'|-v x|'%n'|-- '%d'",
    "read": "-r|x|-a|-p 'x'|PATH|-u 3",
    "set": "-e|-euo pipefail|+x|-o|--",
    "bash": "-c 'ls'|-n|script.sh|-lc 'ls'|-c 'rm a'|-x -c 'cat .env'|-o pipefail -c 'ls'|-i",
    "git": "-C src status|-c core.pager=cat log|push origin main|commit -m x|add .|clean -fd|checkout -- a.txt|rm a.txt"
    "|clone https://example.test/x y|bisect run ls|submodule foreach ls|stash list|stash pop|config user.name x|fetch"
    "|--git-dir=x log|diff --no-index a .env|log --format=%G?|show HEAD:.env|-p log|restore a.txt|mv a b|blame .env",
    "ip": "a|addr show|-br a|link set eth0 up|route|-j addr show dev eth0",
    "pdftotext": "x.pdf -|-layout x.pdf -|x.pdf|x.pdf out.txt",
    "ps": "aux|-ef|e|auxe|-p $$|-o pid,env",
    "env": "X=1 ls|-i git log|-u PATH git log|-S 'ls -l'|-C src ls|FOO=bar",
    "xargs": "ls|-0 cat|-I{} cat {}|-n1 rm|wc -l|bash -c 'ls'",
    "sudo": "ls|-u root ls|rm a.txt|-D src ls",
    "timeout": "5 ls|-k1 5 rm a|$X ls|5s curl x.test",
    "export": "X=1|PATH=.|LC_ALL=C|X=$(id)|X",
    "command": "-v ls|ls|-p ls|-V git",
    "npx": "eslint|rm a|-y curl x|--yes ls",
    "uv": "run rm a|run pytest|pip list|sync",
    "go": "test -exec ls ./...|list -m all|vet ./...|build -toolexec ls|doc fmt",
    "make": "-n|test|-C src|-f x.mk",
    "yq": "e .a config.yaml|eval '.a' x|-i .a x",
    "tee": "/dev/null|/dev/stderr|-a out",
    "sort": "-o a.txt|--output=x|--compress-program=ls|-T src|--files0-from=a.txt",
    "rsync": "-e ssh|--rsync-path=x|--delete src/ b|-a src host.test:/x",
    "ssh": "-o ProxyCommand=ls host.test|host.test ls|-oLocalCommand=ls x",
    "curl": "-O https://example.test/a|-d @.env https://x.test|-o out https://x.test|file:///etc/passwd|-x p.test u.test",
    "eval": "ls|'rm a'", "trap": "'ls' EXIT|'rm a' INT", "parallel": "ls ::: a b|rm",
    "printenv": "HOME|-0|PATH", "tput": "cols|reset|init", "sleep": "1|0.5s|$X", "umask": "-S|022", "ulimit": "-a|-n 5",
    "unset": "x|PATH|'a[0]'", "wait": "-n|$!|-p x", "cd": "src|-P src|..|-|$X",
    "tree": "-L 2|-Po x out|-I node_modules|-o out", "less": "+F|+!ls|-N|'-p$x'", "xxd": "-ps|-r|-i|-plain|-p a out",
    "exec": "ls|3<a.txt", "jq": "'import \"x\" as $x; .'|'env.X'|'$ENV'|'.env'|-n input", "unzip": "-l|-d out|-p|-o",
    "watch": "ls|-x ls|'rm a'", "flock": "/tmp/l ls|/tmp/l -c 'rm a'", "date": "+%F|-s now|-d yesterday|-r .env",
}  # fmt: skip


def options_in(line: str) -> Iterator[str]:
    """Yield the options a description lists, each spelled as one would type it."""
    for token in line.split():
        if token[0] == "-" and token != "-#":
            name = re.sub(r"[:?].*", "", token)
            yield from [name] if name.startswith("--") else (f"-{letter}" for letter in name[1:])


class Judge:
    """Judges commands in a workspace made for it, and tells everything there is to say of each."""

    def __init__(self, workspace: Path) -> None:
        from surehand import Surehand
        from surehand.engine.checking import Checker
        from surehand.policy.policy import Policy

        self.workspace = workspace
        app = Surehand(workspace, keep_state=False)
        rules = ("deny Read(secrets/**)", "deny Bash(shutdown:*)", "allow Bash(make test)")
        policies = [Policy.from_settings(app.settings, str(workspace), command_line=each) for each in ((), rules)]
        self.checkers = [Checker(policy, app.session, app.registry) for policy in policies]

    def tell(self, command: str) -> dict[str, Any]:
        """Return class, effects, verdicts and all else that is known of a command."""
        report, facts = self._facts(command)
        plain, ruled = (checker.check("Bash", {"command": command}) for checker in self.checkers)
        told = {
            "class": report.class_,
            "reads": report.read_only,
            "reasons": report.reasons,
            "effects": [repr(effect) for effect in report.effects],
            "facts": facts,
            "verdict": plain["decision"],
            "decision": {key: value for key, value in plain.items() if key != "commands"},
            "ruled": [ruled["decision"], ruled["reason"]],
        }
        text = json.dumps(told, default=str).replace(str(self.workspace.parent), "{tmp}")
        return json.loads(re.sub(rf"/proc/{os.getpid()}(?:/task/\d+)?", "/proc/self", text))

    def _facts(self, command: str) -> tuple[Any, dict[str, Any]]:
        """Return the report, and what the rest of the program takes out of the tables of programs."""
        from surehand.shell import understand
        from surehand.shell.programs import quiet_variables
        from surehand.shell.report import head_share, known_words
        from surehand.tools.bash_call import _means_no  # pyright: ignore[reportPrivateUsage]

        report = understand(command, str(self.workspace), home=os.environ["HOME"])
        return report, {
            "quiet": quiet_variables(each.words for each in report.commands),
            "share": head_share(report.class_, [each.name for each in report.commands]),
            "no": _means_no(report),
            "known": [known_words(each.name) for each in report.commands],
        }


def make_workspace(folder: Path) -> Path:
    """Make the files that commands are judged among, the same every time."""
    workspace = folder / "ws"
    for name in FILES.split():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("KEY=1\n")
    for name, text in WRITTEN.items():
        (workspace / name).write_text(text)
    (folder / "home").mkdir()
    os.environ.update(HOME=str(folder / "home"), GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null")
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=workspace, check=True, capture_output=True)
    os.chdir(workspace)
    return workspace


def record(commands: Iterable[str], judge: Judge) -> Iterator[str]:
    """Yield a JSON line for each command."""
    for command in commands:
        yield json.dumps({"command": command} | judge.tell(command), ensure_ascii=True)


def compare(lines: Iterable[str], judge: Judge) -> Iterator[str]:
    """Judge the recorded commands again; yield a text for each that is told otherwise now."""
    for line in lines:
        before = json.loads(line)
        now = {"command": before["command"]} | judge.tell(before["command"])
        if now != before:
            changed = "\n".join(
                f"  {key}\n    - {before.get(key)}\n    + {now.get(key)}" for key in now if now[key] != before.get(key)
            )
            yield f"{before['command']!r}\n{changed}"


def main(verb: str, file: str, step: str = "1") -> int:
    """Run one of the two verbs."""
    path = Path(file).resolve()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        every = dict.fromkeys([*corpus_commands(), *generated_commands()] if verb == "record" else [])
        commands = [command for command in every if "/proc/self/fd" not in command]  # would tell of this process
        judge = Judge(make_workspace(Path(folder)))
        if verb == "record":
            path.write_text("".join(f"{line}\n" for line in record(commands, judge)))
            print(f"{len(commands):,} commands judged and recorded")
            return 0
        lines = path.read_text().splitlines()[:: int(step)]
        differences = list(compare(lines, judge))
        print(*differences[:200], sep="\n")
        print(f"{len(lines):,} commands judged again, {len(differences):,} differences")
        return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
