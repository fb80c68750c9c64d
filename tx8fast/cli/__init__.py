"""The command line: `tx8fast check | compile | sim | run | inspect | report | ...`.

May import: everything, but heavy things inside the command that needs them: `tx8fast --help` must be fast.
Must not: hold logic of a stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType

#: how long a signal waits while a native module is loaded
AGAIN_SECONDS = 0.01
#: new objects after which the collector looks for garbage, instead of 700: what a command loads and builds lives until its end
COLLECT_EVERY = 500_000
#: the same of `compile`, which makes one graph and one program of it, and hardly any garbage: looking through them once took 0.3 s of the
#: 6.5 s of a prefill of Qwen3 14B
COMPILE_COLLECTS_EVERY = 10 * COLLECT_EVERY
#: (name, value) of what tells the matrix library of numpy that its threads, of which there is one for each processor, sleep as soon as
#: there is nothing to do: as it is they spin for 2 ** 26 cycles from the import on, 7 % of what compiling a model takes
SLEEP_AT_ONCE = ("OPENBLAS_THREAD_TIMEOUT", "4")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: the process's) and return the exit code.

    0 done, 1 our own defect, 2 the user's input, 128 + n interrupted by signal n (130: Ctrl-C).
    """
    came: list[int] = []
    done: list[bool] = []  # the command has ended well, its files stand: a signal now comes too late
    try:
        finish = _listen(came, argv is None, done)
        try:
            import gc
            import os

            if argv is None:
                gc.set_threshold(COMPILE_COLLECTS_EVERY if sys.argv[1:2] == ["compile"] else COLLECT_EVERY)
                os.environ.setdefault(*SLEEP_AT_ONCE)
            from tx8fast.cli.app import run

            code = run(argv, lambda: done.append(True))
            if argv is None:
                gc.freeze()  # the process ends: nobody need look through what is left
        finally:
            finish()
    except KeyboardInterrupt:  # during the imports, or while a failure is told
        as_json = "--json" in (sys.argv if argv is None else argv)
        print('{"event": "interrupted", "text": "interrupted"}' if as_json else "interrupted", file=sys.stderr)
        code = 130
    return 128 + came[0] if came and code else code


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end. Python itself ends by SIGINT, whoever handles it, if a plain KeyboardInterrupt
    came while it ran the text of a function, as `dataclass` does when a module is loaded."""


def _listen(came: list[int], own_process: bool, done: list[bool]) -> Callable[[], None]:
    """Let the signals by which systems end a process clean up as Ctrl-C does; `came` will list them. As soon as there is anything in `done`, they
    stop nothing.

    Return what is to be called at the end: then the signals mean what they meant before; in a process of our own, which
    has only its exit code left to give, nothing. A native module that begins is not stopped: not every one looks whether what it
    calls has raised. The signal is taken again a moment later.
    """
    import signal

    before = {}

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1 or number == signal.SIGINT:  # the system's second one must not stop the cleaning
            end(number, frame)

    def end(_number: int, frame: FrameType | None) -> None:
        if done:
            return
        if not _loads_native(frame) or not hasattr(signal, "setitimer"):
            raise Stopped
        handler = signal.signal(signal.SIGALRM, end)
        before.setdefault(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)

    usual = (signal.SIG_DFL, signal.default_int_handler)  # those that are ignored stay so: `nohup` wants it
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    try:
        for number in numbers:
            if signal.getsignal(number) in usual:
                before[number] = signal.signal(number, stop)
    except ValueError:  # only the main thread may
        pass

    def finish() -> None:
        done.append(True)  # an alarm on its way would set the next, for which nobody listens then
        if hasattr(signal, "SIGALRM") and signal.SIGALRM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if own_process else handler)

    return finish


def _loads_native(frame: FrameType | None) -> bool:
    """Say whether a native module is being loaded further up."""
    from importlib.machinery import ExtensionFileLoader  # part of the interpreter

    while frame is not None:
        if frame.f_code.co_name in ("create_module", "exec_module"):
            if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
                return True
        frame = frame.f_back
    return False
