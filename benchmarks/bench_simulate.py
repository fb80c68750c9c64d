"""What a cycle simulation of a long prompt costs: CPU seconds and peak memory of a process that does nothing else.

python benchmarks/bench_simulate.py      the table of docs/performance.md
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

#: name, configuration of the zoo, tokens of the prompt
CASES = (
    ("Llama 3.1 8B, prefill 2048", "llama-3.1-8b", 2048),
    ("Llama 3.1 8B, prefill 16384", "llama-3.1-8b", 16384),
    ("Gemma 2 9B, prefill 8192", "gemma-2-9b", 8192),
)


def compile_case(config: str, tokens: int, path: Path) -> None:
    """Write the program of a case."""
    import tx8fast

    model = path.parent / config
    model.mkdir(exist_ok=True)
    shutil.copy(ROOT / "tx8fast" / "zoo" / f"{config}.json", model / "config.json")
    tx8fast.compile(model, dtype="bf16", phase="prefill", seq=tokens, embed_limit_bytes=0).save(path)


def simulate(path: Path) -> str:
    """Simulate a program; return cycles, CPU seconds of the simulation alone, and the process's peak in MiB."""
    import tx8fast

    program = tx8fast.load(path)
    started = time.process_time()
    cycles = program.simulate().cycles
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return f"{cycles / 1e6:,.1f} M | {seconds:.1f} s | {peak:,} MiB"


def main() -> None:
    if len(sys.argv) > 1:
        print(simulate(Path(sys.argv[1])))
        return
    print("| case | cycles | CPU | peak |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, config, tokens in CASES:
            path = Path(folder) / "case.tx8"
            compile_case(config, tokens, path)
            done = subprocess.run([sys.executable, __file__, str(path)], capture_output=True, text=True, check=True)
            print(f"| {name} | {done.stdout.strip()} |", flush=True)


if __name__ == "__main__":
    main()
