"""A policy with its own tests: which calls of a list would run, ask or be refused under these rules.

python examples/policy/check_policy.py
"""

import asyncio
from pathlib import Path

from surehand import Settings, Surehand
from surehand.config import load

EXPECTED = [
    ("Bash", {"command": "npm pack --dry-run && npm publish"}, "deny"),
    ("Bash", {"command": "ls migrations"}, "allow"),
    ("Write", {"file_path": "migrations/0002.sql", "content": "x"}, "ask"),
]


async def main() -> None:
    settings: Settings = load(str(Path(__file__).parent), trusted=True).settings
    async with Surehand(".", settings=settings, mode="accept-edits") as app:
        for tool, args, expected in EXPECTED:
            tried = await app.dry_run(tool, args)
            verdict = tried.data["verdict"]["decision"] if tried.ok else "deny"
            print("ok  " if verdict == expected else "WRONG", verdict, tool, args)


if __name__ == "__main__":
    asyncio.run(main())
