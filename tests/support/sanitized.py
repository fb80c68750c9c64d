"""Builds that check themselves: what TX8FAST_SANITIZE_C asks for, and the flags of each tool."""

from __future__ import annotations

import os
import shutil

#: "1": addresses, undefined behaviour and leaks; "thread": accesses of several threads that nothing orders
ASKED = os.environ.get("TX8FAST_SANITIZE_C", "")
FLAGS = {
    "1": ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-g", "-fsanitize=thread"],
}
OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=3000:detect_leaks=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
}
VALGRIND = [
    shutil.which("valgrind") or "",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect",
]
