"""Tables at 60, 80 and 120 columns and in a pipe: golden texts, what is left out, sorting, CSV."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.cli_case import Caller, refused, write_mlp
from tx8fast.batch import table
from tx8fast.cli.cache import group_parts
from tx8fast.cli.output import progress
from tx8fast.errors import ConfigError
from tx8fast.program.labels import Layers, label, ops_text, ranges_text
from tx8fast.report import compare
from tx8fast.report.assumptions import calibration_tables, sensitivity_tables
from tx8fast.report.check import ops_grid, size_parts
from tx8fast.report.compare import head_parts, why_parts
from tx8fast.report.grid import Column, Grid, Pairs, cell_len, number, shorten
from tx8fast.report.tables import (
    cycle_head,
    groups_grid,
    inspect_head,
    kinds_grid,
    length_tables,
    output_tables,
    program_tables,
    segments_grid,
    stream_grid,  # fmt: skip
)

ROOT = Path(__file__).resolve().parent.parent
WIDTHS = (60, 80, 120, None)


#: what a command prints, from the facts of real programs
PRINTED: dict[str, Callable[[dict[str, Any]], Sequence[Any]]] = {
    "sim": lambda f: [*cycle_head(f["sim"]), groups_grid(f["sim"])],
    "inspect": lambda f: [*inspect_head(f["inspect"]), segments_grid(f["inspect"]["segment_rows"])],
    "inspect-streams": lambda f: [stream_grid(f["streams"], True)],
    "compile": lambda f: program_tables({**f["inspect"], "file_bytes": 1_000_000, "compile_seconds": 1.28, "search": f["search"],
                                         "kernel_core": {"kv_update": "it moves one row to a place that is known only when it runs"}}),
    "compile-lengths": lambda f: flat(length_tables("m.tx8", f["lengths"]["file_bytes"], "rows", f["lengths"]["programs"], 1.28)),
    "check": lambda f: [ops_grid(f["check"]), *size_parts(f["check"])],
    "ops": lambda f: [kinds_grid(f["kinds"])],
    "run": lambda f: flat(output_tables(f["run"] | {"run_seconds": 0.5})),
    "diff": lambda f: [*head_parts(f["diff"]), compare.groups_grid(f["diff"]), *why_parts(f["diff"])],
    "sensitivity": lambda f: flat(sensitivity_tables(f["sensitivity"])),
    "calibrate": lambda f: flat(calibration_tables(f["calibrate"])),
    "batch": lambda f: [table.grid(f["batch"], f["seconds"]), *table.errors(f["batch"])],
    "batch-dry-run": lambda f: [table.jobs_grid(f["jobs"])],
    "cache-ls": lambda f: [table.kept_grid(f["kept"])],
    "cache-why": lambda f: [table.fields_grid(f["fields"]), table.why_grid(f["why"])],
    "cache-why-groups": lambda f: group_parts(f["groups"]),
    "bench": lambda f: [table.bench_grid(f["bench"])],
    "bench-compare": lambda f: [table.compare_grid(f["compare"])],
}  # fmt: skip


def flat(parts: Sequence[Any]) -> list[Any]:
    return [x for part in parts for x in (part if isinstance(part, list) else [part])]


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return json.loads((ROOT / "data" / "terminal" / "facts.json").read_text())


@pytest.mark.parametrize("command", PRINTED)
def test_golden(command, facts, request):
    for width in WIDTHS:
        lines = [
            line
            for part in PRINTED[command](facts)
            for line in ([part] if isinstance(part, str) else part.lines(width))
        ]
        assert width is None or max(map(cell_len, lines)) <= width
        text = "\n".join(lines) + "\n"
        golden = ROOT / "golden" / "terminal" / f"{command}-{width or 'pipe'}.txt"
        if request.config.getoption("--update-golden"):
            golden.write_text(text)
        assert text == golden.read_text()


def test_every_table_is_golden(facts):
    """Every function of the package that makes a table is called by one of `PRINTED`."""
    texts = {p: p.read_text(encoding="utf-8") for p in (ROOT.parent / "tx8fast").rglob("*.py")}
    making = {
        (str(path), fn.name) for path, text in texts.items() if "Grid(" in text
        for fn in ast.walk(ast.parse(text)) if isinstance(fn, ast.FunctionDef)
        and any(isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Grid" for n in ast.walk(fn))
    }  # fmt: skip
    called = set()
    sys.setprofile(lambda frame, event, _: called.add((frame.f_code.co_filename, frame.f_code.co_name)))
    try:
        for parts in PRINTED.values():
            parts(facts)
    finally:
        sys.setprofile(None)
    assert {name for _, name in making - called} == {"to_csv"}  # of a file, which no terminal shows


ROWS = [
    {"name": f"a long name of row {i} and so on", "n": n, "x": x}
    for i, (n, x) in enumerate([(3, 0.5), (None, 2.0), (12, 1.0)])
]
COLUMNS = (Column("name", "what", stretch=True), number("n", "count", 2), number("x", "share", 1, "{:.1f}".format),
           Column("note", "hidden note", hidden=True))  # fmt: skip


def test_columns_leave_by_importance_and_names_lose_their_middle():
    grid = Grid(COLUMNS, ROWS)
    assert grid.lines(80)[0].split() == ["what", "count", "share"]
    narrow = grid.lines(39)
    assert narrow[0].split() == ["what", "share"] and "no room for n (--columns)" in narrow
    tiny = grid.lines(14)
    assert all(cell_len(line) <= 14 for line in tiny[:5]) and tiny[2].startswith("a lo") and tiny[2].endswith("on")
    piped = grid.lines()
    assert len(piped) == 5 and all(row["name"] in line for row, line in zip(ROWS, piped[2:], strict=True))


def test_columns_and_sorting_by_choice():
    grid = Grid(COLUMNS, ROWS)
    assert [r["n"] for r in grid.chosen((), "count").rows] == [12, 3, None]
    assert [r["n"] for r in grid.chosen((), "n:up").rows] == [3, 12, None]
    assert [r["x"] for r in grid.chosen((), "name:down").rows] == [1.0, 2.0, 0.5]
    assert grid.chosen(("x", "note", "name"), "").lines()[0].split() == ["share", "hidden", "note", "what"]
    with pytest.raises(ConfigError, match="there is no 'cycles'; there are name, n, x, note"):
        grid.chosen(("cycles",), "")
    assert list(csv.reader(io.StringIO(grid.csv())))[:2] == [["name", "n", "x"], [ROWS[0]["name"], "3", "0.5"]]


def test_text_that_would_act_on_a_terminal_or_a_spreadsheet():
    grid = Grid((Column("name", "name"),), [{"name": "=1+1"}, {"name": "a\x1b[2Jb\nc"}])
    assert grid.lines()[2:] == ["=1+1", "a\\x1b[2Jb\\nc"]
    assert grid.csv().splitlines()[1] == "'=1+1"
    assert Pairs([("key", "模型模型 ab")]).lines(11) == ["key  模型模", "     型 ab"]
    assert Pairs([("k", "a\x1b"), ("none", "")]).lines() == ["k  a\\x1b"]


def test_wide_characters_count_twice():
    assert cell_len("模型") == 4 and cell_len("e\u0301") == 1
    assert shorten("模型模型模型模型", 9) == "模...型" and cell_len(shorten("模" * 40, 21)) <= 21
    assert (
        shorten("abcdefgh", 8) == "abcdefgh" and shorten("abcdefghi", 8) == "abc...hi" and shorten("abcdef", 2) == ".."
    )


def test_labels():
    names = [f"layers.{i}.attn_norm/layers.0.mlp_norm+act" for i in (0, 1, 2, 5)]
    ops = ["layers.0.mlp_norm", "layers.0.mlp.gate_proj", "layers.0.mlp.up_proj", "layers.0.mlp.act"]
    assert label(names, ops) == "layers 0-2, 5: mlp_norm + gate + up + act"
    assert label(["norm+lm_head"], ["norm", "lm_head"]) == "norm + lm_head"
    assert ops_text(["/h.0/q/MatMul", "/h.0/k/MatMul", "/h.0/Add"]) == "q.MatMul + k.MatMul + Add"
    assert ops_text(["a", "a"]) == "a" and ops_text(["x.1.mm", "x.2.mm"]) == "mm"
    alone = Layers(["encoder/layer/11/out"])
    assert alone.of("encoder/layer/11/out") == ("layer", 11) and alone.of("node_mul_22") is None
    assert ranges_text([3, 1, 2, 7]) == "1-3, 7" and ranges_text([]) == ""
    assert ranges_text([0, 2, 4, 6, 7, 8]) == "0-6 by 2, 7-8" and ranges_text([0, 2, 4]) == "0, 2, 4"
    assert ranges_text([0, 1, 3, 4, 6, 9], 3) == "0-9 (6 of them)"


def test_layers_that_are_repeated_together_have_their_own_numbers():
    """A function of two layers, called for layers 1 and 2, 3 and 4 ...; its names are those of layers 1 and 2."""
    names = [f"layers.{i}.attn/layers.{k}.{op}" for i in (1, 3, 5, 7) for k in (1, 2) for op in ("attn", "mlp+act")]
    layers = Layers(["embed", "layers.0.attn", *names])
    assert [layers.of(n) for n in names if n.endswith("act")] == [("layers", n) for n in range(1, 9)]
    odd, even = ([n for n in names if f"/layers.{k}.mlp" in n] for k in (1, 2))
    assert label(odd, ["layers.1.mlp"], layers) == "layers 1-7 by 2: mlp"
    assert label(even, ["layers.2.mlp"], layers) == "layers 2-8 by 2: mlp"


@pytest.fixture
def tx8(capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(capsys)


@pytest.mark.slow
def test_commands(tx8, tmp_path):
    model = write_mlp(tmp_path / "m.onnx")
    program = tmp_path / "m.tx8"
    found = tx8("compile", model, "-o", program, "--dtype", "bf16", "--csv", "--columns", "label,useful_macs")
    assert found.out.splitlines()[0] == "label,useful_macs"
    assert sum(int(row["useful_macs"]) for row in csv.DictReader(io.StringIO(found.out))) == 8 * 32 * 48
    sim = json.loads(tx8("sim", program, "--json").out)
    rows = list(csv.DictReader(io.StringIO(tx8("sim", program, "--csv").out)))
    assert [int(r["total_cycles"]) for r in rows] == sorted((g["total_cycles"] for g in sim["groups"]), reverse=True)
    assert "no room" not in tx8("sim", program).out
    assert tx8("inspect", program, "--columns", "name,tiles").out.splitlines()[1].split() == ["name", "tiles"]
    assert tx8("check", model, "--dtype", "bf16", "--csv", "--sort", "op").out.startswith("op,count")
    refused(tx8, tmp_path, "sim", program, "--columns", "nothing", says=("there is no 'nothing'; there are label",))
    refused(tx8, tmp_path, "sim", program, "--csv", "--json", says=("two outputs",))
    refused(tx8, tmp_path, "compile", model, "--stop-after", "import", "--csv", says=("prints no table",))
    told = tx8("sim", program, "--json", "--sort", "cycles")
    assert json.loads(told.out) == sim and "--sort has no effect" in told.err
    refused(tx8, tmp_path, "inspect", program, "--code", "0", "--csv", says=("drop --code",))
    for args, head in (
        (("compile", write_mlp(tmp_path / "n.onnx", ("rows", 32)), "--dim", "rows=4,8", "-o", tmp_path / "l.tx8"), "length,segments"),
        (("sensitivity", program), "key,value"),
        (("calibrate", ROOT / "data" / "measurements.csv", "--fit", "dte.setup_hw"), "engine,size"),
    ):  # fmt: skip
        assert tx8(*args, "--csv").out.startswith(head)


def test_a_terminal_gets_lines_of_its_width(tx8, tmp_path):
    import fcntl
    import struct
    import termios

    program = tmp_path / "m.tx8"
    assert tx8("compile", write_mlp(tmp_path / "m.onnx"), "-o", program, "--dtype", "bf16").code == 0
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "tx8fast", "sim", str(program)], stdout=theirs, stderr=subprocess.DEVNULL, env=env
    ) as run:
        os.close(theirs)
        out = b""
        while True:
            try:
                out += (more := os.read(ours, 65536))
            except OSError:  # how Linux says that the other side is closed
                break
            if not more:
                break
    os.close(ours)
    assert run.returncode == 0
    lines = out.decode().replace("\r\n", "\n").splitlines()
    assert max(map(len, lines)) <= 60 and any("no room for" in line for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_table_of_what_is_at_work(monkeypatch):
    """A bar with what is left, and below it a row for each job that is at work, from the first moment."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("jobs", False) as told:

        def shown() -> list[list[str]]:
            drawn = io.StringIO()
            Console(file=drawn, width=60).print(told.bar.get_renderable())
            return [line.replace("\\u2501", "").split() for line in drawn.getvalue().splitlines() if line.strip()]

        told(0, 3)
        assert told.bar is None, "nothing is at work yet"
        told.begun("llama-3.1-8b/prefill")
        told.begun("a/very-long-name-of-a-job/that-has-no-room/at-all")
        assert [row[0] for row in shown()] == ["jobs", "llama-3.1-8b/prefill", "a/very-lo...m/at-all"]
        assert shown()[0][-5:] == ["0", "of", "3,", "left", "-:--:--"] and shown()[1][-3:] == ["for", "0", "s"]
        told.ended("llama-3.1-8b/prefill")
        told(1, 3)
        assert [row[0] for row in shown()][0] == "jobs" and len(shown()) == 2 and "1 of 3" in " ".join(shown()[0])


def test_the_first_steps_tell_nothing_of_the_others():
    with progress("planning", as_json=False) as told:
        assert [told.eta_seconds(done, 100) is None for done in (0, 1, 9, 10, 100)] == [True, True, True, False, False]
        assert told.eta_seconds(0, 0) is None
