"""Install size: packages and megabytes of the core and of each extra, in fresh environments.

    python -m benchmarks.install_size [EXTRA...]

Needs the package index, so it is no row of the ordinary benchmarks; docs/performance.md holds what it printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETS = ("", "documents", "web", "serve", "chat", "anthropic", "openai", "all")


def measure(extra: str) -> tuple[int, float]:
    """Return how many packages an install brings, and how many MiB they take."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", scratch], check=True)
        python = os.path.join(scratch, "bin", "python")
        target = f"{ROOT}[{extra}]" if extra else str(ROOT)
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
        subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), target], check=True)
        site = next(Path(scratch, "lib").glob("python3*/site-packages"))
        count = len(list(site.glob("*.dist-info")))
        files = [path for top in (site, Path(scratch, "bin")) for path in top.rglob("*") if path.is_file()]
        return count, sum(path.lstat().st_size for path in files) / 2**20


def main() -> None:
    """Print the table."""
    print("| install | packages | MiB |\n|---|---|---|")
    for extra in sys.argv[1:] or SETS:
        count, size = measure(extra)
        print(f"| `surehand{f'[{extra}]' if extra else ''}` | {count} | {size:.0f} |", flush=True)


if __name__ == "__main__":
    main()
