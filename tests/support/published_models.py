"""Programs of well-known models at real size (tests/data/configs): what each takes on the chip, or why it is refused.

python -m tests.support.published_models [-o FILE.json] [PATTERN ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tx8fast.batch.manifest import Job
from tx8fast.batch.work import run_job
from tx8fast.frontend.hf.importer import read_config
from tx8fast.frontend.hf.parts import COMPOSITES
from tx8fast.options import CompileOptions

CONFIGS = sorted((Path(__file__).parents[1] / "data" / "configs").glob("*.json"))
#: tokens of a prompt, and slots of a step's caches
TOKENS = 512
#: of an encoder's result that a decoder attends to, where the model does not say
SOURCE = 512


def parts_of(path: Path) -> tuple[str | None, ...]:
    """Return the names under which the parts of a model are compiled."""
    kind = json.loads(path.read_text())["model_type"]
    return tuple(COMPOSITES[kind].pieces) if kind in COMPOSITES else (None,)


def jobs_of(path: Path) -> Iterator[tuple[str, Job]]:
    """Yield family and job of every program of a model: its parts, prefill and decode; as many chips as it takes."""
    for part in parts_of(path):
        config = read_config(path, part=part)
        tokens = min(TOKENS, config.positions or TOKENS)
        options: dict[str, Any] = {"part": part, "embed_limit_bytes": 0}
        if config.cross:
            options["source"] = config.source or SOURCE
        sizes: dict[str, dict[str, Any]] = {"prefill": {"seq": tokens}, "decode": {"past": tokens}}
        if config.encoder:
            sizes = {"encode": {} if config.image or config.frames else {"seq": tokens}}
        for phase, more in sizes.items():
            name = "/".join(n for n in (path.stem, part, phase) if n)
            phase_option = None if phase == "encode" else phase
            yield (
                config.model_type,
                Job(name, path, CompileOptions(phase=phase_option, **options, **more), chips_auto=True),
            )


def measure(only: tuple[str, ...] = ("*",)) -> Iterator[tuple[str, dict[str, Any]]]:
    """Compile and time; yield name and figures of every program whose name matches, with `family`."""
    with tempfile.TemporaryDirectory() as out:
        for path in CONFIGS:
            for family, job in jobs_of(path):
                if any(fnmatchcase(job.name, p) for p in only):
                    outcome = run_job(job, Path(out), None)
                    yield job.name, {**outcome.row, "family": family, "cpu_seconds": outcome.cpu_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    args = parser.parse_args()
    rows: dict[str, Any] = {}
    for name, row in measure(tuple(args.patterns)):
        rows[name] = row
        found = row.get("error") or (f"{row['cycles']} cycles, {row['roofline_ratio']:.3f} of the roofline, {row['chips']} chips, "
                                     f"kernel core {row['kernel_core_share']:.4f}")  # fmt: skip
        print(f"{name}: {found} ({row['cpu_seconds']:.1f} s)", flush=True)
        if args.output:
            args.output.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
