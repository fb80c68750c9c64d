"""Tries a file on the native parser in a child process first: damaged bytes can end the process that reads them.

May import: the standard library, errors. Must not: know what is tried.

The child is a copy of this process, so it starts in milliseconds with everything loaded, and its limits are those of
nobody else. It only says whether it survived; what is wrong with a file that it read is found again, and told, here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable

from tx8fast.errors import ImportModelError

#: what reading may take: memory beyond what the process has, and processor time; text of nothing but constants
#: takes 12 times its size and 50 ns per byte
BASE_BYTES, BYTES_PER_BYTE = 2 << 30, 64
BASE_SECONDS, BYTES_PER_SECOND = 8, 1 << 20
#: a child that does nothing for longer hangs in a lock that another thread held when it was made; the file is not to blame
STUCK_SECONDS = 20


def survive(attempt: Callable[[], object], size_bytes: int, what: str) -> None:
    """Run `attempt` in a child. Raises ImportModelError if it crashes there or takes more than a file of `size_bytes` may.

    Exceptions of `attempt` mean nothing: the caller will meet them.
    """
    if not hasattr(os, "fork"):
        return
    seconds = BASE_SECONDS + size_bytes // BYTES_PER_SECOND
    done, held = os.pipe()
    with warnings.catch_warnings():  # of libraries with threads: the child touches none of theirs
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        _child(attempt, BASE_BYTES + BYTES_PER_BYTE * size_bytes, seconds)
    ended, status = 0, 0
    try:
        os.close(held)
        select.select([done], [], [], seconds + STUCK_SECONDS)  # its end closes the pipe
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and select.select([done], [], [], 0)[0]:
            ended, status = os.waitpid(child, 0)
    finally:
        os.close(done)
        if not ended:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    if ended and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        why = f"it crashes the parser ({signal.Signals(number).name})"
        if number == signal.SIGXCPU:
            why = f"the parser needs more than {seconds} s of processor time"
        raise ImportModelError(f"{what}: {why}; the file is damaged or nested too deeply")


def _child(attempt: Callable[[], object], memory_bytes: int, seconds: int) -> None:
    """Run `attempt` under limits, silently, and end the process."""
    try:
        import resource

        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        if "faulthandler" in sys.modules:
            sys.modules["faulthandler"].disable()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit(resource.RLIMIT_CPU, seconds)
        with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as f:
            _limit(resource.RLIMIT_AS, int(f.read().split()[0]) * resource.getpagesize() + memory_bytes)
        attempt()
    finally:
        os._exit(0)


def _limit(kind: int, most: int) -> None:
    import resource

    soft, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, hard))
