"""From an imported graph to tables: the passes, the view, and what a program needs at least; all that is known before a search.

May import: machine, options, ir, passes, schedule.demand, numerics (late), errors. Must not: search or emit code; `check` starts with
this alone.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tx8fast.errors import ConfigError, SlowFormatWarning
from tx8fast.ir.chips import bind_chips
from tx8fast.ir.program import IRProgram
from tx8fast.ir.stages import check_closed
from tx8fast.ir.view import View, build_view
from tx8fast.machine import Machine
from tx8fast.options import CompileOptions
from tx8fast.passes.pipeline import run_pipeline
from tx8fast.schedule.demand import demand

#: the part of a model's weights that may stay whole where numbers of chips are proposed
UNSHARED = 0.1
#: called with the name of a stage ("import", then each pass) and the graph as that stage left it
Dump = Callable[[str, IRProgram], None]


@contextlib.contextmanager
def quiet_collector():
    """The graph is one live structure while we compile: collecting it again and again only costs time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def lower_graph(ir: IRProgram, options: CompileOptions, dump: Dump | None = None) -> View:
    """Run the passes on `ir` in place and return its tables: the graph as search and schedule see it."""
    from tx8fast.passes.pipeline import standard_pipeline

    check_closed(ir)
    bind_chips(ir, options.chips)
    after_pass = None
    if dump is not None:
        dump("import", ir)
        after_pass = lambda p, program: dump(p.name, program)  # noqa: E731
    passes = standard_pipeline(
        options.ir_dtype, groups=options.group_table, io_dtype=options.ir_io_dtype, parts=ir.parts
    )
    run_pipeline(ir, passes, verify_between=False, dump=after_pass)
    return build_view(ir)


def shares_of(ir: IRProgram) -> Callable[[int], tuple[int, float]] | None:
    """Return `IRProgram.shares`, None for a graph that several devices share already. What was read as a graph is read once more, since passes have
    changed the one that is here; of it all inputs and results count as caches."""
    if ir.again is None:
        return ir.shares
    from tx8fast.passes.chip_facts import ChipFacts
    from tx8fast.passes.cut_over_chips import cut_bytes, weight_sizes
    from tx8fast.passes.pipeline import lifted_passes

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it was told of when the model was read first
        whole = ir.again()
    if whole.chips != (1, 1):
        return None
    run_pipeline(whole, lifted_passes(), verify_between=False)
    own, named = cut_bytes(whole, 1)
    weights = weight_sizes(ChipFacts(whole))

    def shares(n: int) -> tuple[int, float]:
        odd = sum(n_bytes for n_bytes, sizes in weights if all(size % n for size in sizes))
        if odd > UNSHARED * sum(n_bytes for n_bytes, _ in weights):
            raise ConfigError(
                f"cutting '{ir.name}' over {n} chips: sizes of weights of {odd:,} bytes do not divide by {n}"
            )
        held, left = cut_bytes(whole, n)
        return held, left / max(1, named)

    return shares


def model_demand(ir: IRProgram, view: View, machine: Machine, options: CompileOptions) -> dict[str, Any]:
    """Return the `demand` of a lowered graph; warn if a configuration alone has chosen a slow format."""
    needed = demand(view.table, partial(param_source, ir, view), options.compute_dtype)
    factor = machine.peak_macs_per_cycle("bf16") / machine.peak_macs_per_cycle("f32")
    if options.dtype is None and ir.config_dtype == "f32" and factor > 1:
        warnings.warn(
            f"the configuration or checkpoint says float32, and matrix products take {factor:.3g} times as long in fp32 as in bf16: "
            "--dtype bf16 or fp16 is faster, --dtype fp32 says that fp32 is meant",
            SlowFormatWarning,
            stacklevel=3,
        )
    return needed


def param_source(ir: IRProgram, view: View, key: str) -> dict[str, Any]:
    """Return where the parameter `key` of a lowered graph comes from: kind, shape, dtype and what finds its bytes."""
    if key in view.inline:
        array = view.inline[key]
        return {"kind": "array", "shape": list(array.shape), "dtype": _dtype_name(array)}
    if ir.weights.varies(key):
        made: dict[str, dict[str, Any]] = {}
        parts = [ir.weights.describe(key, chip, made) for chip in range(ir.chips[0] * ir.chips[1])]
        return {"kind": "chips", "sources": parts, "shape": parts[0]["shape"], "dtype": parts[0]["dtype"]}
    return ir.weights.describe(key)


def _dtype_name(array: np.ndarray) -> str:
    from tx8fast.numerics.formats import dtype_name

    return dtype_name(array.dtype)
