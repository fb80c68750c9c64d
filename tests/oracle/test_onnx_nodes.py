"""The onnx package's operator tests through importer, compiler and functional simulator.

Every fourth of each operator runs, the first included, and of those that have a function's body in place of the function every sixteenth,
as the same functions are expanded when they are imported; all with TX8FAST_ALL_MODELS=1.
"""

from __future__ import annotations

from collections import defaultdict

import onnx
import pytest

from tests.oracle.compiled import DOCUMENT, document, expected_passes, refusals, run_compiled
from tests.oracle.onnx_cases import cases, run_case
from tests.support.thorough import THOROUGH

CHUNKS = 16
EXPANDED = "_expanded"
SAME_CASES = f"operator tests of onnx {onnx.__version__}," in DOCUMENT.read_text(encoding="utf-8")


def chosen() -> list:
    """Return the cases that run, sorted by name."""
    passing = set(expected_passes())
    of_operator = defaultdict(list)
    for case in cases():
        if case.name in passing:
            of_operator[EXPANDED if EXPANDED in case.name else case.model.graph.node[0].op_type].append(case)
    some = []
    for operator, found in of_operator.items():
        some += found[:: 1 if THOROUGH else 16 if operator == EXPANDED else 4]
    return sorted(some, key=lambda case: case.name)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.slow(but_every=5)
def test_expected_cases_pass(chunk):
    wrong = []
    for case in chosen()[chunk::CHUNKS]:
        status, reason = run_case(case, run_compiled)
        if status != "pass":
            wrong.append(f"{case.name}: {status}: {reason}")
    assert not wrong, "\n".join(wrong)


def test_all_others_are_refused_with_a_reason_and_listed():
    known = set(expected_passes())
    refused = refusals(known)
    wrong = [r for r in refused if r[1] not in ("unsupported", "skip") or not r[2]]
    assert not wrong, "run `python -m oracle.compiled` if these pass now: " + "\n".join(map(str, wrong))
    if SAME_CASES:
        assert DOCUMENT.read_text(encoding="utf-8") == document(len(cases()) - len(refused), refused)


def test_list_covers_what_it_did():
    names = expected_passes()
    assert names == sorted(set(names)) and len(names) >= 1688
    assert not SAME_CASES or set(names) <= {c.name for c in cases()}
