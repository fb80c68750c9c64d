"""How fast a language model's program serves its tokens.

May import: program.model. Must not: simulate.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.program.model import Program


def tokens(program: Program) -> int | None:
    """Return the tokens that one run takes in, the places of its ids; None of any other model."""
    ids = next((t for t in program.inputs if t.name == "input_ids"), None)
    return math.prod(ids.shape) if ids is not None else None


def rates(program: Program, seconds: float) -> dict[str, Any]:
    """Return `tokens`, `tokens_per_second` and, of a prefill, `time_to_first_token_ms` of a run that takes so long; None where there is none."""
    n = tokens(program)
    first = n and program.meta.get("phase") == "prefill"
    return {
        "tokens": n,
        "tokens_per_second": n / seconds if n and seconds else None,
        "time_to_first_token_ms": seconds * 1e3 if first else None,
    }
