"""Runs the command ``ringreel`` for ``python -m ringreel``."""

import sys

from ringreel._cli import main

sys.exit(main())
