"""Runs Wirehead's command for ``python -m ringreel.wirehead``."""

import sys

from ringreel.wirehead.log import main

sys.exit(main())
