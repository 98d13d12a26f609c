"""`python -m surehand` runs this `__main__`, which is `surehand`."""

from surehand.cli.main import main

raise SystemExit(main())
