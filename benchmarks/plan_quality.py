"""How good the searched plans are: estimate against simulation, and against the other candidates.

`python benchmarks/plan_quality.py [names]` prints per op the estimate, the simulated cycles and their
ratio; with `--candidates N` it also times the N cheapest candidates of the pricing kernel and N more spread
over the next ones, and prints the regret: how much slower the chosen plan is than the best of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.one_op import Arg, Case, one_op  # noqa: E402

from tx8fast._kernels import BOUNDS, plan_costs  # noqa: E402
from tx8fast.search import planner  # noqa: E402
from tx8fast.simulator.cycle import simulate  # noqa: E402

B = "blocked"
SCORES = "b s (h g d), b t (h d) -> b (h g) s t"
VALUES = "b (h g) s t, b t (h d) -> b s (h g d)"


def llama(s: int, t: int) -> dict:
    """Ops of one Llama-8B layer for `s` new and `t` visible positions, batch 1, bf16."""
    h, x = Arg((1, s, 4096), "bf16", B), Arg((4096,), "bf16")
    w = lambda k, n: Arg((k, n), "bf16", B)  # noqa: E731
    gqa = {"sizes": ("h", 8, "d", 128)}
    table = Arg((s, 128), "bf16", B)
    tag = f"llama {s}/{t}"
    return {
        f"{tag} norm": ("rmsnorm", [h, x], {}),
        f"{tag} q": ("gemm", [h, w(4096, 4096)], {}),
        f"{tag} k": ("gemm", [h, w(4096, 1024)], {}),
        f"{tag} rope": ("rope", [h, table, table], {"heads": 32}),
        f"{tag} scores": ("contract", [h, Arg((1, t, 1024), "bf16", B)], {"equation": SCORES, **gqa}),
        f"{tag} softmax": ("softmax", [Arg((1, 32, s, t), "bf16", B), Arg((s, t), "bf16", B)], {"scale": 0.088}),
        f"{tag} values": ("contract", [Arg((1, 32, s, t), "bf16", B), Arg((1, t, 1024), "bf16", B)],
                          {"equation": VALUES, **gqa}),
        f"{tag} add": ("add", [h, h], {}),
        f"{tag} up": ("gemm", [h, w(4096, 14336)], {}),
        f"{tag} swiglu": ("swiglu", [Arg((1, s, 14336), "bf16", B)] * 2, {}),
        f"{tag} down": ("gemm", [Arg((1, s, 14336), "bf16", B), w(14336, 4096)], {}),
    }  # fmt: skip


def bert(b: int, s: int) -> dict:
    """Ops of one BERT-base layer in f32."""
    h, v = Arg((b, s, 768), "f32", B), Arg((768,), "f32")
    w = lambda k, n: Arg((k, n), "f32", B)  # noqa: E731
    heads = {"sizes": ("h", 12, "d", 64)}
    p = Arg((b, 12, s, s), "f32", B)
    tag = f"bert {b}x{s}"
    return {
        f"{tag} q": ("gemm", [h, w(768, 768), v], {}),
        f"{tag} scores": ("contract", [h, h], {"equation": SCORES, **heads}),
        f"{tag} softmax": ("softmax", [p, Arg((b, 1, 1, s), "f32", B)], {"scale": 0.125}),
        f"{tag} values": ("contract", [p, h], {"equation": VALUES, **heads}),
        f"{tag} layernorm": ("layernorm", [h, v, v], {}),
        f"{tag} up": ("gemm", [h, w(768, 3072), Arg((3072,), "f32")], {}),
        f"{tag} gelu": ("gelu", [Arg((b, s, 3072), "f32", B)], {}),
        f"{tag} down": ("gemm", [Arg((b, s, 3072), "f32", B), w(3072, 768), v], {}),
        f"{tag} bias": ("add", [Arg((b, s, 3072), "f32", B), Arg((3072,), "f32")], {}),
    }  # fmt: skip


def ops() -> dict:
    more = {
        "head 1": ("gemm", [Arg((1, 1, 4096), "bf16", B), Arg((4096, 128256), "bf16", B)], {}),
        "channel_norm": ("channel_norm", [Arg((1, 512, 4096), "bf16")], {"to": "align"}),
        "transpose": ("transpose", [Arg((8, 512, 12, 64), "f32")], {"perm": (0, 2, 1, 3), "out": "dense"}),
        "conv": ("conv", [Arg((1, 56, 56, 64), "bf16", B), Arg((3, 3, 64, 64), "bf16", B)],
                 {"pad_lo": (1, 1), "pad_hi": (1, 1)}),
        "oracle gemm": ("gemm", [Arg((1, 1024, 1024), "bf16", B), Arg((1024, 1024), "bf16", B)], {}),
    }  # fmt: skip
    return {**llama(1, 512), **llama(512, 512), **llama(2048, 2048), **bert(1, 128), **bert(8, 384), **more}


def make(kind: str, args: list[Arg], attrs: dict) -> Case:
    attrs = dict(attrs)
    return one_op(kind, *args, out=attrs.pop("out", B), **attrs)


def cycles_of(case: Case) -> int:
    return simulate(case.program).cycles


def rivals(case: Case, n: int) -> list[tuple[float, int, object]]:
    """Return (price, cycles, plan) of up to 2 n candidates that fit, timed as the search times its finalists."""
    low, machine = case.lowering(), case.machine
    space = planner.plan_space(low, machine)
    parts, slices, inner = planner.candidates(low, machine.n_tiles)
    cycles, size_bytes, bound = plan_costs(space, parts, slices, inner)
    if low.row_factors and not low.overlaps:
        cycles = np.maximum(cycles, planner.ComputeModel.of(low, machine).cycles(low, machine, parts, slices))
    capacity = machine.spm_limit - machine.spm_base
    order = np.argsort(cycles, kind="stable")
    order = order[size_bytes[order] <= capacity]
    picked = np.unique(np.concatenate([np.arange(n), np.linspace(0, min(len(order) - 1, 40 * n), n).astype(int)]))
    timer = planner.PlanTimer(low, machine)
    out = []
    for i in order[picked[(picked >= 0) & (picked < len(order))]]:
        plan = planner._make(low, parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])], 1)
        if planner.spm_demand(low, plan) <= capacity and planner._encodable(low, plan):
            for variant in {plan, dataclasses.replace(plan, shared=())}:
                out.append((float(cycles[i]), timer.cycles(variant), variant))
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--candidates", type=int, default=0)
    given = parser.parse_args()
    ratios, regrets, seconds = [], [], []
    for name, what in ops().items():
        if given.names and not any(n in name for n in given.names):
            continue
        case = make(*what)
        low = case.lowering()
        started = time.process_time()
        plan = planner.plan_op(low, case.machine)
        seconds.append(time.process_time() - started)
        found = cycles_of(case)
        estimate = case.segment.estimate_cycles
        ratios.append(estimate / found)
        line = f"{name:24s} estimate {estimate:>9,d} simulated {found:>9,d} ratio {ratios[-1]:.3f} "
        line += f"search {seconds[-1] * 1e3:5.1f} ms of {plan.candidates:5d} {plan.bound:6s}"
        line += f" parts {plan.parts} slices {plan.slices} order {plan.order}"
        if given.candidates:
            others = rivals(case, given.candidates)
            best = min(others, key=lambda o: o[1], default=None)
            if best is not None:
                regrets.append(plan.estimate_cycles / min(best[1], plan.estimate_cycles) - 1)
                p = dataclasses.astuple(best[2])
                line += f"\n{'':24s} regret {regrets[-1]:6.1%}  best {best[1]:>9,d} priced {best[0]:>11,.0f} {p[0]} {p[2]} {p[3]}"
        print(line, flush=True)
    off = np.abs(np.array(ratios) - 1)
    print(f"estimate error: median {np.median(off):.1%}, 90 % below {np.quantile(off, 0.9):.1%}, worst {off.max():.1%}")
    print(f"search: median {np.median(seconds) * 1e3:.1f} ms, worst {max(seconds) * 1e3:.1f} ms")
    if regrets:
        print(f"regret: mean {np.mean(regrets):.1%}, worst {max(regrets):.1%}")


if __name__ == "__main__":
    main()
