"""`python -m ringreel` is the command `ringreel`."""

import sys

from ringreel._cli import main

sys.exit(main())
