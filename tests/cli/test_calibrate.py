"""`tx8fast calibrate`: measurements in, figures and residuals out."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.support.cli_case import Caller, refused
from tx8fast.errors import ConfigError
from tx8fast.machine import load_machine
from tx8fast.machine.tags import changed, read_tags
from tx8fast.simulator.calibrate import calibrate
from tx8fast.simulator.measurements import Measurement, parse, predicted_cycles

PUBLISHED = Path(__file__).parent.parent / "data" / "measurements.csv"
#: whose small products take 68 cycles instead of the measured 82
EARLIER = Path(__file__).parent.parent / "replay" / "machine.toml"


def published():
    return parse(PUBLISHED.read_text(), "published", load_machine())


def test_published_measurements_beside_the_default_machine():
    """All within 5 %."""
    far = {(m.engine, m.size): m.residual(predicted_cycles(load_machine(), m)) for m in published()}
    assert [name for name, x in far.items() if abs(x) > 0.05] == []
    assert far["rdma+wdma", "65536"] == pytest.approx(2352 / 2470 - 1, abs=0.002)  # what is furthest off


@pytest.mark.slow
def test_published_measurements_are_met_once_fitted(tx8: Caller, tmp_path):
    out = tmp_path / "fitted.toml"
    found = tx8("calibrate", PUBLISHED, "-o", out, "--machine", EARLIER, "--json")
    facts = json.loads(found.out)
    assert facts["largest_residual"] < 0.025 and facts["not_met"] == 0
    assert {row["key"]: row["after"] for row in facts["keys"]}["ne.startup"] == 74
    assert facts["left"]["noc.hop_cycles"] == "the measurements do not tell it from dte.setup_hw"
    assert facts["left"]["tdma.startup"] == "fits best as it is"  # the fastest move seen says little
    m = load_machine(out)
    assert m.digest == facts["fitted_digest"] != facts["machine_digest"]
    assert [r["after"] for r in facts["measurements"]] == [predicted_cycles(m, x) for x in published()]
    assert read_tags(out)["ne.startup"] == ("fitted",) and read_tags(out)["tdma.startup"] == ("assumed",)


def test_table(tx8: Caller, tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("engine,size,cycles\nne,8x8x64,82\n")
    text = tx8("calibrate", path, "--machine", EARLIER, "--fit", "ne.startup", "--fit", "rdma.startup").out
    assert "largest residual 0.0%" in text and "no measurement depends on it: rdma.startup" in text and "-17.1%" in text


@pytest.mark.slow
def test_figures_are_found_again():
    """Times that a machine with other figures would have, of enough instructions to tell them apart."""
    truth = {"ne.startup": 91, "tdma.startup": 22, "tdma.bytes_per_cycle": 80, "rdma.startup": 347}
    asked = [
        ("ne", "8x8x64"),
        ("ne", "256x512x64"),
        *((e, s) for e in ("tdma", "rdma", "wdma") for s in ("256", "65536")),
    ]
    other = changed(load_machine(), truth)
    seen = [(e, s, predicted_cycles(other, Measurement(e, s, 1, 1))) for e, s in asked]
    found = calibrate(load_machine(), [Measurement(e, s, c, c) for e, s, c in seen], list(truth))
    assert max(abs(m.residual(c)) for m, c in zip(found.measurements, found.after, strict=True)) < 0.005
    assert found.values["rdma.startup"] == 347 and found.values["ne.startup"] == 91
    assert abs(found.values["tdma.bytes_per_cycle"] - 80) <= 1 and abs(found.values["tdma.startup"] - 22) <= 1


def test_what_is_measured():
    m = load_machine()
    one = {e: predicted_cycles(m, Measurement(e, "65536", 1, 1)) for e in ("rdma", "wdma", "tdma", "ct", "dte")}
    assert one == {"rdma": 2352, "wdma": 2272, "tdma": 1064, "ct": 45 + 512, "dte": 1940}
    assert predicted_cycles(m, Measurement("rdma", "65536", 1, 1, tiles=16)) == 7295
    assert predicted_cycles(m, Measurement("rdma", "65536", 1, 1, offset=100)) == 2352 + 24 + 2
    assert predicted_cycles(m, Measurement("barrier", "1", 1, 1)) == 400 + 12 * 8
    assert Measurement("ct", "2", 78, 79).residual(77) == -1 / 78 and Measurement("ct", "2", 78, 79).residual(79) == 0
    assert Measurement("ct", "2", 78, math.inf).residual(10**6) == 0


def test_bad_lines_are_all_told():
    text = """engine,size,cycles,tiles
ct,256,47,1
cpu,256,47,1
ct,255,47,1
ne,8x8,47,1
ct,256,0,1
ct,256,79-78,1
ct,256,47,17
ct,256
rdma,9000000,47,1
ct+dte,256,47,1
dte,256,47,2
"""
    with pytest.raises(ConfigError) as error:
        parse(text, "m.csv", load_machine())
    told = str(error.value)
    assert "10 problems" in told and "line 2:" not in told
    for line, part in ((3, "engine 'cpu' is unknown"), (4, "required an even number"), (5, "required rows x depth x columns"),
                       (6, "required more than 0"), (7, "the smaller first"), (8, "tiles '17', required 1 to 16"), (9, "2 fields, required 4"),
                       (10, "verifying a program"), (11, "are measured alone"), (12, "tiles must be 1")):  # fmt: skip
        assert any(x.lstrip(" -").startswith(f"line {line}: ") and part in x for x in told.splitlines()), (
            line,
            part,
            told,
        )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "column 'engine' is missing"),
        ("engine,size,cycles,speed\n", "column 'speed' is unknown"),
        ("engine,size,cycles\n", "it has no measurements"),
        ("engine,size,cycles,size\n", "column 'size' is there 2 times"),
        ('engine,size,cycles\n"ct,1,2\n', "not valid CSV"),
    ],
)
def test_files_that_are_refused(tx8: Caller, tmp_path, text, says):
    path = tmp_path / "m.csv"
    path.write_text(text)
    assert says in refused(tx8, tmp_path, "calibrate", path, "-o", tmp_path / "out.toml")


def test_bad_arguments(tx8: Caller, tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes(PUBLISHED.read_bytes())
    assert "--fit chip.speed" in refused(
        tx8, tmp_path, "calibrate", path, "--fit", "chip.speed", "--fit", "tile.spm_model"
    )
    assert "no such file" in refused(tx8, tmp_path, "calibrate", tmp_path / "no.csv").lower()
    assert "this is the input file" in refused(tx8, tmp_path, "calibrate", path, "-o", path)
    path.write_bytes(b"\xff\xfe")
    assert "UTF-8" in refused(tx8, tmp_path, "calibrate", path)
