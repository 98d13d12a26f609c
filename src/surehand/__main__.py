"""`python -m surehand` is `surehand`."""

from surehand.cli.main import main

raise SystemExit(main())
