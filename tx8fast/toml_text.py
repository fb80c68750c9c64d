"""TOML of the user's files: read in time that grows with the text, refused in words.

May import: nothing of the package. Must not: open files, know what the keys mean.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

#: parts of a dotted key; the reader of the library looks each part up from the first one again
MOST_PARTS = 64
_PART = r"""[\w-]++|"[^"\n]*+"|'[^'\n]*+'"""
_LONG_KEY = re.compile(rf"(?<![\w.\"'-])(?:{_PART})(?:[ \t]*+\.[ \t]*+(?:{_PART})){{{MOST_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of `text`. Raises ValueError that says what is wrong."""
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line}: a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None
