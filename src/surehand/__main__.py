"""`__main__` of the package: `python -m surehand` runs the `surehand` command."""

from surehand.cli.main import main

raise SystemExit(main())
