"""The exception tree: every failure a user can cause has a class here and exit code 2.

May import: the standard library. Must not: know about any other part of the package.
"""

from __future__ import annotations

from collections.abc import Iterable


class Tx8Error(Exception):
    """Base of all errors that the user's input or options can cause (exit code 2)."""


class ImportModelError(Tx8Error, ValueError):
    """The model file is malformed, truncated, or of a kind we do not read."""


class UnsupportedError(Tx8Error, NotImplementedError):
    """The model is well formed but uses something the compiler cannot do; lists everything at once."""


class VerifyError(Tx8Error, ValueError):
    """IR text or an artifact breaks a rule of its format."""


class InfeasibleError(Tx8Error, ValueError):
    """No plan exists within the machine's limits; the message carries resource, demand and bound."""


class AllocationError(InfeasibleError):
    """Buffers do not fit their memory."""


class ProgramError(Tx8Error, ValueError):
    """A `.tx8` file is damaged, of another version, or inconsistent."""


class SimulationError(Tx8Error, RuntimeError):
    """A program did something illegal while it ran, or its inputs do not fit it."""


class ConfigError(Tx8Error, ValueError):
    """Options or a machine file contradict themselves or miss something."""


class InternalError(RuntimeError):
    """A broken invariant of our own: exit code 1, please report."""


def raise_all(kind: type[Tx8Error], doing: str, problems: Iterable[str]) -> None:
    """Raise one `kind` that lists every entry of `problems`; do nothing if there are none."""
    problems = list(problems)
    if not problems:
        return
    if len(problems) == 1:
        raise kind(f"{doing}: {problems[0]}")
    lines = "".join(f"\n  - {p}" for p in problems)
    raise kind(f"{doing}: {len(problems)} problems{lines}")


class CompileWarning(UserWarning):
    """Something the user should know though the program is right; the command line prints it as one line."""


class SearchLimitWarning(CompileWarning):
    """A search stopped at a limit: its outcome may not be the best there is."""


class SlowFormatWarning(CompileWarning):
    """A model's configuration, and no option, says to compute in a format that the matrix engine is slow in."""


class UnusedOptionWarning(CompileWarning):
    """An option was given that nothing in the model takes."""
