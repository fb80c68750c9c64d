"""What a simulation keeps per row: little, whatever rows are like, for a program may have millions of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cli_case import write_mlp
from tx8fast import api
from tx8fast.machine import Machine
from tx8fast.options import CompileOptions
from tx8fast.simulator import timing
from tx8fast.simulator.rows import event_input
from tx8fast.simulator.stretch import parts_of, unroll


@pytest.fixture(scope="module")
def stretches(tmp_path_factory):
    made = api.compile(write_mlp(tmp_path_factory.mktemp("m") / "m.onnx"), CompileOptions(dtype="bf16")).program
    machine = Machine.from_dict(made.machine)
    segments = unroll(machine, made)
    return machine, [parts_of(made, segments, s) for s in timing.stretches(made.launches, segments)]


def test_rows_share_what_they_are_like(stretches):
    machine, all_parts = stretches
    for parts in all_parts:
        rows = event_input(machine, parts)
        codes = {id(c): c for p in parts for c in (*p.code.codes, p.code.idle)}.values()
        assert rows.form is not None and rows.ddr_at is not None
        assert len(rows.spm_read) <= len(parts) * sum(len(c.body) for c in codes)
        per_code = sum(a.nbytes for a in (rows.kind, rows.issue, rows.form, rows.ddr_at)) / max(1, len(rows.kind))
        assert per_code <= 24 and (rows.fixed.nbytes + rows.ddr_bytes.nbytes) == 16 * rows.tile_begin[-1]


def test_forms_say_of_every_row_what_its_record_says(stretches):
    machine, all_parts = stretches
    for parts in all_parts:
        rows = event_input(machine, parts)
        assert (
            rows.form is not None
            and rows.ddr_at is not None
            and rows.ddr_slot is not None
            and rows.ddr_base is not None
        )
        for tile in (0, 5):
            at = int(rows.code_begin[tile])
            for part in parts:
                code = part.code.code(tile)
                form, ddr_at = rows.form[at : at + len(code.place)], rows.ddr_at[at : at + len(code.place)]
                at += len(code.place)
                assert np.array_equal(rows.spm_read[form], code.spm_read[code.place])
                base = part.code.base(part.args, tile)
                records = code.rows
                slot = rows.ddr_slot[form]
                found = ddr_at + np.where(slot >= 0, rows.ddr_base[tile][np.maximum(slot, 0)], 0)
                moves = records["slot"] >= 0
                assert np.array_equal(found[moves], (base[records["slot"]] + records["ddr"])[moves])
