"""The user's files: read only if they are regular, remembered so that no result takes their place, and written whole
or not at all.

May import: errors. Must not: know any format; import anything heavy.

A `Registry` belongs to one call (a command, a compilation). Every reader opens its files with `open_input` or names
them with `refer`, every writer goes through `replacing`: both sides of a clash meet there, whichever comes first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextvars import ContextVar
from typing import IO

from tx8fast.errors import ConfigError

#: files that commands write: in the directory of a model they may be replaced, others there belong to the model
RESULT_SUFFIXES = (".tx8", ".npz", ".pftrace", ".html")
#: how names of unfinished files end; before it stand a dot, the name of the result, and something random
TEMPORARY = ".tx8fast.tmp"
#: bytes of a result's name that its temporary name repeats; names have at most 255
KEPT_NAME_BYTES = 180
RANDOM_BYTES = 6

PathLike = str | os.PathLike[str]
_Key = str | tuple[int, int]  # a real path, or (device, inode): hard links are one file


class Registry:
    """The files that one call reads or refers to, those it is going to write, and the names it has made so far."""

    def __init__(self) -> None:
        self.inputs: dict[_Key, str] = {}
        self.folders: dict[_Key, str] = {}
        self.outputs: dict[_Key, tuple[PathLike, str]] = {}  # name, and what is being done
        self.made: list[str] = []

    def undo(self) -> None:
        """Remove what this call has made where nothing was before: files, then directories."""
        for path in reversed(self.made):
            with contextlib.suppress(OSError):
                os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        self.made.clear()


_registries: ContextVar[tuple[Registry, ...]] = ContextVar("registries", default=())
#: complete files that wait for the end of `together`
_waiting: ContextVar[list[_Unfinished] | None] = ContextVar("waiting", default=None)


@contextlib.contextmanager
def watching(registry: Registry | None = None) -> Iterator[Registry]:
    """Remember every file of this block in `registry` (default: a new one), and in those of the blocks around it."""
    registry = Registry() if registry is None else registry
    token = _registries.set((*_registries.get(), registry))
    try:
        yield registry
    finally:
        _registries.reset(token)


# ---- reading


def open_input(path: PathLike) -> IO[bytes]:
    """Open a file for reading and remember it. Raises OSError for anything but a regular file (pipes, devices,
    directories, names with a null character), ConfigError if this call is going to write it."""
    refer(path)
    try:
        mode = os.stat(path).st_mode  # before it is opened: a pipe would wait for its writer
    except ValueError as e:
        raise OSError(errno.EINVAL, "the name has a null character", _shown(path)) from e
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "it is a directory, no regular file", _shown(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", _shown(path))
    return open(path, "rb")


def read_input(path: PathLike, most_bytes: int) -> bytes:
    """Return the content of a file as `open_input` opens it. Raises OSError too if it has more than `most_bytes`."""
    with open_input(path) as f:
        size = os.fstat(f.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, at most {most_bytes:,} are read", _shown(path))
        return f.read()  # a number here would be allocated, whatever the size


def refer(path: PathLike) -> None:
    """Remember a file that the model refers to, whether or not it is read. Raises ConfigError if this call writes it."""
    keys = _keys(path) if _registries.get() else ()
    for registry in _registries.get():
        for key in keys:
            if key in registry.outputs:
                raise ConfigError(
                    f"{registry.outputs[key][1]}: this is the input file {_shown(path)}; give another name"
                )
            registry.inputs.setdefault(key, _shown(path))


def refer_folder(path: PathLike) -> None:
    """Remember the directory of a model: its files, unless they are results, are inputs. Raises ConfigError as `refer`."""
    for registry in _registries.get():
        registry.folders.update(dict.fromkeys(_keys(path), _shown(path)))
        for output, doing in registry.outputs.values():
            _check_inputs(output, doing)


def _shown(path: PathLike) -> str:
    return os.fspath(path).replace("\0", "\\0")


def _keys(path: PathLike) -> tuple[_Key, ...]:
    try:
        found = os.stat(path)
        return os.path.realpath(path), (found.st_dev, found.st_ino)
    except ValueError:  # a null character: no such name can exist
        return ()
    except OSError:
        return (os.path.realpath(path),)


# ---- writing


def claim(path: PathLike, what: str) -> None:
    """Raise ConfigError if `path` is no place for a file, or is (or becomes) one of this call's inputs.

    Better before long work than after it; `replacing` asks again.
    """
    doing = f"writing {what} {_shown(path)}"
    try:
        _check_place(os.fspath(path), doing)
    except (OSError, ValueError) as e:
        if isinstance(e, ConfigError):
            raise
        raise ConfigError(f"{doing}: {getattr(e, 'strerror', None) or e}") from e
    _check_inputs(path, doing)
    for registry in _registries.get():
        registry.outputs.update(dict.fromkeys(_keys(path), (path, doing)))


def _check_place(path: str, doing: str) -> None:
    target = os.path.realpath(path)  # what a symbolic link leads to is written, the link stays
    folder = os.path.dirname(target)
    if not path:
        raise ConfigError(f"{doing}: the name is empty")
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{doing}: it is a directory, a file name is required")
        if not stat.S_ISREG(mode):  # a device or a pipe would be replaced by the file
            raise ConfigError(f"{doing}: it exists and is no regular file; give another name")
    if not os.path.isdir(folder):
        raise ConfigError(f"{doing}: directory {folder} does not exist")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{doing}: no permission to write in {folder}")


def _check_inputs(path: PathLike, doing: str) -> None:
    keys = _keys(path)
    parent = _keys(os.path.dirname(os.path.realpath(path)))
    for registry in _registries.get():
        for key in keys:
            if key in registry.inputs:
                raise ConfigError(f"{doing}: this is the input file {registry.inputs[key]}; give another name")
        owner = next((registry.folders[key] for key in parent if key in registry.folders), None)
        if owner is not None and os.path.exists(path) and not os.fspath(path).endswith(RESULT_SUFFIXES):
            raise ConfigError(f"{doing}: this file belongs to the model in {owner}; give another name")


def same_output(a: PathLike, b: PathLike) -> bool:
    """True if two names are one file, or would be."""
    return bool(set(_keys(a)) & set(_keys(b)))


class _Unfinished:
    """A temporary file beside its `target`; open, and so locked, until it has its name or is gone."""

    def __init__(self, temporary: str, target: str, file: IO[bytes]) -> None:
        self.temporary, self.target, self.file = temporary, target, file

    def finish(self) -> None:
        """Give the file its name and make that last."""
        if not os.path.lexists(self.target):  # noted before it exists: an interrupt may come in between
            for registry in _registries.get():
                registry.made.append(self.target)
        os.replace(self.temporary, self.target)
        self.file.close()
        folder = os.open(os.path.dirname(self.target), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
                raise
        finally:
            os.close(folder)

    def drop(self) -> None:
        """Remove what has not got its name."""
        with contextlib.suppress(OSError):
            os.unlink(self.temporary)
        with contextlib.suppress(OSError):  # a full disk has not taken what is still buffered
            self.file.close()


@contextlib.contextmanager
def replacing(path: PathLike, what: str = "file") -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the name `path` when the block ends well, with its bytes on disk.

    If the block fails nothing is left, and if writing fails (a full disk) everything goes that this call has made.
    What a killed run left under this name is removed. Raises OSError, and ConfigError for one of the call's inputs.
    """
    if "\0" in os.fspath(path):
        raise OSError(errno.EINVAL, "the name has a null character", _shown(path))
    _check_inputs(path, f"writing {what} {_shown(path)}")
    waiting = _waiting.get()
    with _all_or_nothing():
        target = os.path.realpath(path)
        _sweep(target)
        new = _create(target)
        try:
            yield new.file
            new.file.flush()
            os.fsync(new.file.fileno())
            if waiting is None:
                new.finish()
            else:
                waiting.append(new)
        finally:
            if waiting is None or new not in waiting:
                new.drop()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Files written in this block take their names at its end: all of them, or none if the block fails."""
    waiting: list[_Unfinished] = []
    token = _waiting.set(waiting)
    with _all_or_nothing():
        try:
            yield
            for new in waiting:
                new.finish()
        finally:
            _waiting.reset(token)
            for new in waiting:
                new.drop()


@contextlib.contextmanager
def _all_or_nothing() -> Iterator[None]:
    """If the disk fails, undo what this call has made before."""
    try:
        yield
    except OSError:
        for registry in _registries.get():
            registry.undo()
        raise


def make_folder(path: PathLike) -> None:
    """Make a directory and those above it that are missing; `Registry.undo` removes them. Raises OSError."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    make_folder(os.path.dirname(path))
    os.mkdir(path)
    for registry in _registries.get():
        registry.made.append(path)


def _create(target: str) -> _Unfinished:
    """Return a new temporary file beside `target`, locked as long as it is open."""
    import fcntl

    while True:
        temporary = f"{_prefix(target)}{os.urandom(RANDOM_BYTES).hex()}{TEMPORARY}"
        try:
            new = _Unfinished(temporary, target, open(temporary, "xb"))
        except BaseException:  # an interrupt may come when the file is there and has no owner yet
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        try:
            with contextlib.suppress(OSError):  # a file system without locks: nothing is ever taken for left over
                fcntl.flock(new.file, fcntl.LOCK_EX)
            if os.path.exists(temporary):  # else another run took it for left over before it was locked
                return new
        except BaseException:
            new.drop()
            raise
        new.drop()


def _sweep(target: str) -> None:
    """Remove the temporary files of `target` that no running process holds."""
    import fcntl

    folder, prefix = os.path.split(_prefix(target))
    length = len(prefix) + 2 * RANDOM_BYTES + len(TEMPORARY)
    with os.scandir(folder) as entries:
        found = [
            e.path
            for e in entries
            if len(e.name) == length and e.name.startswith(prefix) and e.name.endswith(TEMPORARY)
        ]
    for path in found:
        with contextlib.suppress(OSError), open(path, "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


def _prefix(target: str) -> str:
    folder, name = os.path.split(target)
    raw = os.fsencode(name)
    if len(raw) > KEPT_NAME_BYTES:
        import hashlib

        name = os.fsdecode(raw[:KEPT_NAME_BYTES]) + hashlib.blake2b(raw, digest_size=4).hexdigest()
    return os.path.join(folder, f".{name}.")
