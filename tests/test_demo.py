"""The demonstration's verdict: right results pass, wrong or non-finite ones do not. The compiler is replaced."""

import ml_dtypes
import numpy as np
import pytest

import tx8fast
from tx8fast import demo
from tx8fast.demo_model import SMALL, decoder, write_checkpoint


class Exact:
    """Stands for a compiled program: the demonstration's own arithmetic, rounded to bfloat16, then spoiled."""

    def __init__(self, directory, spoil, phase, **sizes):
        self.weights = write_checkpoint(directory / "again", SMALL)
        self.phase, self.spoil = phase, spoil

    def run(self, inputs):
        past = {k: v for k, v in inputs.items() if k.startswith("past")} or None
        position = int(inputs["position"][0]) if past else 0
        out = decoder(SMALL, self.weights, inputs["input_ids"], past, position)
        return {k: self.spoil(v).astype(ml_dtypes.bfloat16) for k, v in out.items()}

    def save(self, path):
        path.write_bytes(self.phase.encode())


def halve_last_column(a):
    a = a.copy()
    a[..., -1] = 0.5 * a[..., -1] + 3
    return a


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(lambda a: a, 0), (halve_last_column, 1), (lambda a: np.where(a > 2, np.nan, a), 1)],
)
@pytest.mark.slow(but_every=4)
def test_verdict(tmp_path, monkeypatch, capsys, spoil, code):
    monkeypatch.setattr(tx8fast, "compile", lambda path, **options: Exact(tmp_path, spoil, **options), raising=False)
    assert demo.main(["--out", str(tmp_path / "out"), "--no-large"]) == code
    assert "prefill" in capsys.readouterr().out
    assert (tmp_path / "out" / "small-decode.tx8").read_bytes() == b"decode"
