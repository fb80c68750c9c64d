"""The onnx package's operator tests through importer, compiler and functional simulator.

Every second runs, and of those that have a function's body in place of the function every eighth, as the same functions are expanded when
they are imported; all with TX8FAST_ALL_MODELS=1.
"""

from __future__ import annotations

import onnx
import pytest

from tests.oracle.compiled import DOCUMENT, document, expected_passes, refusals, run_compiled
from tests.oracle.onnx_cases import cases, run_case
from tests.support.thorough import THOROUGH

CHUNKS = 16
EXPANDED, EVERY = "_expanded", 1 if THOROUGH else 8
SAME_CASES = f"operator tests of onnx {onnx.__version__}," in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_expected_cases_pass(chunk):
    names = expected_passes()
    known = {*[n for n in names if EXPANDED not in n][:: min(EVERY, 2)], *[n for n in names if EXPANDED in n][::EVERY]}
    wrong = []
    for case in [c for c in cases() if c.name in known][chunk::CHUNKS]:
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
