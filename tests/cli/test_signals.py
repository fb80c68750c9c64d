"""Signals that ask the process to end, at moments that are chosen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from types import ModuleType

import pytest

from tx8fast import cli
from tx8fast.cli import app

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timer")


class Loader(ExtensionFileLoader):
    """A native module that asks for the end while it is loaded."""

    def __init__(self, last: Callable[[], None] = lambda: None) -> None:
        super().__init__("native", "native.so")
        self.last, self.loaded = last, False

    def exec_module(self, module: ModuleType) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(3 * cli.AGAIN_SECONDS)  # the alarm finds it again, and again waits
        self.last()
        self.loaded = True


@pytest.mark.parametrize("native", [False, True])
def test_a_native_module_that_is_loaded_is_not_stopped(native):
    came: list[int] = []
    loader, handlers = Loader(), [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGALRM)]
    finish = cli._listen(came, False, [])
    try:
        with pytest.raises(cli.Stopped):
            if native:
                loader.exec_module(ModuleType("native"))
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    finally:
        finish()
    assert came == [signal.SIGTERM] and loader.loaded == native
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGALRM)] == handlers


def test_a_signal_that_waits_is_dropped_with_the_end():
    came: list[int] = []
    finish = cli._listen(came, False, [])
    Loader(finish).exec_module(
        ModuleType("native")
    )  # still loading at the end: no alarm finds a moment between the two
    time.sleep(3 * cli.AGAIN_SECONDS)
    assert came == [signal.SIGTERM]


@pytest.mark.parametrize("late", [False, True])
def test_a_signal_behind_the_end_changes_nothing(mlp, tmp_path, monkeypatch, late):
    """What is written stays, and the exit code says so; one that comes before undoes it."""
    real = app._run

    def run(argv, registry, done):
        code = real(argv, registry, done if late else lambda: os.kill(os.getpid(), signal.SIGTERM))
        if late:
            os.kill(os.getpid(), signal.SIGTERM)
        return code

    monkeypatch.setattr(app, "_run", run)
    out = tmp_path / "m.tx8"
    assert cli.main(["compile", str(mlp), "-o", str(out)]) == (0 if late else 128 + signal.SIGTERM)
    assert out.exists() == late
