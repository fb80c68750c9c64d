"""HiGHS, the solver of integer programs: one thread, always the same answer, no word of its own on a caller's output.

May import: highspy late. Must not: know what a program means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SETTINGS = {"output_flag": False, "threads": 1, "parallel": "off", "random_seed": 0}


def solver(settings: Mapping[str, float | int]) -> Any:
    """Return a new `highspy.Highs` with these settings beside those that every program is solved with."""
    import highspy

    class Silent(highspy.Highs):
        """The first call of any method prints the version unless output is off, and the constructor makes one (highspy 1.16)."""

        def enableCallbacks(self) -> None:  # noqa: N802 (the library's name)
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    made = Silent()
    for name, value in {**SETTINGS, **settings}.items():
        made.setOptionValue(name, value)
    return made
