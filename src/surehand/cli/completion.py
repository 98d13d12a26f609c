"""`surehand completion`: shell completion for bash, zsh and fish."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from surehand.cli import render
from surehand.cli.main import COMMANDS, MODES

_WORDS = {
    "tools": "list info invoke new",
    "policy": "check list replay",
    "approvals": "list show allow deny",
    "ps": "output stop",
    "audit": "show verify",
    "shell": "parse",
    "mcp": "list add remove test",
    "auth": "set status remove",
    "config": "show path",
    "doctor": "settings sandbox tools model web servers",
    "sessions": "list show resume fork delete",
    "completion": "bash zsh fish",
}
_OPTIONS = "--cwd --session --mode --allow --json --help"

_BASH = """\
# surehand completion for bash: put  eval "$(surehand completion bash)"  into ~/.bashrc
_surehand() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
    case $before in
        --mode) COMPREPLY=($(compgen -W "{modes}" -- "$word")); return ;;
        --cwd) COMPREPLY=($(compgen -d -- "$word")); return ;;
    esac
    if [[ $word == -* ]]; then COMPREPLY=($(compgen -W "{options}" -- "$word")); return; fi
    if [[ $COMP_CWORD -eq 1 ]]; then COMPREPLY=($(compgen -W "{commands}" -- "$word")); return; fi
    case $command in
{cases}
    esac
    if [[ $command == tools && ($before == info || $before == invoke) ]]; then
        COMPREPLY=($(compgen -W "{tools}" -- "$word"))
    fi
}}
complete -F _surehand surehand
"""

_FISH = """\
# surehand completion for fish: put  surehand completion fish | source  into config.fish
complete -c surehand -f
{lines}
complete -c surehand -l mode -xa "{modes}"
complete -c surehand -l cwd -xa "(__fish_complete_directories)"
complete -c surehand -l json
complete -c surehand -n "__fish_seen_subcommand_from info invoke" -a "{tools}"
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], metavar="bash|zsh|fish", help="for which shell")


def run(options: Namespace) -> int:
    from surehand.catalog import rows

    tools = " ".join(row["name"] for row in rows())
    render.put(_fish(tools) if options.shell == "fish" else _bash(tools, zsh=options.shell == "zsh"))
    return 0


def _bash(tools: str, *, zsh: bool) -> str:
    cases = "\n".join(
        f'        {name}) [[ $COMP_CWORD -eq 2 ]] && COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
        for name, words in _WORDS.items()
    )
    script = _BASH.format(
        modes=" ".join(MODES), options=_OPTIONS, commands=" ".join(COMMANDS), cases=cases, tools=tools
    )
    return "autoload -U +X bashcompinit && bashcompinit\n" + script if zsh else script


def _fish(tools: str) -> str:
    lines = [f'complete -c surehand -n __fish_use_subcommand -a {name} -d "{COMMANDS[name][1]}"' for name in COMMANDS]
    lines += [
        f'complete -c surehand -n "__fish_seen_subcommand_from {name}" -a "{words}"' for name, words in _WORDS.items()
    ]
    return _FISH.format(lines="\n".join(lines), modes=" ".join(MODES), tools=tools)
