"""What the StableHLO tests share: a check of a JAX function against its compiled program, run bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tx8fast.api import compile as compile_model

#: largest error relative to the largest magnitude of the expected result
TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3}


def error_of(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference relative to the largest magnitude; infinite where one is finite and the other is not."""
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    if got.size == 0:
        return 0.0
    if not (np.isfinite(got) == np.isfinite(want)).all():
        return float("inf")
    ok = np.isfinite(want)
    assert (np.isnan(got) == np.isnan(want)).all()
    assert (got[~ok & ~np.isnan(want)] == want[~ok & ~np.isnan(want)]).all()
    return float(np.abs(got - want)[ok].max(initial=0.0) / max(np.abs(want[ok]).max(initial=0.0), 1e-6))


@pytest.fixture
def check(tmp_path) -> Callable:
    """check(f, *args, tol=None, export=False): lower `f` with JAX, compile the text, run it, compare all results."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("jaxlib")

    def run(f, *args, tol: float | None = None, export: bool = False, **options):
        if export:
            path = tmp_path / "model.jaxexport"
            path.write_bytes(jax.export.export(jax.jit(f))(*args).serialize())
        else:
            path = tmp_path / "model.mlir"
            path.write_text(jax.jit(f, keep_unused=True).lower(*args).as_text())
        compiled = compile_model(path, **options)
        leaves = [np.asarray(a) for a in jax.tree.leaves(args)]
        assert len(leaves) == len(compiled.inputs)
        results = compiled.run({t.name: a for t, a in zip(compiled.inputs, leaves)})
        wanted = [np.asarray(w) for w in jax.tree.leaves(jax.jit(f)(*args))]
        assert len(wanted) == len(results)
        for i, want in enumerate(wanted):
            got = results[f"result{i}"]
            if want.dtype.kind in "biu":
                assert got.shape == want.shape and (got.astype(np.int64) == want.astype(np.int64)).all(), (got, want)
            else:
                bound = tol or max(TOLERANCE.get(str(a.dtype), 0) for a in [want, *leaves])
                assert error_of(got, want) <= bound, error_of(got, want)
        return compiled

    return run
