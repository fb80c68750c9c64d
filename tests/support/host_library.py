"""The host library as hosts see it: its C calls through ctypes, and its C++ classes through their binding, behind one interface."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from tx8fast.host.places import ROOT

NAMES = (
    "ok",
    "argument",
    "file",
    "version",
    "weights",
    "size",
    "busy",
    "run",
    "cancelled",
    "memory",
    "compile",
    "worker",
)
PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, c_int64)
EVENT = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p)


class HostError(Exception):
    """`code`: the number of the error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_int),
        ("bytes", c_size_t),
    ]


class _Input(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


class _Output(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t), ("shape", POINTER(c_int64))]


class _Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("progress", PROGRESS), ("user", c_void_p)]


def library(path: Path = ROOT / "lib" / "libtx8fast.so") -> ctypes.CDLL:
    """Return the library with the types of what its calls return."""
    lib = ctypes.CDLL(str(path))
    lib.tx8_last_error.restype = lib.tx8_fact.restype = c_char_p
    for kind in ("input", "output", "param", "figure"):
        getattr(lib, f"tx8_{kind}_count").restype = c_size_t
        getattr(lib, f"tx8_{kind}_count").argtypes = [c_void_p]
    lib.tx8_fact.argtypes = [c_void_p, c_char_p]
    return lib


class CProgram:
    """A program through the C calls."""

    def __init__(self, path: str) -> None:
        self.lib, self.handle = library(), c_void_p()
        self.check(self.lib.tx8_open(path.encode(), byref(self.handle)))

    def __del__(self) -> None:
        assert self.lib.tx8_close(self.handle) == 0

    def check(self, status: int) -> None:
        if status:
            raise HostError(status, self.lib.tx8_last_error().decode())

    def _all(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for k in range(getattr(self.lib, f"tx8_{kind}_count")(self.handle)):
            t = _Tensor()
            self.check(getattr(self.lib, f"tx8_{kind}_at")(self.handle, c_size_t(k), byref(t)))
            if kind != "param":
                again = _Tensor()
                self.check(getattr(self.lib, f"tx8_{kind}_named")(self.handle, t.name, byref(again)))
                assert (again.name, again.bytes, again.rank) == (t.name, t.bytes, t.rank)
            found.append(
                {
                    "name": t.name.decode(),
                    "dtype": t.dtype.decode(),
                    "shape": tuple(t.shape[: t.rank]),
                    "bytes": t.bytes,
                }
            )
        return found

    def inputs(self) -> list[dict[str, Any]]:
        return self._all("input")

    def outputs(self) -> list[dict[str, Any]]:
        return self._all("output")

    def params(self) -> list[dict[str, Any]]:
        return self._all("param")

    def set_param(self, name: str, image: Any) -> None:
        data = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
        self.check(self.lib.tx8_set_param(self.handle, name.encode(), c_void_p(data.ctypes.data), c_size_t(data.size)))

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        threads: int = 0,
        progress: Callable[[int, int], Any] | None = None,
        short: int = 0,
    ) -> dict[str, bytearray]:
        """`short`: so many bytes are missing in the room of each output."""
        arrays = {name: np.ascontiguousarray(x) for name, x in inputs.items()}
        given = (_Input * len(arrays))(*(_Input(n.encode(), x.ctypes.data, x.nbytes) for n, x in arrays.items()))
        rooms = {t["name"]: bytearray(t["bytes"]) for t in self.outputs()}
        shapes = {t["name"]: (c_int64 * max(1, len(t["shape"])))() for t in self.outputs()}
        wanted = (_Output * len(rooms))(*(
            _Output(n.encode(), ctypes.addressof((ctypes.c_char * len(room)).from_buffer(room)), len(room) - short, shapes[n])
            for n, room in rooms.items() if len(room)
        ))  # fmt: skip
        told = PROGRESS(lambda _, done, total: int(progress is not None and progress(done, total) is False))
        options = _Options(ctypes.sizeof(_Options), threads, told if progress else PROGRESS(), None)
        self.check(
            self.lib.tx8_run(self.handle, given, c_size_t(len(given)), wanted, c_size_t(len(wanted)), byref(options))
        )
        for t in self.outputs():
            assert tuple(shapes[t["name"]])[: len(t["shape"])] == t["shape"]
        return rooms

    def figures(self) -> dict[str, float]:
        found = {}
        for k in range(self.lib.tx8_figure_count(self.handle)):
            name, value = c_char_p(), c_double()
            self.check(self.lib.tx8_figure_at(self.handle, c_size_t(k), byref(name), byref(value)))
            assert name.value is not None
            found[name.value.decode()] = value.value
        return found

    def fact(self, name: str) -> str | None:
        found = self.lib.tx8_fact(self.handle, name.encode())
        return None if found is None else found.decode()


class CWorker:
    """A worker through the C calls."""

    def __init__(self, command: Sequence[str]) -> None:
        self.lib, self.handle = library(), c_void_p()
        assert self.lib.tx8_worker_open(self._words(command), byref(self.handle)) == 0

    @staticmethod
    def _words(words: Sequence[str]) -> Any:
        return (c_char_p * (len(words) + 1))(*(w.encode() for w in words), None)

    def call(self, command: str, *arguments: str, event: Callable[[str], Any] | None = None) -> str:
        told = EVENT(lambda _, text: int(event is not None and event(text.decode()) is False))
        result = c_char_p()
        status = self.lib.tx8_worker_call(
            self.handle, command.encode(), self._words(arguments), told if event else EVENT(), None, byref(result)
        )
        if status:
            raise HostError(status, self.lib.tx8_last_error().decode())
        assert result.value is not None
        return result.value.decode()

    def close(self) -> int:
        return self.lib.tx8_worker_close(self.handle)
