"""The graphs that hunts have found, and which of them are still wrong: `corpus/open.txt`, one a line with what is seen."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def open_cases() -> dict[str, str]:
    """Return name of a graph, or "seed N" of the fixed slice -> what is wrong."""
    found = {}
    for line in (CORPUS / "open.txt").read_text(encoding="utf-8").splitlines():
        name, colon, text = line.partition(":")
        if colon and not line.startswith("#"):
            found[name.strip()] = text.strip()
    return found


def open_seeds() -> set[int]:
    return {int(name.split()[1]) for name in open_cases() if name.startswith("seed ")}


def graphs() -> list[Path]:
    return sorted(CORPUS.glob("*.onnx"))
