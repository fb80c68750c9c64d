"""What pyproject.toml asks users to install is what the package imports, no more and no less."""

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def imported() -> set[str]:
    """Top-level modules outside the standard library that the package imports anywhere, late imports included."""
    names = set()
    for path in (ROOT / "tx8fast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(str(node.module).split(".")[0])
    return names - set(sys.stdlib_module_names) - {"tx8fast"}


def modules(requirement: str) -> set[str]:
    """Top-level modules of a requirement's package; one that is not installed is taken to have its own name."""
    package = re.split(r"[^\w.-]", requirement)[0]
    try:
        return {path.parts[0].removesuffix(".py") for path in files(package) or ()}
    except PackageNotFoundError:
        return {package}


def test_dependencies_are_the_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = {r: modules(r) for r in (*project["dependencies"], *project["optional-dependencies"]["stablehlo"])}
    assert not imported() - set().union(*given.values()), "imported, not declared"
    assert not [requirement for requirement, found in given.items() if not found & imported()], "declared, not imported"
