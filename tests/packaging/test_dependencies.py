"""What pyproject.toml asks users to install is what the package imports, no more and no less."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
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


def declared(table: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in table}


def test_dependencies_are_the_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = declared(project["dependencies"]) | declared(extras["stablehlo"])
    owners = packages_distributions()
    found = {name: {d.lower().replace("_", "-") for d in owners.get(name, [name])} for name in imported()}
    undeclared = sorted(name for name, packages in found.items() if not packages & wanted)
    assert not undeclared, f"imported, not declared: {undeclared}"
    unused = sorted(wanted - set().union(*found.values()))
    assert not unused, f"declared, not imported: {unused}"
