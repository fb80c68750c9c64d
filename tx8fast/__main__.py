"""`python -m tx8fast` is the command line.

May import: cli. Must not: hold logic.
"""

import sys

from tx8fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
