"""The command line: `tx8fast check | compile | sim | run | inspect | opt`.

May import: everything, but heavy things inside the command that needs them: `tx8fast --help` must be fast.
Must not: hold logic of a stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: the process's) and return the exit code.

    0 done, 1 our own defect, 2 the user's input, 128 + n interrupted by signal n (130: Ctrl-C).
    """
    came: list[int] = []
    try:
        restore = _listen(came)
        try:
            from tx8fast.cli.app import run

            code = run(argv)
        finally:
            restore()
    except KeyboardInterrupt:  # during the imports, or while a failure is told
        print("interrupted", file=sys.stderr)
        code = 130
    return 128 + came[0] if came and code else code


def _listen(came: list[int]) -> Callable[[], None]:
    """Let the signals by which systems end a process clean up as Ctrl-C does; `came` will list them. Return what undoes it."""
    import signal

    def stop(number: int, _frame: object) -> None:
        came.append(number)
        if len(came) == 1:  # the next one must not stop the cleaning
            raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    try:  # those that are ignored stay so: `nohup` wants it
        changed = [n for n in numbers if signal.getsignal(n) == signal.SIG_DFL and signal.signal(n, stop) is not None]
    except ValueError:  # only the main thread may
        changed = []

    def restore() -> None:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)

    return restore
