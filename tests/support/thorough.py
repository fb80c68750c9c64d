"""Whether tests try everything, as `make test-all` does, or a part that stands for it."""

from __future__ import annotations

import os

from hypothesis import settings

THOROUGH = os.environ.get("TX8FAST_ALL_MODELS") == "1"
#: of properties whose examples take half a second each
few_examples = settings(max_examples=60 if THOROUGH else 8)
