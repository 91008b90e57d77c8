"""`python -m bottletop` is the same program as the `bottletop` command."""

from bottletop.cli import main

raise SystemExit(main())
