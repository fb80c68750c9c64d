"""The compiled kernels of tx8fast: one explicit list, two build modes. Everything else is in pyproject.toml.

Environment: TX8FAST_DEBUG_KERNELS=1 builds with bounds checks in its own build directory;
TX8FAST_WERROR=1 turns C compiler warnings into errors (continuous integration sets it).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# A listed kernel whose source is missing stops the build: a wheel without kernels must not exist.
KERNELS = (
    "banks",
    "events",
    "field",
    "fit",
    "list_schedule",
    "pack",
    "pages",
    "plan_cost",
    "product",
    "shadow",
    "shard_enum",
)

#: what kernels include; a change rebuilds them
HEADERS = ["tx8fast/_kernels/_cells.h"]

#: the meaning of every instruction, plain C, with its binding
CORE = (
    "blocked",
    "core",
    "formats",
    "loops",
    "matrix",
    "moves",
    "pack",
    "peripheral",
    "real",
    "routine",
    "routine_cache",
    "routine_moves",
    "routine_nets",
    "routine_numbers",
    "routine_order",
    "routine_products",
    "routine_rows",
    "routine_samples",
    "routine_values",
    "routine_windows",
    "rounds",
    "tensor",
    "vector",
)
CORE_HEADERS = ["core.h", "loops.h", "matrix.h", "rounds.h", "routine.h", "tx8_core.h", "tx8_isa.h", "tx8_routines.h"]
#: every operation is rounded by itself, on every machine; the two others only let loops become vectors
CORE_FLAGS = ["-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread"]

DEBUG = os.environ.get("TX8FAST_DEBUG_KERNELS") == "1"
BUILD_DIR = "build/cython-debug" if DEBUG else "build/cython"
# Neither Cython nor the C compiler notices changed directives or flags, so what the objects in the tree
# were built with is written down, and a difference forces a rebuild.
MODE_FILE = Path("build/kernels.mode")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "cdivision": True,
}
# Whoever names a level of optimisation in CFLAGS gets it: these flags come behind those.
LEVEL = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O1" if DEBUG else "-O3"]
FLAGS = [
    *LEVEL,
    *(() if DEBUG else ("-g0",)),
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",  # these four come from the C that Cython generates, not from the kernels
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-Wno-cast-function-type",
]
if os.environ.get("TX8FAST_WERROR") == "1":
    FLAGS.append("-Werror")

MODE = repr((sorted(DIRECTIVES.items()), FLAGS, CORE_FLAGS))
FORCE = DEBUG or not MODE_FILE.exists() or MODE_FILE.read_text() != MODE


class BuildKernels(build_ext):
    """Rebuild everything when the mode changed, and note the mode once all kernels are built. Kernels are translated to C here and not
    when this file is read: source distributions and questions of front ends need none of it."""

    def run(self) -> None:
        self.force = self.force or FORCE
        super().run()
        MODE_FILE.parent.mkdir(exist_ok=True)
        MODE_FILE.write_text(MODE)

    def build_extension(self, ext: Extension) -> None:
        (made,) = cythonize([ext], build_dir=BUILD_DIR, compiler_directives=DIRECTIVES, force=self.force)
        ext.sources = made.sources
        super().build_extension(ext)


def extension(name: str) -> Extension:
    source = f"tx8fast/_kernels/{name}.pyx"
    if not Path(source).is_file():
        raise SystemExit(f"setup.py: kernel {name!r} is listed but {source} does not exist")
    return Extension(
        f"tx8fast._kernels.{name}",
        [source],
        extra_compile_args=FLAGS,
        include_dirs=["tx8fast/_kernels"],
        depends=HEADERS,
    )


def core() -> Extension:
    folder = "tx8fast/host/csrc"
    return Extension(
        "tx8fast.host._core",
        ["tx8fast/host/_core.pyx", *(f"{folder}/{name}.c" for name in CORE)],
        extra_compile_args=FLAGS + CORE_FLAGS,
        extra_link_args=["-pthread"],
        include_dirs=[folder],
        depends=[f"{folder}/{name}" for name in CORE_HEADERS],
    )


setup(ext_modules=[*(extension(name) for name in KERNELS), core()], cmdclass={"build_ext": BuildKernels})
