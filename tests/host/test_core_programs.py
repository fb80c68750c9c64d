"""Compiled models: the core gives the interpreter's bytes, in one thread and in two, with narrow vectors and with wide ones."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tx8fast
from tests.simulator.planting import feed_of
from tests.support.checkpoints import make_checkpoint
from tests.support.corpus import DATA, small_cnn
from tests.support.one_op import Arg, build
from tx8fast import api
from tx8fast.api import CompiledProgram
from tx8fast.host import core
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.simulator.functional import FunctionalSimulator


def bytes_of(found):
    return {name: np.ascontiguousarray(x).tobytes() for name, x in found.items()}


def layer(tmp_path, **options):
    make_checkpoint(tmp_path, hidden=64, heads=4, kv_heads=2, intermediate=96, vocab=50, layers=1, dtype="bfloat16")
    return tx8fast.compile(tmp_path, **options)


def compiled(tmp_path, name):
    if name == "prefill":
        return layer(tmp_path, phase="prefill", seq=6)
    if name == "decode fp32":
        return layer(tmp_path, phase="decode", past=7, dtype="fp32")
    if name == "opt 1":
        return layer(tmp_path, phase="prefill", seq=5, opt=1)
    if name == "cnn":
        return api.compile_ir(small_cnn(tmp_path), load_machine("tx8"), CompileOptions(dtype="bf16"), tmp_path)
    if name.endswith(".onnx"):
        return tx8fast.compile(DATA / "onnx" / name)
    args = [Arg((9, 70), "bf16"), Arg((9, 70), "bf16")]
    return CompiledProgram(build(args, lambda b, x, y: b("softmax", b("gelu", b("add", x, y)))).program)


def test_the_memory_of_a_run_is_free_when_it_ends():
    """Without the collector of cycles, which comes late: the next run would take as much again."""
    routine = build([Arg((9, 70), "f32")], lambda b, x: b("cumsum", x, axis=1))
    made = CompiledProgram(routine.program)
    feed = feed_of(made.program)
    gc.collect()
    gc.disable()
    try:
        for way in ({}, {"exact": True}, {"sanitize": True}):
            made.run(feed, **way)
            assert not [x for x in gc.get_objects() if type(x) is FunctionalSimulator], way
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["prefill", "decode fp32", "opt 1", "cnn", "vector", "qwen2-prefill-op23.onnx"])
@pytest.mark.slow(but_every=3)
def test_a_program_gives_the_interpreters_bytes(tmp_path, name):
    made = compiled(tmp_path, name)
    feed = feed_of(made.program)
    want = bytes_of(made.run(feed, exact=True))
    assert want and bytes_of(made.run(feed, threads=2)) == want
    for level in range(core.LEVELS):
        assert core.use_level(level)
        try:
            assert bytes_of(made.run(feed, threads=1)) == want, level
        finally:
            core.use_level(core.LEVELS - 1)
