"""The compiled kernels of tx8fast: one explicit list, two build modes. Everything else is in pyproject.toml.

Environment: TX8FAST_DEBUG_KERNELS=1 builds with bounds checks in its own build directory;
TX8FAST_WERROR=1 turns C compiler warnings into errors (continuous integration sets it).
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# A listed kernel whose source is missing stops the build: a wheel without kernels must not exist.
KERNELS = (
    "banks",
    "dependences",
    "distinct",
    "events",
    "field",
    "fit",
    "folds",
    "list_schedule",
    "overlaps",
    "pack",
    "pages",
    "plan_cost",
    "product",
    "shadow",
    "shard_enum",
    "shorts",
    "time_steps",
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
    "meet",
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
    "routine_scales",
    "routine_values",
    "routine_windows",
    "rounds",
    "tensor",
    "vector",
)
#: reads and runs program files; with the core, the host library
HOST = (
    "tx8_code",
    "tx8_digest",
    "tx8_faults",
    "tx8_file",
    "tx8_host",
    "tx8_json",
    "tx8_launches",
    "tx8_problem",
    "tx8_read",
    "tx8_tensors",
    "tx8_worker",
)
CORE_HEADERS = [
    "core.h",
    "loops.h",
    "matrix.h",
    "meet.h",
    "rounds.h",
    "routine.h",
    "tx8_core.h",
    "tx8_isa.h",
    "tx8_routines.h",
]
#: every operation is rounded by itself, on every machine; the two others only let loops become vectors
CORE_FLAGS = ["-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
HIDDEN = ["-fvisibility=hidden"]  # but for what the header declares
CSRC = "tx8fast/host/csrc"
LIBRARY, BINDING = "tx8fast.host.lib.libtx8fast", "tx8fast.host._program"
PUBLIC = ["tx8fast/host/include/tx8fast/tx8.h", "tx8fast/host/include/tx8fast/tx8.hpp"]
LINUX = sys.platform.startswith("linux")

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
    "-ffp-contract=off",  # sums of times are the same on every machine
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
        Path(LIBRARY.replace(".", "/")).parent.mkdir(exist_ok=True)
        super().run()
        MODE_FILE.parent.mkdir(exist_ok=True)
        MODE_FILE.write_text(MODE)

    def get_ext_filename(self, fullname: str) -> str:
        """The host library is no module, and has no Python in its name."""
        *folders, name = fullname.split(".")
        return (
            os.path.join(*folders, f"{name}.so") if LIBRARY.endswith(f".{name}") else super().get_ext_filename(fullname)
        )

    def build_extension(self, ext: Extension) -> None:
        if ext.name == LIBRARY:  # the core's objects are those of its binding
            changed = max(Path(f).stat().st_mtime for f in ext.depends if Path(f).exists())
            for source in sources(CORE):
                (made,) = self.compiler.object_filenames([source], output_dir=self.build_temp)
                if Path(made).exists() and Path(made).stat().st_mtime > changed:
                    ext.extra_objects.append(made)
                else:
                    ext.sources.append(source)
        elif ext.name == BINDING:
            ext.library_dirs.append(str(Path(self.get_ext_fullpath(LIBRARY)).parent))
        if ext.name in (LIBRARY, BINDING):
            return super().build_extension(ext)
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


def sources(names: tuple[str, ...]) -> list[str]:
    return [f"{CSRC}/{name}.c" for name in names]


def core() -> Extension:
    return Extension(
        "tx8fast.host._core",
        ["tx8fast/host/_core.pyx", *sources(CORE)],
        extra_compile_args=FLAGS + CORE_FLAGS + HIDDEN,
        extra_link_args=["-pthread"],
        include_dirs=[CSRC],
        depends=[f"{CSRC}/{name}" for name in CORE_HEADERS],
    )


def library() -> Extension:
    """The host library: the core and the reader of program files, without Python."""
    headers = ["tx8_code", "tx8_digest", "tx8_file", "tx8_json", "tx8_limits", "tx8_problem", "tx8_program"]
    return Extension(
        LIBRARY,
        sources(HOST),
        extra_compile_args=FLAGS + CORE_FLAGS + HIDDEN,
        extra_link_args=["-pthread", "-lm", *(["-Wl,-soname,libtx8fast.so"] if LINUX else [])],
        include_dirs=[CSRC],
        depends=[
            *sources(CORE),
            *(f"{CSRC}/{name}.h" for name in headers),
            *(f"{CSRC}/{name}" for name in CORE_HEADERS),
            *PUBLIC,
        ],
    )


def binding() -> list[Extension]:
    """The C++ classes for Python, where pybind11 and a C++ compiler are."""
    try:
        import pybind11
    except ImportError:
        return []
    return [
        Extension(
            BINDING,
            ["tx8fast/host/binding.cpp"],
            extra_compile_args=[*LEVEL, "-g0", "-std=c++17", "-fvisibility=hidden", "-Wall", "-Wextra"],
            extra_link_args=["-Wl,-rpath,$ORIGIN/lib" if LINUX else "-Wl,-rpath,@loader_path/lib"],
            include_dirs=[pybind11.get_include(), "tx8fast/host/include"],
            libraries=["tx8fast"],
            depends=PUBLIC,
            language="c++",
            optional=True,
        )
    ]


modules = [*(extension(name) for name in KERNELS), core(), library(), *binding()]
setup(ext_modules=modules, cmdclass={"build_ext": BuildKernels})
