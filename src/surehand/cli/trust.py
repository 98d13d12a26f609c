"""`surehand trust`: let a folder's own settings, tools, agents, hooks and servers count, as they are now."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from surehand.cli import render
from surehand.files.sanitize import visible
from surehand.policy import trust
from surehand.policy.trust import Trust


def configure(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--yes", action="store_true", help="trust without asking")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--show", action="store_true", help="only show whether the folder is trusted")
    choice.add_argument("--remove", action="store_true", help="stop trusting this folder")
    choice.add_argument("--list", action="store_true", help="list every trusted folder")


def run(options: Namespace) -> int:
    """Run the command and return its exit code."""
    if options.list:
        folders = trust.trusted_folders()
        render.facts(options, folders, "\n".join(map(visible, folders)) or "No folder is trusted.")
        return 0
    if options.remove:
        was = trust.remove_trust(options.cwd)
        render.facts(
            options, {"workspace": options.cwd, "removed": was}, "No longer trusted." if was else "It was not trusted."
        )
        return 0
    return _give(options)


def _give(options: Namespace) -> int:
    now = trust.state_of(options.cwd)
    if not options.show and now.state != "trusted" and (options.yes or now.state != "nothing"):
        if not (options.yes or _consent(now)):
            render.facts(options, now.to_dict(), "Not trusted.")
            return 4
        now = trust.add_trust(options.cwd)
    words = {
        "trusted": "is trusted, as it is now; a change asks again",
        "untrusted": "is not trusted",
        "changed": f"has changed since it was trusted: {', '.join(map(visible, now.changed))}",
        "nothing": "has no settings, tools or servers of its own, so there is nothing to trust",
    }
    render.facts(options, now.to_dict(), f"{visible(now.workspace)} {words[now.state]}.")
    return 0


def _consent(now: object) -> bool:
    assert isinstance(now, Trust)
    shown = now.changed or now.files
    render.note(f"{visible(now.workspace)} brings files that Surehand would act on:")
    for name in shown:
        render.note(f"  {visible(name, lines=False)}")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        render.error(
            "trusting needs your answer, and this is not a terminal",
            "Look at these files, then use `surehand trust --yes`.",
        )
        return False
    return render.confirm("Trust them?")
