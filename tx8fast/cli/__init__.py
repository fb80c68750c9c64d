"""The command line: `tx8fast check | compile | sim | run | inspect | opt`.

May import: everything, but heavy things inside the command that needs them: `tx8fast --help` must be fast.
Must not: hold logic of a stage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: the process's) and return the exit code.

    0 done, 1 our own defect, 2 the user's input, 130 interrupted.
    """
    try:
        from tx8fast.cli.app import run

        return run(argv)
    except KeyboardInterrupt:  # during the imports, or while a failure is told
        print("interrupted", file=sys.stderr)
        return 130
