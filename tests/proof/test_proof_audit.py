"""The audit finds sums and intermediates that lose bits, and nothing in programs that lose none."""

from __future__ import annotations

import json

import numpy as np

from tx8fast import api, isa
from tx8fast.program.model import Launch, Program, Segment
from tx8fast.proof.audit import Finding, audit


def program(*rows) -> Program:
    segment = Segment(
        "s", [isa.rows(rows)], np.array([0, -1, 0]), np.zeros(0, np.int32), np.zeros((16, 0), np.int64), 0, ["op"]
    )
    return Program({}, [segment], [Launch(0, np.zeros(0, np.int64), "s")], [], [], [], 0, {})


def gemm(k: int, psum_fmt: int) -> tuple:
    return isa.make(
        "gemm",
        fmt=3,
        op=0,
        left=0,
        right=4096,
        out=8192,
        psum=8192,
        m=4,
        k=k,
        n=64,
        out_fmt=psum_fmt,
        psum_fmt=psum_fmt,
        psum_en=1,
    )


def test_sums_in_sixteen_bits_are_found():
    assert audit(program(gemm(64, 3))) == []  # a residual: nothing says that a product made it
    assert audit(program(gemm(64, 3), gemm(64, 3))) == [Finding("s", "op", "partial sums in bf16", 2)]
    load = isa.make("rdma", op=0, slot=0, ddr=0, dst=8192, run_bytes=512)
    assert audit(program(gemm(64, 3), load, gemm(64, 3))) == []  # of the next rows
    assert audit(program(gemm(64, 5), gemm(64, 5))) == []
    assert audit(program(gemm(64, 3), gemm(1, 3))) == []  # one product is no sum
    row = isa.make("reduce_sum", fmt=3, op=0, src0=0, dst=4096, dim=0, n=1, h=1, w=4, c=64)
    assert audit(program(row)) == [Finding("s", "op", "sum in bf16", 2)]


def test_rows_that_take_f32_as_tf32_are_found():
    """To the proof both are the same elements."""
    row = isa.make("reduce_avg", fmt=6, op=0, src0=0, dst=4096, dim=0, n=1, h=1, w=4, c=64)
    assert audit(program(row)) == [Finding("s", "op", "computed in tf32", 2)]
    assert audit(program(gemm(64, 6))) == [Finding("s", "op", "computed in tf32", 2)]


def test_values_narrowed_between_wide_rows_are_found():
    narrow = isa.make("cvt_f32_bf16", fmt=5, op=0, src0=0, dst=4096, n=64)
    widen = isa.make("cvt_bf16_f32", fmt=3, op=0, src0=4096, dst=8192, n=64)
    assert audit(program(narrow, widen)) == [Finding("s", "op", "narrowed to bf16 between f32 rows", 2)]
    fresh = isa.make("add_vs", fmt=3, op=0, src0=0, dst=4096, n=64, scalar=0)
    assert audit(program(narrow, fresh, widen)) == []


def test_a_language_model_keeps_its_sums_wide(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
              "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not [f for f in audit(api.compile(tmp_path, seq=16).program) if "sum" in f.what]
