"""Walks StableHLO blocks in order and calls one handler per op; collects every problem.

May import: ir, weights, errors, frontend.common and frontend.stablehlo. Must not: know any particular op,
print ops or blocks (printing numbers the whole function each time).
"""

from __future__ import annotations

import re
from typing import Any

from tx8fast.errors import ImportModelError, SimulationError, Tx8Error, UnsupportedError, VerifyError, listing
from tx8fast.frontend.common import Emitter, Tensor
from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.reader import Types, bindings
from tx8fast.frontend.stablehlo.view import Val, Views, whole

MAX_DEPTH = 64
#: ops imported from one module, loops unrolled and calls expanded; more are a mistake or an attack
MAX_OPS = 2_000_000
_TERMINATORS = frozenset({"func.return", "stablehlo.return", "sdy.return"})


class Failed(Exception):
    """A result is missing because of a problem that is already listed."""


class TooLarge(ImportModelError):
    """The program grows without reasonable bound; nothing after it is worth importing."""


class Importer:
    """The state of one import. `values` maps MLIR values to views (None: its producer failed)."""

    def __init__(
        self,
        module: Any,
        what: str,
        emitter: Emitter,
        handlers: dict[str, Handler],
        clusters: Any,
        devices: tuple[int, int] = (1, 1),
    ) -> None:
        self.what, self.emitter, self.handlers, self.clusters = what, emitter, handlers, clusters
        self.devices = devices  # replicas, partitions
        self.views = Views(emitter)
        self.types = Types()
        self.dialect = bindings()[2]
        self.functions = {
            o.operation.attributes["sym_name"].value: o.operation
            for o in module.body.operations
            if o.operation.name == "func.func"
        }
        self.values: dict[Any, Val | None] = {}
        self.problems: list[Tx8Error] = []
        self.missing: dict[str, list[str]] = {}
        self.depth = self.count = 0

    # ---- blocks

    def run_block(self, block: Any, args: list[Val | None]) -> list[Val | None]:
        """Import the ops of a block with its arguments bound; return what its terminator returns."""
        if self.depth >= MAX_DEPTH:
            raise TooLarge(
                f"{self.what}: calls and regions are nested more than {MAX_DEPTH} deep; is a function recursive?"
            )
        self.depth += 1
        values = self.values
        for formal, actual in zip(block.arguments, args, strict=True):
            values[formal] = actual
        returned: list[Val | None] = []
        ops = [o.operation for o in block.operations]
        replaced = self.clusters(self, ops) if self.clusters is not None else {}
        for i, op in enumerate(ops):
            if op.name in _TERMINATORS:
                returned = [values[x] for x in op.operands]
            elif i in replaced:
                for result, v in replaced[i]():
                    values[result] = v
            else:
                self._run_op(op)
        self.depth -= 1
        return returned

    def _run_op(self, op: Any) -> None:
        name = op.name
        values = self.values
        self.count += 1
        if self.count > MAX_OPS:
            raise TooLarge(f"{self.what}: unrolled loops and calls give more than {MAX_OPS} ops")
        handler = self.handlers.get(name)
        results = op.results
        if handler is None:
            self.missing.setdefault(name, []).append(self.place(op))
            for r in results:
                values[r] = None
            return
        vals = [values[x] for x in op.operands]
        for v in vals:
            if v is None:
                for r in results:
                    values[r] = None
                return
        problem: Tx8Error
        try:
            self.emitter.loc = f"{name.partition('.')[2]}#{self.count}"
            made = handler(Node(self, op, vals))  # type: ignore[arg-type]
            found = [made] if isinstance(made, (Val, Tensor)) else made
            for r, v in zip(results, found, strict=True):
                view = v if type(v) is Val else whole(v)  # type: ignore[arg-type]
                if (view.shape, view.dtype) != self.types(r.type):
                    raise ImportModelError(f"{self.where(op)}: found {view.dtype}{list(view.shape)}, declared {r.type}")
                values[r] = view
            return
        except Failed:
            for r in results:
                values[r] = None
            return
        except TooLarge:
            raise
        except (VerifyError, SimulationError) as e:
            problem = ImportModelError(f"{self.where(op)}: {e}")
        except (ImportModelError, UnsupportedError) as e:
            problem = e if str(e).startswith(name) else type(e)(f"{self.where(op)}: {e}")
        except Tx8Error as e:
            problem = e
        except (ValueError, ArithmeticError, MemoryError) as e:  # numpy's and Python's word for the same
            problem = ImportModelError(f"{self.where(op)}: {e}")
        self.problems.append(problem)
        for r in results:
            values[r] = None

    def needed(self, vals: list[Val | None]) -> list[Val]:
        """Return the views a region gave. Raises Failed if one of them is missing."""
        if any(v is None for v in vals):
            raise Failed
        return vals  # type: ignore[return-value]

    def call(self, name: str, args: list[Val], where: str) -> list[Val]:
        """Import a function's body in place of its call."""
        callee = self.functions.get(name)
        if callee is None or not callee.regions[0].blocks:
            raise ImportModelError(f"{where}: function '{name}' has no body in this module")
        return self.needed(self.run_block(callee.regions[0].blocks[0], list(args)))

    def direction(self, op: Any) -> str:
        """EQ, NE, GE, GT, LE or LT of a compare op."""
        return str(self.dialect.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value)

    def total_order(self, op: Any) -> bool:
        """True if a compare op tells zeros by their signs and orders NaNs."""
        kind = op.attributes["compare_type"] if "compare_type" in op.attributes else None
        return kind is not None and str(self.dialect.ComparisonTypeAttr(kind).value) == "TOTALORDER"

    # ---- words

    def place(self, op: Any) -> str:
        """Where an op comes from: the innermost name, file and line that its location has."""
        text = str(op.location)
        names = re.findall(r'"([^"]*)"(?!:)', text)
        files = re.findall(r'"([^"]*)":(\d+):\d+', text)
        place = "" if not files else f"line {files[0][1]}" if files[0][0] == "-" else f"{files[0][0]}:{files[0][1]}"
        return " ".join(x for x in (names[0] if names else "", place) if x) or "unknown place"

    def where(self, op: Any) -> str:
        return f"{op.name} ({self.place(op)})"

    def finish(self) -> None:
        """Raise all problems together, as the gravest kind among them."""
        for name, places in self.missing.items():
            shown = ", ".join(dict.fromkeys(places[:8])) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
            self.problems.append(
                UnsupportedError(f"operation {name} is not supported; found at {shown}{_reason(name)}")
            )
        if not self.problems:
            return
        text = listing(dict.fromkeys(str(p) for p in self.problems), f"importing {self.what}")
        bad = any(isinstance(p, ImportModelError) for p in self.problems)
        raise ImportModelError(text) if bad else UnsupportedError(text)


def _reason(name: str) -> str:
    if "rng" in name:
        return "; random numbers cannot be drawn on the chip, pass them as an argument"
    if "dynamic_" in name or name in ("stablehlo.get_dimension_size", "stablehlo.set_dimension_size"):
        return "; export the model with fixed shapes"
    if name in ("stablehlo.send", "stablehlo.recv"):
        return "; exchange data by collective_permute"
    if name == "sdy.manual_computation":
        return "; it must be all that the main function does"
    return ""
