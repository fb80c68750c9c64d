"""A drawing of the graph with its groups, as text for graphviz.

May import: nothing. Must not: know where the graph comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tx8fast.records import dataclass


@dataclass(frozen=True)
class Node:
    """One op. `kind`: what it does; `shape`: of the drawing."""

    name: str
    kind: str
    shape: str = "box"


@dataclass(frozen=True)
class Box:
    """Nodes that are drawn in a frame with a caption; a group, or a function around groups."""

    caption: str
    nodes: Sequence[Node]
    boxes: Sequence[Box] = ()


def drawing(boxes: Iterable[Box], edges: Iterable[tuple[str, str, str]]) -> str:
    """Return the text. edges: (from, to, caption); the ends are names of nodes, which are unique."""
    number: dict[str, str] = {}
    lines = [
        "digraph tx8fast {",
        " rankdir=TB; compound=true; fontname=Helvetica;",
        " node [shape=box fontname=Helvetica fontsize=10]; edge [fontname=Helvetica fontsize=8];",
    ]
    count = 0

    def draw(box: Box, depth: int) -> None:
        nonlocal count
        pad = " " * depth
        lines.append(f"{pad}subgraph cluster{count} {{")
        lines.append(f"{pad} label={_text(box.caption)}; style=rounded;")
        count += 1
        for node in box.nodes:
            number[node.name] = f"n{len(number)}"
            lines.append(f"{pad} {number[node.name]} [label={_text(node.name, node.kind)} shape={node.shape}];")
        for inner in box.boxes:
            draw(inner, depth + 1)
        lines.append(f"{pad}}}")

    for box in boxes:
        draw(box, 1)
    lines += [f" {number[a]} -> {number[b]} [label={_text(c)}];" for a, b, c in edges]
    return "\n".join([*lines, "}", ""])


def _text(*rows: str) -> str:
    """Return a quoted string; the only marks inside are line ends between rows."""
    plain = [
        "".join(c if c.isprintable() else " " for c in row).replace("\\", "\\\\").replace('"', '\\"') for row in rows
    ]
    return '"' + "\\n".join(row for row in plain if row) + '"'
