"""What would help against a loss of cycles, in words.

May import: nothing. Must not: promise a gain; it names what can be tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EXACT = "--opt 3 looks for better groups and for chains of groups that keep intermediates in the scratchpad"
#: by name of a loss (simulator.losses): what can be tried
HELP: dict[str, str] = {
    "exposed_dma": "more work per byte loaded: a larger batch or longer prompt; {exact}",
    "exposed_exchange": "compare with --no-sharing, where every tile loads its operands itself",
    "exposed_vector": "bf16 or fp16 instead of fp32 where vector work is in fp32; {exact}; `check` tells what runs on the kernel core",
    "exposed_matrix": "the DDR rests while products run: a group of this kind gains from neighbours that load meanwhile; {exact}",
    "startup": "fewer, larger groups, so that less often the first operands are waited for; {exact}",
    "bubble": "tiles wait for each other or for instructions: compare with --no-sharing; the timeline shows where",
    "imbalance": "sizes (heads, channels, batch) that divide by the number of tiles",
    "barrier": "fewer groups; {exact}",
    "extra_traffic": "operands are loaded more than once because slices of them do not stay in the scratchpad: a smaller batch; {exact}",
    "overhead": "sizes that are multiples of what the engine takes at once, longer contractions",
    "cut": "intermediates cross the DDR between groups; {exact}",
}


def help_text(loss: str, options: Mapping[str, Any]) -> str:
    """Return what can be tried against `loss` by a user who has compiled with `options`."""
    parts = HELP.get(loss, "").split("; ")
    exact = "" if options.get("opt", 0) >= 3 else _EXACT
    return "; ".join(filter(None, (p.format(exact=exact) for p in parts))) or "this is the best that tx8fast knows"
