"""Where the host library lies, for those who build with it.

May import: nothing. Must not: import the core.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent


def get_include() -> str:
    """Return the folder of the headers: `#include <tx8fast/tx8.h>`, `<tx8fast/tx8.hpp>`."""
    return str(ROOT / "include")


def get_cmake_dir() -> str:
    """Return the folder of the CMake package: `cmake -Dtx8fast_DIR=...`, then `find_package(tx8fast)` and target `tx8fast::host`."""
    return str(ROOT / "share" / "cmake" / "tx8fast")


def get_pkgconfig_dir() -> str:
    """Return the folder of `tx8fast.pc`, for PKG_CONFIG_PATH."""
    return str(ROOT / "share" / "pkgconfig")
