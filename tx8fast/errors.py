"""The exception tree: every failure a user can cause has a class here and exit code 2.

May import: the standard library. Must not: know about any other part of the package.
"""

from __future__ import annotations

from collections.abc import Iterable

#: a message lists this many problems, then counts; it has at most so many characters, and so many in a line
MAX_LISTED, MAX_MESSAGE, MAX_LINE = 20, 8000, 1000
#: names of nodes inside loops and functions have one part for every level
MAX_NAME = 160


def short(text: str, limit: int = MAX_NAME) -> str:
    """Return `text` without its middle if it has more than `limit` characters, and with how many are missing."""
    if len(text) <= limit:
        return text
    half = (limit - 30) // 2  # the words between the halves take some too
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters ... {text[-half:]}"


def listing(problems: Iterable[str], doing: str) -> str:
    """Return one message for all problems: the first ones in a line each, the rest counted."""
    problems = list(problems)
    if len(problems) == 1:
        return f"{doing}: {problems[0]}"
    more = f"\n  and {len(problems) - MAX_LISTED} more" if len(problems) > MAX_LISTED else ""
    return f"{doing}: {len(problems)} problems" + "".join(f"\n  - {p}" for p in problems[:MAX_LISTED]) + more


def bounded(message: str) -> str:
    """Return a message that fits a screen or two, whatever names and lists went into it."""
    lines = [short(line, MAX_LINE) for line in message.split("\n")]
    if sum(map(len, lines)) + len(lines) <= MAX_MESSAGE:
        return "\n".join(lines)
    kept, left = [], MAX_MESSAGE - 100  # the count of the others, and what is written around a message
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join([*kept, f"  and {len(lines) - len(kept):,} more lines"])


class Tx8Error(Exception):
    """Base of all errors that the user's input or options can cause (exit code 2). Its message has a bounded length."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(bounded(a) if type(a) is str else a for a in args))


class ImportModelError(Tx8Error, ValueError):
    """The model file is malformed, truncated, or of a kind we do not read."""


class UnsupportedError(Tx8Error, NotImplementedError):
    """The model is well formed but uses something the compiler cannot do; lists everything at once."""


class VerifyError(Tx8Error, ValueError):
    """IR text or an artifact breaks a rule of its format."""


class InfeasibleError(Tx8Error, ValueError):
    """No plan exists within the machine's limits; the message carries resource, demand and bound."""


class TooLargeError(InfeasibleError):
    """What a program needs does not fit the DDR of a chip."""


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
    raise kind(listing(problems, doing))


class CompileWarning(UserWarning):
    """Something the user should know though the program is right; the command line prints it as one line."""


class SearchLimitWarning(CompileWarning):
    """A search stopped at a limit: its outcome may not be the best there is."""


class SlowFormatWarning(CompileWarning):
    """A model's configuration, and no option, says to compute in a format that the matrix engine is slow in."""


class CausalRowsWarning(CompileWarning):
    """Rows of images would see each other in the model, and see in the program what is in front of them alone."""


class WholeWeightsWarning(CompileWarning):
    """Most of the weights of a model that chips share are whole on each of them."""


class UnreadTensorWarning(CompileWarning):
    """A checkpoint has tensors in the layers that are compiled, and nothing reads them."""


class UnreadHeadWarning(CompileWarning):
    """A checkpoint has a head, of a task of its own, that the program leaves away."""


class UnusedOptionWarning(CompileWarning):
    """An option was given that nothing in the model takes."""
