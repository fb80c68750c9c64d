"""The list of passes and the function that runs a pipeline of them.

May import: passes.*, ir.program, errors. Must not: decide which pipeline a compile uses (see `api`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from tx8fast.errors import ConfigError, VerifyError
from tx8fast.ir.program import IRProgram
from tx8fast.passes.base import CompilerPass, PassResult, parse_pipeline
from tx8fast.passes.canonical_form import CanonicalForm
from tx8fast.passes.canonicalize import Canonicalize
from tx8fast.passes.compute_dtype import ComputeDtype
from tx8fast.passes.const_norm import ConstNorm
from tx8fast.passes.cse import Cse
from tx8fast.passes.cut_over_chips import CutOverChips
from tx8fast.passes.dce import Dce
from tx8fast.passes.f16_range import F16Range
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.fold_copies import FoldCopies
from tx8fast.passes.functional_to_inplace import FunctionalToInplace
from tx8fast.passes.group_barriers import GroupBarriers
from tx8fast.passes.group_load_store import GroupLoadStore
from tx8fast.passes.group_mapping import GroupMapping
from tx8fast.passes.group_patterns import GroupPatterns
from tx8fast.passes.group_single import GroupSingle
from tx8fast.passes.inline import Inline
from tx8fast.passes.inplace_to_functional import InplaceToFunctional
from tx8fast.passes.interface_dtype import InterfaceDtype
from tx8fast.passes.layout_align import LayoutAlign
from tx8fast.passes.layout_calls import LayoutCalls
from tx8fast.passes.layout_init import LayoutInit
from tx8fast.passes.layout_opt import LayoutOpt
from tx8fast.passes.layout_transmit import LayoutTransmit
from tx8fast.passes.legalize import Legalize, LegalizeFormats, MasksApart
from tx8fast.passes.lift_activation import LiftActivation
from tx8fast.passes.lift_attention import CountCausalWork, LiftAttention
from tx8fast.passes.lift_cache import LiftCache
from tx8fast.passes.lift_contract import LiftContract
from tx8fast.passes.lift_conv import LiftConv
from tx8fast.passes.lift_experts import LiftExperts
from tx8fast.passes.lift_gates import LiftGates
from tx8fast.passes.lift_integers import LiftIntegers
from tx8fast.passes.lift_norm import LiftNorm
from tx8fast.passes.lift_rope import LiftRope
from tx8fast.passes.lift_stablehlo import LiftStablehlo
from tx8fast.passes.lift_views import LiftViews
from tx8fast.passes.move_constants import MoveConstants
from tx8fast.passes.norm_heads import NormHeads
from tx8fast.passes.outline import Outline
from tx8fast.passes.raise_views import RaiseViews
from tx8fast.passes.sink_constants import SinkConstants
from tx8fast.passes.sink_transposes import SinkTransposes
from tx8fast.passes.strip_runtime import StripRuntime
from tx8fast.passes.values_only import ValuesOnly
from tx8fast.passes.wrap_value import WrapValue
from tx8fast.records import dataclass

PASSES: tuple[type[CompilerPass], ...] = (
    Canonicalize,
    Cse,
    Dce,
    FoldConstants,
    Inline,
    Outline,
    SinkConstants,
    StripRuntime,
    Legalize,
    MasksApart,
    LegalizeFormats,
    InterfaceDtype,
    ComputeDtype,
    LayoutInit,
    LayoutTransmit,
    LayoutCalls,
    LayoutAlign,
    LayoutOpt,
    ConstNorm,
    MoveConstants,
    GroupPatterns,
    GroupSingle,
    GroupLoadStore,
    GroupMapping,
    GroupBarriers,
    LiftNorm,
    LiftActivation,
    LiftIntegers,
    LiftRope,
    LiftCache,
    LiftAttention,
    LiftContract,
    LiftStablehlo,
    LiftViews,
    LiftExperts,
    NormHeads,
    CanonicalForm,
    RaiseViews,
    CountCausalWork,
    SinkTransposes,
    LiftConv,
    LiftGates,
    InplaceToFunctional,
    WrapValue,
    FoldCopies,
    ValuesOnly,
    FunctionalToInplace,
    F16Range,
    CutOverChips,
)


def value_passes() -> list[CompilerPass]:
    """The passes that leave no buffer: from here to `functional-to-inplace` every tensor is a value."""
    return [InplaceToFunctional(), WrapValue(), FoldCopies(), ValuesOnly()]


def lifting_passes() -> list[CompilerPass]:
    """The passes that recognise idioms which exporters spell out in primitives."""
    return [
        LiftStablehlo(),
        LiftExperts(),
        LiftViews(),
        LiftNorm(),
        LiftActivation(),
        LiftIntegers(),
        LiftRope(),
        Canonicalize(),
        FoldConstants(),
        LiftCache(),
        LiftAttention(),
        FoldConstants(),
        Canonicalize(),
        RaiseViews(),
        LiftContract(),
        CountCausalWork(),
        LiftGates(),
        SinkTransposes(),
        CanonicalForm(),
        LiftConv(),
        FoldConstants(),
    ]


def lifted_passes() -> list[CompilerPass]:
    """The passes up to a graph of the kinds that have a lowering, in the formats of its weights.

    Folding comes before the format is chosen: it reads weights in the format of the table.
    """
    return [
        *value_passes(),
        Canonicalize(),
        FoldConstants(),
        Dce(),
        *lifting_passes(),
        Legalize(),
        Canonicalize(),
        FoldConstants(),
        Dce(),
    ]


def graph_passes(
    dtype: str = "bf16", outline: bool = True, io_dtype: str = "keep", parts: int = 1
) -> list[CompilerPass]:
    """The passes up to one body per kind of layer, in the compute format `dtype` (bf16, f16, f32 or keep), inputs, outputs
    and caches in `io_dtype`. parts: chips over which the graph is to be cut."""
    repeat: list[CompilerPass] = [SinkConstants(), Outline(), Cse()] if outline else []
    cut: list[CompilerPass] = [CutOverChips(parts), Dce()] if parts > 1 else []
    apart: list[CompilerPass] = [MasksApart()] if dtype == "f16" else []
    late: list[CompilerPass] = [InterfaceDtype(io_dtype, late=True), Canonicalize()] if io_dtype != "keep" else []
    return [
        *lifted_passes(),
        *cut,
        *apart,
        InterfaceDtype(io_dtype),
        ComputeDtype(dtype),
        *late,
        F16Range(),
        LegalizeFormats(),
        NormHeads(),
        Canonicalize(),
        Cse(),
        *repeat,
        Dce(),
    ]


def backend_passes(layout_method: str = "mincut", barriers: bool = True, groups: str = "") -> list[CompilerPass]:
    """The passes from layouts to groups; constants stay `get_param` and `constant` ops with a decided form.

    `groups`: a pattern table whose matches become groups of several ops.
    """
    patterns: list[CompilerPass] = [GroupPatterns(groups)] if groups else []
    return [
        LayoutInit(),
        LayoutTransmit(),
        LayoutCalls(),
        LayoutAlign(layout_method, "keep"),
        LayoutOpt(),
        ConstNorm(),
        FunctionalToInplace(),
        *patterns,
        GroupSingle(),
        GroupLoadStore(),
        GroupMapping(),
        GroupBarriers(barriers),
    ]


def standard_pipeline(
    dtype: str = "bf16",
    outline: bool = True,
    layout_method: str = "mincut",
    barriers: bool = True,
    groups: str = "",
    io_dtype: str = "keep",
    parts: int = 1,
) -> list[CompilerPass]:
    """What a compile runs on an imported graph before it leaves for arrays."""
    return [*graph_passes(dtype, outline, io_dtype, parts), *backend_passes(layout_method, barriers, groups)]


@dataclass(frozen=True)
class PassRun:
    """One executed pass: what it reported and the wall time in seconds."""

    compiler_pass: CompilerPass
    result: PassResult
    seconds: float


def passes_by_name(extra: Iterable[type[CompilerPass]] = ()) -> dict[str, type[CompilerPass]]:
    """Return the known passes, `extra` ones included, by name. Two passes of one name raise ConfigError."""
    out: dict[str, type[CompilerPass]] = {}
    for cls in (*PASSES, *extra):
        if cls.name in out:
            raise ConfigError(f"pass '{cls.name}' is defined twice")
        out[cls.name] = cls
    return out


def run_pipeline(
    program: IRProgram,
    passes: str | Sequence[CompilerPass],
    verify_between: bool = True,
    dump: Callable[[CompilerPass, IRProgram], None] | None = None,
    verify_level: int = 2,
    dump_on_error: Callable[[CompilerPass, str], None] | None = None,
) -> list[PassRun]:
    """Run `passes` (objects or pipeline text) on `program` in place and return what each did.

    `verify_between` checks the graph before the first pass and after each that changed it, and blames the
    pass. `dump(pass, program)` is called after every pass. `dump_on_error(pass, text)` gets the graph as it was
    before the pass that broke it. Raises ConfigError if a pass requires a fact no earlier one ensured.
    """
    if isinstance(passes, str):
        passes = parse_pipeline(passes, passes_by_name())
    check_order(passes)
    if verify_between:
        program.verify(verify_level, f"verifying program '{program.name}' before the first pass")
    runs: list[PassRun] = []
    for p in passes:
        before = program.text() if dump_on_error is not None else ""
        start = time.perf_counter()
        result = p.run(program)
        runs.append(PassRun(p, result, time.perf_counter() - start))
        if verify_between:
            try:
                program.verify(verify_level, f"pass '{p}' left an invalid graph")
            except VerifyError:
                if dump_on_error is not None:
                    dump_on_error(p, before)
                raise
        if dump is not None:
            dump(p, program)
    return runs


def check_order(passes: Sequence[CompilerPass]) -> None:
    """Raise ConfigError if a pass requires a fact that no earlier pass ensures (or that one has broken)."""
    known: set[str] = set()
    ensured_by = {fact for p in passes for fact in p.ensures}
    for p in passes:
        missing = [fact for fact in p.requires if fact not in known]
        if missing:
            hint = (
                "an earlier pass must ensure it"
                if ensured_by.isdisjoint(missing)
                else "the pass that ensures it comes later"
            )
            raise ConfigError(f"pipeline: pass '{p.name}' requires {', '.join(missing)}: {hint}")
        known.update(p.ensures)
        known.difference_update(p.breaks)
