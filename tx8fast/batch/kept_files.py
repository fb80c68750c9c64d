"""Small files of a cache that carry the digest of their bytes in their names.

May import: the standard library only. Must not: know what the files say.

They are called KEY-CONTENT.json and lie in folders of the key's first two letters. Several may have one key; whoever
writes the same name writes the same bytes. What a crash has left half written is known by its digest, so nothing waits
for the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path


class KeptFiles:
    """The files below a folder. `tell` gets a line for what is damaged or cannot be read, which ends in `instead`."""

    def __init__(self, root: Path, tell: Callable[[str], None], instead: str) -> None:
        self.root, self.tell, self.instead = root, tell, instead
        self.unreadable = False

    def whole(self, key: str) -> Iterator[tuple[Path, bytes]]:
        """Yield the files of a key that hold what their names say, as used now; the others are told and removed."""
        folder = self.root / key[:2]
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return
        except OSError as e:
            self._hidden(folder, e)
            return
        for path in [folder / n for n in sorted(names) if n.startswith(f"{key}-") and n.endswith(".json")]:
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # somebody has just removed it
                continue
            except OSError as e:
                self._hidden(path, e)
                continue
            if hashlib.sha256(data).hexdigest() == path.stem.partition("-")[2]:
                with contextlib.suppress(OSError):  # another user's cache may be read only
                    os.utime(path)
                yield path, data
            else:
                self.drop(path, "its bytes are not those of its name")

    def put(self, key: str, data: bytes) -> Path | None:
        """Write a file and return it; None if the cache cannot be written, which then keeps nothing."""
        path = self.root / key[:2] / f"{key}-{hashlib.sha256(data).hexdigest()}.json"
        temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(data)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
        except OSError:
            return None
        return path

    def _hidden(self, path: Path, e: OSError) -> None:
        """Tell of the first path that cannot be read: the others are most likely somebody else's too."""
        if not self.unreadable:
            self.unreadable = True
            self.tell(f"cache: {path} cannot be read ({e.strerror or e}); {self.instead}")

    def drop(self, path: Path, why: str) -> None:
        """Tell that a file is damaged, and remove it."""
        self.tell(f"cache: {path} is damaged ({why}); {self.instead}")
        with contextlib.suppress(OSError):
            path.unlink()
