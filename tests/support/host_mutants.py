"""Program files whose bytes, description or numbers are damaged; in most of them checksums are right again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.readers import mutate
from tx8fast.program.container import Container, write
from tx8fast.program.model import FORMAT_VERSION

WORDS = (0, 1, 2, 3, 17, 255, 256, 4095, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def mutants(sound: Path, folder: Path, count: int, seed: int) -> list[Path]:
    """Write `count` damaged copies of a file; the same seed gives the same ones."""
    held = Container(sound, FORMAT_VERSION)
    sections = {name: bytes(held.section(name)) for name in held._sections}
    made = []
    for k in range(count):
        r, path = random.Random(f"{seed} {k}"), folder / f"{sound.stem}.{k}.tx8"
        try:
            _damaged(held.body, sections, sound, path, r)
        except Exception:  # what cannot be written is no file  # noqa: BLE001
            continue
        made.append(path)
    return made


def _damaged(body: Any, sections: dict[str, bytes], sound: Path, path: Path, r: random.Random) -> None:
    way = r.randrange(4)
    if way == 0:
        path.write_bytes(mutate.bytes_of(sound.read_bytes(), r))
    elif way == 1:
        write(path, FORMAT_VERSION, mutate.tree_of(body, r), [(n, [b]) for n, b in sections.items()])
    else:
        found = dict(sections)
        for _ in range(r.choice((1, 1, 2, 5))):
            name = r.choice([n for n in found if n != "data" and found[n]])
            data, at = bytearray(found[name]), 4 * r.randrange(max(1, len(found[name]) // 4))
            old = int.from_bytes(data[at : at + 4], "little")
            new = r.choice((r.choice(WORDS), old + 1, old - 1, 2 * old, old ^ 1 << r.randrange(32)))
            data[at : at + 4] = (new & 0xFFFFFFFF).to_bytes(4, "little")
            found[name] = bytes(data[: -4 * r.randrange(3) or None]) if r.random() < 0.1 else bytes(data)
        write(path, FORMAT_VERSION, body, [(n, [b]) for n, b in found.items()])
