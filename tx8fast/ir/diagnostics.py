"""Diagnostics of the verifier: codes, op paths, bounded reports.

May import: ir.core, ir.printer, errors. Must not: print a whole module, or fail on a broken graph.
"""

from __future__ import annotations

from tx8fast.errors import VerifyError
from tx8fast.ir.core import SYMBOL, SYMBOL_TABLE, Op, Value
from tx8fast.ir.printer import op_line
from tx8fast.records import dataclass

MAX_REPORTED = 20
CONTEXT_LINES = 3

#: code -> what it stands for
CODES: dict[str, str] = {
    "IR001": "operand count does not fit the declaration",
    "IR002": "result count does not fit the declaration",
    "IR003": "a listed attribute is missing or has another type",
    "IR004": "an attribute is neither listed nor a run-time attribute (rt_...)",
    "IR005": "a use list disagrees with the operands",
    "IR006": "a value is used where its definition does not reach",
    "IR007": "a value crosses into an isolated region",
    "IR008": "a block lacks its terminator, or has one in the middle",
    "IR009": "the links or order numbers of a block are damaged",
    "IR010": "a symbol is defined twice",
    "IR011": "a call names an unknown symbol",
    "IR012": "a call disagrees with its callee",
    "IR013": "calls are recursive",
    "IR014": "a region's arguments or terminator disagree with the enclosing op",
    "IR015": "a trait does not hold",
    "IR016": "an operand has no tensor where one is needed",
    "IR020": "a result type differs from the inferred one",
    "IR021": "type inference rejects the op",
    "IR022": "the op's own check fails",
    "IR023": "a parameter is missing from the weight table or has another type",
    "IR024": "a composite layout name has not one part per operand and result",
    "IR030": "a back-end kind stands where only the front end's may (stage legal-front)",
    "IR031": "an aliasable tensor is left inside a function (stage legal-value)",
    "IR032": "a layout is not decided (stage legal-layout)",
    "IR033": "an op takes another form than its operand has (stage legal-layout)",
    "IR034": "a conversion of form converts nothing (stage legal-layout)",
    "IR035": "a compute op stands outside a group (stage legal-group)",
    "IR036": "a load or store disagrees with the op's masks (stage legal-group)",
    "IR037": "the loads of one constant disagree, or its bypass with its users (stage legal-group)",
    "IR038": "a group's template is not its equal (stage legal-group)",
}


@dataclass(frozen=True)
class Diagnostic:
    """One finding; `context` holds at most three further lines."""

    code: str
    path: str
    message: str
    context: tuple[str, ...] = ()
    loc: str | None = None

    def __str__(self) -> str:
        where = f"{self.path} ({self.loc})" if self.loc else self.path
        head = f"error[{self.code}] {where}: {self.message}"
        return "\n".join([_cut(head, 400), *(f"    {_cut(c, 200)}" for c in self.context[:CONTEXT_LINES])])


def _cut(text: str, limit: int) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def op_path(op: Op) -> str:
    """Return where `op` stands: "main/group#12/gemm#3"; the number is the op's position in its block."""
    parts = []
    at: Op | None = op
    while at is not None:
        if at.has(SYMBOL) and type(at.attrs.get("sym_name")) is str:
            parts.append(at.attrs["sym_name"])
        elif at.block is None:
            if not at.has(SYMBOL_TABLE) or at is op:
                parts.append(at.kind)
        else:
            position = 0
            for other in at.block:
                if other is at:
                    break
                position += 1
            parts.append(f"{at.kind}#{position}")
        at = at.parent
    return "/".join(reversed(parts))


class Collector:
    """Keeps the first finding of each (code, op kind), up to `MAX_REPORTED`, and counts the others."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.repeated: dict[tuple[str, str], int] = {}
        self.total = 0

    def add(self, code: str, op: Op, message: str, *related: Op | None) -> None:
        """Record a finding at `op`; `related` ops give context lines (None entries are skipped)."""
        self.total += 1
        key = (code, op.name)
        self.repeated[key] = self.repeated.get(key, 0) + 1
        if self.repeated[key] > 1 or len(self.found) >= MAX_REPORTED:
            return
        context = [f"op: {op_line(op)}"]
        context += [f"see: {op_path(r)}: {op_line(r, 120)}" for r in related if r is not None]
        parent = op.parent
        if parent is not None and len(context) < CONTEXT_LINES:
            context.append(f"in: {op_path(parent)} ({parent.name})")
        self.found.append(Diagnostic(code, op_path(op), f"{op.name} {message}", tuple(context), op.loc))

    def raise_any(self, doing: str) -> None:
        """Raise VerifyError listing the findings, which it also carries as `diagnostics`; nothing if there are none."""
        if not self.found:
            return
        lines = [f"{doing}: {self.total} error{'s' if self.total > 1 else ''}"]
        lines += map(str, self.found)
        if self.total > len(self.found):
            lines.append(
                f"... and {self.total - len(self.found)} more of the same kinds or beyond the first {MAX_REPORTED}"
            )
        error = VerifyError("\n".join(lines))
        error.diagnostics = tuple(self.found)  # type: ignore[attr-defined]
        raise error


def type_list(values: list[Value]) -> str:
    """The types of `values` in parentheses, at most eight of them."""
    text = ", ".join(v.type.text for v in values[:8])
    return f"({text}{', ...' if len(values) > 8 else ''})"
