"""Which plans of a corpus are others if an assumed figure of the machine is half, or half as much again, and what it costs to
keep the plans that were made for the figure as it is.

python benchmarks/plan_flips.py [PATTERN]      the table of docs/performance.md, or of the cases whose names contain PATTERN

A step of a model flips if the search cuts it another way, or plans it with other tiles, slices, orders, buffers or shared
operands. "Kept" says how much longer the old program takes on the other machine than the one that is compiled for it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.model_corpus import CASES, write  # noqa: E402

from tx8fast import api  # noqa: E402
from tx8fast.frontend import open_model  # noqa: E402
from tx8fast.graphs import lower_graph  # noqa: E402
from tx8fast.machine import load_machine  # noqa: E402
from tx8fast.machine.tags import assumed_keys, changed, legal, read_tags, value_of  # noqa: E402
from tx8fast.options import CompileOptions  # noqa: E402
from tx8fast.simulator.sensitivity import FACTORS  # noqa: E402
from tx8fast.simulator.stretch import total_cycles  # noqa: E402

CORPUS = ("Llama 3 8B prefill 2048", "BERT base 384 batch 16", "ResNet 50 batch 16")
#: of a nest's plan, what is decided
DECIDED = ("engine", "variant", "sizes", "parts", "slices", "order", "bufs", "shared", "held", "kept", "copies")
Steps = dict[tuple[str, ...], Any]


def steps_of(searched: Any) -> Steps:
    """Return the steps that a search planned: ops -> decisions."""
    found = json.loads(searched.text())
    plans = {key: [[nest[d] for d in DECIDED] for nest in p["nests"]] for key, p in found["plans"].items()}
    return {
        (f["name"], *(op for nest in step["nests"] for op in nest)): plans[step["plan"]]
        for f in found["functions"]
        for step in f["steps"]
        if step["plan"] is not None
    }


def flipped(old: Steps, new: Steps) -> int:
    """Return how many of the old steps are cut or planned another way."""
    return sum(new.get(ops) != plan for ops, plan in old.items())


def main() -> None:
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    corpus = [name for name in CORPUS if pattern in name]
    machine, keys = load_machine(), assumed_keys(read_tags())
    rows: dict[str, list[str]] = {key: [] for key in keys}
    with tempfile.TemporaryDirectory() as folder:
        for name in corpus:
            model, fields = CASES[name]
            options = CompileOptions(**fields)
            path = write(model, Path(folder) / model)

            def graph() -> Any:  # passes change it, so that everything begins with a graph of its own
                return open_model(path, **options.import_options())

            base = api.compile_ir(graph(), machine, options)
            old = steps_of(base.searched)
            for key in keys:
                cell = []
                for factor in FACTORS:
                    other = changed(machine, {key: legal(key, value_of(machine, key) * factor)})
                    table = lower_graph(graph(), options).table
                    n = flipped(old, steps_of(api.search_graph(table, other, options)))
                    kept = 0.0
                    if n:
                        best = total_cycles(api.compile_ir(graph(), other, options).program, other)
                        kept = total_cycles(base.program, other) / best - 1
                    cell.append(f"{n} ({kept:+.1%})" if n else "-")
                rows[key].append(" / ".join(cell))
                print(f"{name}: {key} {rows[key][-1]} of {len(old)}", file=sys.stderr, flush=True)
    print("| figure | " + " | ".join(corpus) + " |\n|---|" + "---|" * len(corpus))
    for key, cells in rows.items():
        if any(set(c) - set("- /") for c in cells):
            print(f"| `{key}` | " + " | ".join(cells) + " |")
    none = [f"`{key}`" for key, cells in rows.items() if not any(set(c) - set("- /") for c in cells)]
    print(f"\nNo plan depends on {', '.join(none)}.")


if __name__ == "__main__":
    main()
