"""Fixtures that all tests share. Deterministic property tests: a failure on one machine fails on all."""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.thorough import THOROUGH

# The suite starts the command in some hundred processes, and rewrites its own modules: where the environment wants no compiled modules,
# every one of them would compile the package again, which takes longer than most commands.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("tx8fast", deadline=None, derandomize=True, max_examples=60 if THOROUGH else 16)
settings.load_profile("tx8fast")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`slow(but_every=N)`: of every N cases of a test the first is not slow, so that `make test` has a part that stands for the rest."""
    cases: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("slow")
        if mark is None or "but_every" not in mark.kwargs:
            continue
        test = item.nodeid.partition("[")[0]
        if cases[test] % mark.kwargs["but_every"] == 0:
            item.own_markers.remove(mark)
        cases[test] += 1


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The directory that holds `pyproject.toml`."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Small input files that belong to the tests."""
    return Path(__file__).resolve().parent / "data"


@pytest.fixture(autouse=True, scope="session")
def prove_what_is_compiled():
    """With TX8FAST_PROVE=1 every small model that a test compiles is proved too."""
    if os.environ.get("TX8FAST_PROVE") != "1":
        yield
        return
    from tests.support.proofs import proving

    with proving():
        yield
