"""The onnx package's operator tests, through the importer and the reference routines."""

from __future__ import annotations

import pytest
from oracle.onnx_cases import cases, run_case
from support.interpret import run_program

pytest.importorskip("onnx")
pytestmark = pytest.mark.feature("IR-51", "B11")


def _families() -> dict[str, list]:
    found: dict[str, list] = {}
    for case in cases():
        words = case.name.removeprefix("test_").split("_")
        found.setdefault(words[0], []).append(case)
    return found


FAMILIES = _families()


@pytest.mark.parametrize("family", FAMILIES)
def test_operator_family(family):
    """No case may compute something else: it passes, or is refused with a reason."""
    wrong = []
    for case in FAMILIES[family]:
        status, reason = run_case(case, run_program)
        if status == "fail" or (status == "unsupported" and not reason):
            wrong.append(f"{case.name}: {status}: {reason}")
    assert not wrong, "\n".join(wrong)


def test_number_of_supported_cases():
    statuses = [run_case(case, run_program)[0] for case in cases()]
    assert statuses.count("fail") == 0
    assert statuses.count("pass") >= 1650
