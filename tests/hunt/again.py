"""`python -m hunt.again DIR`: compile stored models once more and compare with the digests beside them.

Run with another PYTHONHASHSEED than the first time, it shows whether the order of a set or of hashes decides anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
from hunt.checks import Case
from hunt.execute import compiled, digest
from hunt.store import save, setting_of

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent


def remember(case: Case, directory: Path, seed: int) -> None:
    """Store a model with the digest of its program."""
    path = save(case, directory / f"{seed}.onnx")
    path.with_suffix(".npz").unlink()
    path.with_suffix(".sha").write_text(digest(case.program(case.setting)), encoding="utf-8")


def differing(directory: Path) -> list[str]:
    """Return the models whose program is another one now."""
    found = []
    for path in sorted(directory.glob("*.sha")):
        model = onnx.load(path.with_suffix(".onnx"))
        setting = setting_of(model)
        model.doc_string = ""
        if digest(compiled(model, setting)) != path.read_text(encoding="utf-8"):
            found.append(str(path.with_suffix(".onnx")))
    return found


def in_another_process(directory: Path, hash_seed: int) -> list[str]:
    """Return what `differing` finds in a process whose hashes are others."""
    env = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}"}
    command = [sys.executable, "-m", "hunt.again", str(directory)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode in (0, 1) and not done.stderr else [done.stderr[-500:]]


if __name__ == "__main__":
    wrong = differing(Path(sys.argv[1]))
    print("\n".join(wrong))
    sys.exit(bool(wrong))
