"""What is wrong with a program: messages of all checks, collected and raised together.

May import: numpy, errors. Must not: check anything.
"""

from __future__ import annotations

import numpy as np

from tx8fast.errors import ProgramError

MAX_PROBLEMS = 20


class Problems:
    """Collects messages; remembers the first MAX_PROBLEMS and counts the rest."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.texts) < MAX_PROBLEMS:
            self.texts.append(text)

    def rows(self, where: str, bad: np.ndarray, what: str) -> None:
        """Report instructions `bad` (row numbers in the code) of one kind as one problem."""
        if len(bad):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            self.add(f"{where} instruction {bad[0]}{more}: {what}")

    def raise_if_any(self, doing: str) -> None:
        if not self.count:
            return
        lines = "".join(f"\n  - {t}" for t in self.texts)
        more = f"\n  and {self.count - len(self.texts)} more" if self.count > len(self.texts) else ""
        raise ProgramError(f"{doing}: {self.count} problem{'s' * (self.count > 1)}{lines}{more}")
