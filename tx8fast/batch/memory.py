"""How much memory this process has held at most.

May import: nothing. Must not: fail where a system does not tell.
"""

from __future__ import annotations

import contextlib
import sys


def forget_peak() -> None:
    """Begin anew where the system can (Linux); elsewhere the peak stays that of the whole process."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def peak_bytes() -> int:
    """Return the most bytes of memory that the process has held since `forget_peak`, 0 if the system does not tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
