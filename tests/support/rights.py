"""Permissions of files for tests that root runs, too: whoever may do everything lays that down for a while."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_VERSION = 0x20080522  # of the system call: two words of 32 capabilities each
_ALWAYS = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def permissions_count() -> Iterator[bool]:
    """Let the permissions of files hold for this thread. Yields False where they do not: root on a system without capabilities."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield hasattr(os, "geteuid")
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        head, now = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
        done = libc.capget(head, now) == 0
    except (OSError, AttributeError):
        yield False
        return
    less = (ctypes.c_uint32 * 6)(*now)
    less[0] &= ~_ALWAYS & 0xFFFFFFFF  # what is in effect; what is permitted stays, and comes back
    if not done or libc.capset(head, less) != 0:
        yield False
        return
    try:
        yield True
    finally:
        libc.capset(head, now)
