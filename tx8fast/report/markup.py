"""HTML and SVG as nested calls; text is always escaped.

May import: the standard library. Must not: know what is shown.
"""

from __future__ import annotations

import html
import json
from typing import Any

_VOID = {"meta", "br", "col"}


class Markup(str):
    """Text that is markup already."""


def plain(text: object) -> str:
    """Return a name without characters that a page, a table or a terminal would act on: they become escapes such as \\x1b."""
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def escape(text: object) -> str:
    """Return a name as it may stand in text and in quoted attributes."""
    return text if isinstance(text, Markup) else html.escape(plain(text), quote=True)


def el(tag: str, *children: object, **attributes: object) -> Markup:
    """Return an element. A trailing "_" of an attribute is dropped ("class_"), other "_" become "-"; None leaves it out."""
    given = "".join(
        f' {k.rstrip("_").replace("_", "-")}="{escape(_number(v))}"' for k, v in attributes.items() if v is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{''.join(escape(c) for c in children)}</{tag}>")


def _number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def join(parts: Any) -> Markup:
    return Markup("".join(escape(p) for p in parts))


def data(name: str, value: Any) -> Markup:
    """Return a JSON block that scripts and programs find by the id `name`; no character of it can end it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return Markup(f'<script type="application/json" id="{name}">{text}</script>\n')
