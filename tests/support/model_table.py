"""The table of families in docs/models.md: what a declaration says, the error of a tiny model, the cycles of a real one.

python -m tests.support.model_table errors            executes the tiny model of every family in f32 (a few minutes)
python -m tests.support.model_table cycles ROWS.json  takes what `published_models -o` wrote
Both note it in tests/golden/models.json and write the table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tx8fast
from tests.support import family_checkpoints, recorded_families, recorded_parts
from tests.support.encoder_reference import EncoderReference
from tests.support.exports import exported
from tests.support.family_reference import FamilyReference
from tests.support.recorded_configs import CONFIGS as RECORDED
from tx8fast.frontend.hf.config import parse_config
from tx8fast.frontend.hf.families import FAMILIES
from tx8fast.frontend.hf.gguf import ARCHITECTURES
from tx8fast.frontend.hf.parts import COMPOSITES, together_in

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "models.md"
GOLDEN = ROOT / "tests" / "golden" / "models.json"
#: what is said of rows that see each other in a model
TOGETHER = {
    "": "",
    "image": "; embeddings of images would need a mask that is not there, rows are causal",
    "prompt": "; all rows of a prompt see each other",
}
HEAD = (
    "| `model_type` | particulars that are honoured | also from | error | model | prefill | decode |",
    "|---|---|---|--:|---|--:|--:|",
)


def _error(found: Any, wanted: np.ndarray) -> float:
    """The largest difference by the largest value."""
    return float(np.abs(np.asarray(found).astype(np.float64) - wanted).max() / np.abs(wanted).max())


def _referenced(case: str, folder: Path) -> Iterator[tuple[str, float]]:
    """Families whose reference is computed here."""
    config, weights = family_checkpoints.make_family(folder, case)
    ids = np.random.default_rng(1).integers(0, family_checkpoints.VOCAB, (2, 12))
    sizes: dict[str, Any] = {"seq": 12}
    if case == "vit":
        feed = {"pixel_values": np.random.default_rng(2).standard_normal((2, 3, 16, 16)).astype(np.float32)}
        wanted, sizes = EncoderReference(config, weights).image(feed["pixel_values"]), {}
    elif case == "bert":
        feed = {"input_ids": ids, "token_type_ids": np.random.default_rng(2).integers(0, 2, (2, 12))}
        wanted = EncoderReference(config, weights).text(ids, feed["token_type_ids"])
    else:
        feed = {"input_ids": ids}
        wanted = {"logits": FamilyReference(config, weights).prefill(ids)["logits"]}
    found = tx8fast.compile(folder, batch=2, dtype="fp32", **sizes).run(feed)
    yield config["model_type"], max(_error(found[n], w) for n, w in wanted.items())


def _decoders(case: str, folder: Path) -> Iterator[tuple[str, float]]:
    record = recorded_families.make_recorded(folder, case)
    assert record is not None
    program = tx8fast.compile(folder, phase="prefill", batch=2, seq=recorded_families.SEQ, dtype="fp32")
    found = program.run({"input_ids": recorded_families.token_ids(case)})["logits"]
    yield parse_config(recorded_families.config_of(case), case).model_type, _error(found, record["prefill"])


def _parts(case: str, folder: Path) -> Iterator[tuple[str, float]]:
    record, (_, part, names) = recorded_parts.make_part(folder, case), recorded_parts.CASES[case]
    assert record is not None
    feed = recorded_parts.inputs_of(case)
    sizes: dict[str, Any] = {"seq": recorded_families.SEQ} if "input_ids" in feed else {}
    found = tx8fast.compile(folder, batch=2, dtype="fp32", part=part or None, **sizes).run(feed)
    family = parse_config(recorded_parts.config_of(case), case, part=part or None).model_type
    yield family, max(_error(found[n], record[n]) for n in names)


def _pairs(case: str, folder: Path) -> Iterator[tuple[str, float]]:
    record, (given, ids) = recorded_parts.make_part(folder, case), recorded_parts.pair_inputs(case)
    assert record is not None
    sizes: dict[str, Any] = {"seq": recorded_parts.SOURCE} if "input_ids" in given else {}
    heard = tx8fast.compile(folder, batch=2, dtype="fp32", part="encoder", **sizes).run(given)["last_hidden_state"]
    kind = recorded_parts.kind_of(case)
    yield kind + ".encoder", _error(heard, record["encoder"])
    decoder = tx8fast.compile(folder, phase="prefill", batch=2, dtype="fp32", part="decoder", seq=recorded_families.SEQ,
                              source=recorded_parts.SOURCE)  # fmt: skip
    found = decoder.run({"input_ids": ids, "encoder_hidden_states": record["encoder"]})["logits"]
    yield kind + ".decoder", _error(found, record["prefill"])


def errors() -> dict[str, float]:
    """Return the largest error of the tiny models of every family, f32 programs as executed, of the largest value."""
    worst: dict[str, float] = {}
    kinds = ((_referenced, family_checkpoints.CONFIGS), (_decoders, RECORDED), (_parts, recorded_parts.CASES), (_pairs, recorded_parts.PAIRS))  # fmt: skip
    for measure, cases in kinds:
        for case in cases:
            with tempfile.TemporaryDirectory() as name:
                for family, error in measure(case, Path(name)):
                    worst[family] = max(worst.get(family, 0.0), error)
                    print(f"{case}: {error:.1e}", flush=True)
    return {family: float(f"{error:.1e}") for family, error in worst.items()}


def cycles(rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return per family the first model whose programs were all made, rather one of its name: cycles by phase, and how many chips share it."""
    models: dict[str, dict[str, dict[str, Any]]] = {}
    for name, row in rows.items():
        model, phase = name.rsplit("/", 1)
        models.setdefault(row["family"], {}).setdefault(model, {})[phase] = row
    found = {}
    for family, programs in models.items():
        whole = [(m, p) for m, p in programs.items() if all(row["status"] == "done" for row in p.values())]
        for model, phases in sorted(whole, key=lambda named: not named[0].startswith(family[:4]))[:1]:
            figures = {phase: row["cycles"] for phase, row in phases.items()}
            found[family] = {"model": model, "chips": max(row["chips"] for row in phases.values()), "cycles": figures}
    return found


def family_table() -> list[str]:
    """Return the lines of the table, by model_type within the order of the declarations."""
    known = json.loads(GOLDEN.read_text())
    packed, written = {*ARCHITECTURES.values(), "mixtral"}, exported()
    rows = []
    for name, family in FAMILIES.items():
        error, model = known[name]["error"], known[name].get("model", "")
        took = known[name].get("cycles", {})
        model += f", {known[name]['chips']} chips" if known[name].get("chips", 1) > 1 else ""
        first, step = (
            f"{took[k] / 1e6:,.1f}" if k in took else ""
            for k in ("prefill" if "prefill" in took else "encode", "decode")
        )
        also = ", ".join(["GGUF"] * (name in packed) + ["ONNX"] * (name in written))
        rows.append(f"| `{name}` | {family.honours} | {also} | {error:.0e} | {model} | {first} | {step} |")
    named = {kind: ", ".join(c.pieces) + TOGETHER[together_in(kind, None)] for kind, c in COMPOSITES.items()}
    parts = [
        f"| {', '.join(f'`{k}`' for k in named if named[k] == names)} | --part {names} | | | | | |"
        for names in dict.fromkeys(named.values())
    ]
    return [*HEAD, *rows, *parts]


def main(what: str, *files: str) -> None:
    known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if what == "errors":
        found: dict[str, dict[str, Any]] = {f: {"error": e} for f, e in errors().items()}
    else:
        found = cycles(json.loads(Path(files[0]).read_text()))
    merged = {name: {**known.get(name, {}), **found.get(name, {})} for name in FAMILIES}
    GOLDEN.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")
    lines = DOCS.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| `model_type` |"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    DOCS.write_text("\n".join([*lines[:start], *family_table(), *lines[end:]]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
