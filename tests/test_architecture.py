"""The shape of the code: who may import whom, how long a file may be, which registries must be complete."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tx8fast"
MAX_LINES = 400

# Package (first name below tx8fast) -> what it may import inside tx8fast. "numerics.layout" allows one module.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "records": set(),
    "files": {"errors"},
    "toml_text": set(),
    "highs": set(),
    "_kernels": {"errors"},
    "machine": {"_kernels", "files", "toml_text", "errors"},
    "numerics": {"_kernels", "errors"},
    "graph_table": {"errors"},
    "collectives": {"errors"},
    "weights": {"numerics", "files", "errors"},
    "isa": {"machine", "numerics", "_kernels", "errors"},
    "ir": {"numerics", "graph_table", "weights", "collectives", "errors"},
    "program": {"_kernels", "isa", "machine", "weights", "numerics", "files", "errors"},
    "lower": {"graph_table", "collectives", "isa", "machine", "numerics", "alloc", "_kernels", "errors"},
    "frontend": {"ir", "weights", "numerics", "files", "errors"},
    "passes": {"ir", "weights", "machine", "numerics", "graph_table", "files", "errors"},
    "tile": {"graph_table", "lower", "isa", "machine", "_kernels", "errors"},
    "alloc": {"machine", "_kernels", "files", "errors"},
    "search": {"graph_table", "lower", "tile", "machine", "isa", "numerics", "highs", "_kernels", "files", "errors"},
    "schedule": {
        "graph_table", "lower", "tile", "isa", "machine", "numerics", "alloc", "program", "weights", "_kernels", "errors",
    },
    "proof": {"program", "isa", "machine", "weights", "graph_table", "numerics.layout", "numerics.formats", "numerics.steps",
              "_kernels", "errors"},
    "simulator": {"program", "host", "isa", "machine", "numerics", "weights", "_kernels", "errors"},
    "codegen": {"program", "isa", "machine", "numerics", "host", "files", "errors"},
    "report": {"program", "isa", "machine", "numerics", "simulator.trace", "weights", "errors"},
    "zoo": {"files", "errors"},
    "host": {"isa", "machine", "numerics", "errors"},
}  # fmt: skip
# The top of the stack may import everything below.
TOP = {
    "__init__",
    "__main__",
    "api",
    "batch",
    "cli",
    "compiled",
    "demo",
    "demo_model",
    "graphs",
    "length_probes",
    "lengths",
    "options",
    "reducing",
    "test_cases",
}

# Heavy libraries -> the only places that may import them.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    "numba": (),
    "torch": (),
    "onnxruntime": (),
    "onnx": ("frontend/",),
    "jaxlib": ("frontend/stablehlo/",),
    "gguf": (),
    "highspy": ("highs", "search/"),
    "click": ("cli", "demo"),
}

PY_FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def imported_names(path: Path) -> list[tuple[int, str]]:
    """Return (line, dotted name) of every import in a file, at any depth."""
    here = ("tx8fast", *path.relative_to(PACKAGE).with_suffix("").parts)
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            module = (*base, *filter(None, [node.module]))
            found += [(node.lineno, ".".join((*module, alias.name))) for alias in node.names]
    return found


def owner(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def breaks_direction(package: str, dotted: str) -> bool:
    """Say whether `package` may not import the tx8fast name `dotted`."""
    parts = dotted.split(".")[1:]
    if (
        package in TOP or not parts or parts[0] in (package, "__version__", "records")
    ):  # records stand in for the standard library's
        return False
    allowed = MAY_IMPORT[package]
    return not any(dotted == f"tx8fast.{a}" or dotted.startswith(f"tx8fast.{a}.") for a in allowed)


def test_every_package_has_a_row() -> None:
    packages = {owner(path) for path in PY_FILES}
    assert packages <= set(MAY_IMPORT) | TOP, "give the new package a row in MAY_IMPORT"


@pytest.mark.slow
def test_imports_point_downwards() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in PY_FILES
        for line, name in imported_names(path)
        if name.split(".")[0] == "tx8fast" and breaks_direction(owner(path), name)
    ]
    assert not wrong, "\n".join(wrong)


def test_direction_rule_can_fail() -> None:
    assert breaks_direction("alloc", "tx8fast.ir.core")
    assert breaks_direction("schedule", "tx8fast.search.driver")
    assert not breaks_direction("proof", "tx8fast.numerics.layout.npc")
    assert breaks_direction("program", "tx8fast.weights_other")


def test_the_table_has_no_cycle() -> None:
    state: dict[str, int] = {}

    def visit(package: str, trail: tuple[str, ...]) -> None:
        assert state.get(package) != 1, " -> ".join((*trail, package))
        if state.get(package) == 2:
            return
        state[package] = 1
        for below in sorted(MAY_IMPORT[package]):
            visit(below.split(".")[0], (*trail, package))
        state[package] = 2

    for package in MAY_IMPORT:
        visit(package, ())


@pytest.mark.slow
def test_heavy_libraries_stay_in_their_corner() -> None:
    wrong = []
    for path in PY_FILES:
        where = path.relative_to(PACKAGE).as_posix()
        for line, name in imported_names(path):
            places = THIRD_PARTY.get(name.split(".")[0])
            if places is not None and not where.startswith(places):
                wrong.append(f"tx8fast/{where}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def modules(requirement: str) -> set[str]:
    """Top-level modules of a requirement's package; one that is not installed is taken to have its own name."""
    package = re.split(r"[^\w.-]", requirement)[0]
    try:
        return {path.parts[0].removesuffix(".py") for path in files(package) or ()}
    except PackageNotFoundError:
        return {package}


def test_dependencies_are_the_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k not in ("dev", "oracle", "torch")}
    required = [*project["dependencies"], *(r for group in extras.values() for r in group)]
    given = {requirement: modules(requirement) for requirement in required}
    used = {name.split(".")[0] for path in PY_FILES for _, name in imported_names(path)}
    used -= {*sys.stdlib_module_names, "tx8fast"}
    assert not used - set().union(*given.values()), "imported, not declared"
    assert not [requirement for requirement, found in given.items() if not found & used], "declared, not imported"


@pytest.mark.parametrize("folder", ["tx8fast", "tests", "benchmarks"])
def test_files_stay_small(folder: str) -> None:
    suffixes = {".py", ".pyx", ".pxd", ".cpp", ".h", ".c"}
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }  # fmt: skip
    assert not long, f"over {MAX_LINES} lines: {long}"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in PY_FILES
        if path.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent, silent


def test_compile_path_loads_no_heavy_library() -> None:
    """And `check`, which must answer within a second, nothing of what comes behind the passes."""
    code = (
        "import sys, tx8fast.cli.check, tx8fast.cli.support, tx8fast.graphs, tx8fast.frontend.hf\n"
        "print(*(n for n in sys.modules if n.startswith('tx8fast.') and n.split('.')[1] in ('simulator', 'host', 'proof', 'batch') and n.count('.') > 1\n"
        "        and n != 'tx8fast.simulator.roofline'))\n"
        "print(*({'tx8fast.' + n for n in ('api', 'search.trial', 'search.exact', 'schedule.assemble', 'program.verify')} & set(sys.modules)))\n"
        "import tx8fast.api\n"
        "bad = sorted({'numba', 'torch', 'onnxruntime', 'onnx', 'highspy'} & set(sys.modules))\n"
        "print(*bad)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def test_setup_lists_every_kernel_and_every_kernel_has_its_twin() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (listed,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "KERNELS"
    ]
    kernels = PACKAGE / "_kernels"
    sources = {path.stem for path in kernels.glob("*.pyx")}
    assert sorted(listed) == sorted(sources)
    assert {path.stem for path in kernels.glob("*.pyi")} == sources
    assert {path.stem for path in (kernels / "reference").glob("*.py")} - {"__init__"} == sources


def test_every_pass_is_in_the_tuple() -> None:
    from tx8fast.passes import PASSES

    modules_of_passes = {entry.__module__ for entry in PASSES}
    declared = set()
    for path in (PACKAGE / "passes").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            bases = [getattr(base, "id", "") for base in getattr(node, "bases", [])]
            named = [getattr(getattr(n, "target", None), "id", "") for n in getattr(node, "body", [])]
            if isinstance(node, ast.ClassDef) and any(b.endswith("Pass") for b in bases) and "name" in named:
                declared.add(f"tx8fast.passes.{path.stem}")
    assert declared - modules_of_passes == set()


def loaded(roots: Iterable[str]) -> set[str]:
    """Return the modules below tx8fast that are imported from `roots`, at any depth of a function, by names behind `tx8fast.`."""
    files = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path for path in PY_FILES
    }
    found: set[str] = set()
    waiting = [*roots]
    while waiting:
        name = waiting.pop()
        if name in found or name not in files:
            continue
        found.add(name)
        dotted = [
            imported.removeprefix("tx8fast.")
            for _, imported in imported_names(files[name])
            if imported.startswith("tx8fast.")
        ]
        waiting += [part for text in (name, *dotted) for part in (text, text.rpartition(".")[0])]
    return found


def test_every_module_is_reached_from_a_command_or_the_api() -> None:
    """Commands are loaded by name; the header of the instruction set is written by `python -m`, the twins of kernels are their tests'."""
    from tx8fast.cli.app import COMMANDS

    commands = {f"cli.{place.partition('.')[0]}" for place in COMMANDS.values()}
    reached = loaded({"api", "cli", "demo", "__main__", "alloc.__main__", "host.places", "host.isa_header", *commands})
    reached.add("__init__")
    names = {".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in PY_FILES}
    rest = {name for name in names - reached if not name.startswith("_kernels.reference")}
    assert not rest, f"no command and no call of the API reaches {sorted(rest)}: wire or delete them"


def test_nothing_reads_outside_the_repository() -> None:
    pattern = re.compile("/".join(("", "work", "shared")) + "|" + "/".join(("..", "shared")))
    suffixes = {".py", ".pyx", ".pxd", ".pyi", ".md", ".toml", ".cpp", ".h", ".yaml", ""}
    skipped = {".git", ".venv", "build", "dist", ".hypothesis", ".pytest_cache", ".ruff_cache"}
    wrong = [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*")
        if path.suffix in suffixes and path.is_file()
        and not skipped & set(path.relative_to(ROOT).parts)
        and pattern.search(path.read_text(encoding="utf-8", errors="replace"))
    ]  # fmt: skip
    assert not wrong, wrong
