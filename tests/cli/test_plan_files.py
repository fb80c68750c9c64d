"""Files of plans on the command line: what is written, what is loaded, and whatever else a user may hand in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_case import Caller, compile_args, refused, tree
from tx8fast.errors import ConfigError
from tx8fast.search.results_file import read_results
from tx8fast.tile.schedule import POLICIES


@pytest.fixture(scope="session")
def plans(mlp: Path) -> str:
    """The plans of `mlp` as text."""
    import tx8fast

    searched = tx8fast.compile(mlp, dtype="bf16").searched
    assert searched is not None
    return searched.text()


def refused_file(tx8: Caller, tmp_path: Path, mlp: Path, content: str | bytes, *says: str) -> str:
    path = tmp_path / "plans.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--dtype", "bf16", "--load-plans", path), says=says)


def test_saved_plans_make_the_same_program(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    plans, first, again = tmp_path / "p.json", tmp_path / "a.tx8", tmp_path / "b.tx8"
    assert tx8("compile", mlp, "--opt", 3, "--save-plans", plans, "-o", first).code == 0
    done = tx8("compile", mlp, "--load-plans", plans, "-o", again, "--json")
    assert done.code == 0 and done.err.count("warning") == 0
    assert json.loads(done.out)["options"]["opt"] == 3
    assert again.read_bytes() == first.read_bytes()
    more = tmp_path / "q.json"
    assert tx8("compile", mlp, "--load-plans", plans, "--save-plans", more).code == 0  # no program is asked for
    assert more.read_bytes() == plans.read_bytes()
    assert tx8("compile", mlp, "--stop-after", "search", "--opt", 3, "--save-plans", more).code == 0
    assert more.read_bytes() == plans.read_bytes()


NOT_PLANS = {
    "nothing": b"", "no JSON": b"garbage" * 40, "zeros": b"\0" * 100, "not UTF-8": b'{"format": "\xff"}', "a list": b"[]",
    "another": b'{"format": "else"}', "a number": b"3", "deep": b"[" * 100_000, "NaN": b'{"format": NaN}',
    "a program": b"\x89TX8\r\n\x1a\n" + b"x" * 100,
}  # fmt: skip


@pytest.mark.parametrize("content", NOT_PLANS.values(), ids=NOT_PLANS)
def test_files_that_are_no_plans(tx8: Caller, tmp_path: Path, mlp: Path, content: bytes) -> None:
    refused_file(tx8, tmp_path, mlp, content, "reading plans", "plans.json")


@pytest.mark.parametrize("keep", [0.01, 0.3, 0.7, 0.99])
def test_truncated_files(tx8: Caller, tmp_path: Path, mlp: Path, plans: str, keep: float) -> None:
    refused_file(tx8, tmp_path, mlp, plans[: int(len(plans) * keep)], "not valid JSON, or not all of it")


def test_names_twice_and_numbers_that_are_none(tx8: Caller, tmp_path: Path, mlp: Path, plans: str) -> None:
    refused_file(
        tx8, tmp_path, mlp, plans.replace('"opt": 2', '"opt": 2, "opt": 3'), "'opt' stands twice in one object"
    )
    refused_file(tx8, tmp_path, mlp, plans.replace('"bufs": 2', '"bufs": Infinity'), "Infinity is no number")
    refused_file(tx8, tmp_path, mlp, plans.replace('"bufs": 2', '"bufs": ' + "9" * 5000), "not valid JSON")


def nest(data: dict[str, Any]) -> dict[str, Any]:
    return next(iter(data["plans"].values()))["nests"][0]


EDITS: list[tuple[str, Callable[[dict[str, Any]], Any], tuple[str, ...]]] = [
    ("version", lambda d: d.update(version=99), ("format version 99, required 4",)),
    ("no version", lambda d: d.pop("version"), ("format version None",)),
    ("version as text", lambda d: d.update(version="1"), ("format version '1'",)),
    ("machine", lambda d: d.update(machine_digest="0" * 64), ("made for a machine with digest 0000",)),
    ("opt", lambda d: d.update(opt=7), ("$.opt: found 7, required 1, 2 or 3",)),
    ("two types", lambda d: (d.update(opt="2"), nest(d).update(parts=[1, "2"])), ("2 problems", "$.opt: found '2'", "parts[1]")),
    ("a flag", lambda d: d.update(opt=True), ("$.opt: found True, required a whole number",)),
    ("a fraction", lambda d: nest(d).update(bufs=1.5), ("bufs: found 1.5, required a whole number",)),
    ("huge", lambda d: nest(d).update(slices=[10**30, 1, 1]), ("slices[0]: found a number too large",)),
    ("far below", lambda d: nest(d).update(slices=[-(10**30)]), ("slices[0]: found a number too small",)),
    ("no list", lambda d: nest(d).update(parts=None), ("parts: found None, required a list",)),
    ("unknown", lambda d: nest(d).update(speed=3), ("unknown entry 'speed'",)),
    ("missing", lambda d: nest(d).pop("order"), ("order: missing",)),
    ("no nests", lambda d: next(iter(d["plans"].values())).update(nests=[]), ("1 nest, and a plan for 0",)),
    ("no such plan", lambda d: d["functions"][0]["steps"][0].update(plan="cafe"), ("there is no plan 'cafe'",)),
    ("many", lambda d: d.update({f"x{i}": i for i in range(50)}), ("11 problems", "and 40 more")),
    ("seconds", lambda d: d["search"].append({}), ("$.search[0].name: missing", "$.search[0].gap: missing")),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), [x[1:] for x in EDITS], ids=[x[0] for x in EDITS])
def test_entries_that_are_wrong(tx8, tmp_path, mlp, plans, change, says) -> None:
    data = json.loads(plans)
    change(data)
    refused_file(tx8, tmp_path, mlp, json.dumps(data), *says)


def test_places_without_plans(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    for path, says in ((tmp_path / "none.json", "No such file"), (tmp_path, "no regular file")):
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--load-plans", path), says=("reading plans", says))
    with pytest.raises(ConfigError, match="null"):
        read_results("a\0b")
    os.mkfifo(tmp_path / "pipe")
    found = tx8(*compile_args(mlp, tmp_path, "--load-plans", tmp_path / "pipe"))
    assert found.code == 2 and "no regular file" in found.err


def test_places_that_plans_cannot_go_to(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    for option in ("--save-plans", "--dot"):
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, option, tmp_path), says=("is a directory",))
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, option, tmp_path / "no" / "p"), says=("does not exist",))
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, option, mlp), says=("this is the input file",))
        refused(tx8, tmp_path, *compile_args(mlp, tmp_path, option, tmp_path / "out.tx8"), says=("name one file",))
    both = ("--save-plans", tmp_path / "x", "--dot", tmp_path / "x")
    refused(tx8, tmp_path, "compile", mlp, *both, says=("name one file",))


@pytest.mark.parametrize(
    ("options", "says"),
    [(("--opt", "3"), "its own --opt"), (("--no-sharing",), "its own --sharing"),
     (("--search-seconds", "3"), "its own --search-seconds"), (("--dim", "rows=4,8"), "--load-plans")],
)  # fmt: skip
def test_options_that_contradict_a_file(tx8, tmp_path, mlp, plans, options, says) -> None:
    (tmp_path / "p.json").write_text(plans)
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--load-plans", tmp_path / "p.json", *options), says=(says,))


def test_options_without_what_they_need(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, "--show", "cuts"), says=("add --stop-after search",))
    refused(tx8, tmp_path, "compile", mlp, "--stop-after", "search", "--show", "cost", says=("groups, cuts",))
    refused(
        tx8,
        tmp_path,
        "compile",
        mlp,
        "--stop-after",
        "search",
        "--show",
        "order",
        says=("--stop-after search makes none",),
    )
    refused(tx8, tmp_path, "compile", mlp, "--show", "order:nobody", says=("no op is called 'nobody'; there are act",))
    refused(tx8, tmp_path, "compile", mlp, "--stop-after", "search", "--show", "cuts:", says=("a name behind it",))
    stop = ("compile", mlp, "--stop-after", "passes")
    refused(
        tx8, tmp_path, *stop, "--save-plans", tmp_path / "p", "--dot", tmp_path / "d", says=("--save-plans and --dot",)
    )
    for pattern in ("--only", "--show"):
        value = "nobody" if pattern == "--only" else "groups:nobody"
        refused(tx8, tmp_path, "compile", mlp, "--stop-after", "search", pattern, value, says=("'nobody'", "main/act"))


def test_records_are_lines_of_keys_and_values(tx8: Caller, mlp: Path) -> None:
    shown = [a for kind in ("groups", "cuts", "candidates:act#2", "buffers:main/act#2") for a in ("--show", kind)]
    done = tx8("compile", mlp, "--stop-after", "search", "--opt", 1, *shown)
    assert done.code == 0
    rows = done.out.splitlines()
    assert list(dict.fromkeys(row.split()[0] for row in rows)) == ["group", "cut", "candidate", "buffer"]
    groups = [dict(w.split("=", 1) for w in row.split()[1:]) for row in rows if row.startswith("group")]
    (fields,) = [g for g in groups if g["ops"] == "act#2"]
    assert fields["op"] == "gemm" and int(fields["estimate_cycles"]) > 0
    tried = [dict(w.split("=", 1) for w in row.split()[1:]) for row in rows if row.startswith("candidate")]
    assert [int(t["price_cycles"]) for t in tried if t["variant"] == "0"] == sorted(
        int(t["price_cycles"]) for t in tried if t["variant"] == "0"
    )
    best = min(int(t["cycles"]) for t in tried if t["fits"] == "true")
    assert best == int(fields["estimate_cycles"])
    buffers = [row for row in rows if row.startswith("buffer")]
    assert sum(int(row.rpartition("bytes=")[2]) for row in buffers) == int(fields["spm_bytes"])
    assert tx8("compile", mlp, "--stop-after", "search", "--opt", 1, *shown).out == done.out
    found = json.loads(tx8("compile", mlp, "--stop-after", "search", "--opt", 1, *shown, "--json").out)
    assert len(found["records"]) == len(rows) and found["records"][0]["record"] == "group"


def test_orders_of_instructions_are_shown(tx8: Caller, mlp: Path) -> None:
    single = [(policy, {policy}) for policy in POLICIES]
    for order, policies in (*single, ("best", {"nest", "free", "stepped"})):
        done = tx8("compile", mlp, "--order", order, "--show", "order")
        rows = [dict(w.split("=", 1) for w in row.split()[1:]) for row in done.out.splitlines()]
        assert done.code == 0 and rows and {row["policy"] for row in rows} <= policies
        for row in rows if order != "nest" else ():
            took = {policy: int(n) for policy in POLICIES if (n := row[f"{policy}_cycles"]) != "none"}
            assert int(row["order_bound_cycles"]) <= min(took.values())
            assert took[row["policy"]] == min(took.values()) or order != "best"
    found = json.loads(tx8("compile", mlp, "--show", f"order:{rows[0]['name']}", "--json").out)
    assert [(row["record"], row["op"]) for row in found["records"]] == [("order", row["op"]) for row in rows]


def test_reasons_are_quoted(tx8: Caller, checkpoint: Path) -> None:
    done = tx8("compile", checkpoint, "--seq", 8, "--stop-after", "search", "--show", "cuts:*mlp*")
    rows = done.out.splitlines()
    assert rows and all(row.startswith("cut function=layer first=layers.0.") for row in rows)
    why = json.loads(rows[0].rpartition(" why=")[2])
    assert " " in why


def test_a_drawing_has_every_op_once_and_every_edge(tx8: Caller, tmp_path: Path, checkpoint: Path) -> None:
    dot = tmp_path / "g.dot"
    assert tx8("compile", checkpoint, "--seq", 8, "--opt", 3, "--dot", dot).code == 0
    lines = dot.read_text().splitlines()
    assert lines[0] == "digraph tx8fast {" and lines[-1] == "}"
    assert sum(line.endswith("{") for line in lines) == sum(line.strip() == "}" for line in lines)
    nodes = {line.split()[0]: line.split('"')[1] for line in lines if " shape=" in line and line.startswith("  ")}
    assert len(set(nodes.values())) == len(nodes)
    assert any(name.startswith("layer/layers.0.mlp.gate_proj\\ngemm") for name in nodes.values())
    edges = [line.split()[:3:2] for line in lines if " -> " in line]
    assert edges and all(a in nodes and b in nodes for a, b in edges)
    named = {nodes[a].split("\\n")[0] + " " + nodes[b].split("\\n")[0] for a, b in edges}
    assert "layer/layers.0.mlp.gate_proj layer/layers.0.mlp.act" in named
    captions = [line for line in lines if "label=" in line and "style=rounded" in line]
    assert sum(" cycles, " in c for c in captions) >= 4


def test_names_in_a_drawing_cannot_break_it() -> None:
    from tx8fast.report.drawing import Box, Node, drawing

    text = drawing([Box('a"]; x', [Node('b"\n\\', "k")])], [('b"\n\\', 'b"\n\\', "c")])
    assert 'label="a\\"]; x"' in text and 'label="b\\" \\\\\\nk"' in text and "n0 -> n0" in text
    assert len(text.splitlines()) == 9


def test_nothing_is_left_of_a_compilation_that_fails(tx8: Caller, tmp_path: Path, mlp: Path) -> None:
    before = tree(tmp_path)
    args = ("--save-plans", tmp_path / "p.json", "--dot", tmp_path / "d.dot", "--only", "nobody")
    refused(tx8, tmp_path, *compile_args(mlp, tmp_path, *args))
    assert tree(tmp_path) == before
