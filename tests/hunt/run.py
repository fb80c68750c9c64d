"""`python -m hunt.run --seconds 600`: make random models, judge each, shrink what fails, print what was covered.

The work is done in a child process, one model after the other; a model that hangs, eats the memory or kills the process is
a finding like any other, and the next child goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx.printer
from hunt.again import in_another_process, remember
from hunt.checks import Case, Check, judge, other_setting, right_values, values_alone
from hunt.covered import Coverage
from hunt.draft import Unfit
from hunt.eager import gathers
from hunt.execute import Failure, Refused, grouped_pairs
from hunt.generate import Generator, Missed, Program, alone_of, pairs_of
from hunt.pairs import OpenPairs, Pair, general_reason
from hunt.reference import NoReference
from hunt.shrink import info_of, pruned, shrink
from hunt.store import save
from onnx import ModelProto

MEMORY_BYTES = 4 << 30
#: seconds of its own without a word from the child before it is ended: on a busy machine these take longer
PATIENCE = 60.0
SHRINK_SECONDS = 25.0
#: graphs that are shrunk per bucket and origin in one run: they mostly have one cause
PER_BUCKET = 3

#: one model of so many is compiled once more in a process with other hashes
AGAIN = 25
#: one model of so many is a chain of matrix products, larger than the others
PRODUCTS = 40
#: origins of models that are made for pairs; one of so many is judged at another setting too
PAIRED, OTHERS = ("fan", "chain"), 3
#: the model that a child is working at
LAST = "last.onnx"

Say = Callable[[dict], None]


class Hunt:
    """What the child does with one seed after the other. `say(message)` reports to the parent. paired: nothing but models made for
    pairs that are missing."""

    def __init__(
        self, say: Say, out: Path, coverage: Coverage, paired: bool = False, seconds: float = SHRINK_SECONDS
    ) -> None:
        self.say = say
        self.out = out
        self.paired = paired
        self.shrink_seconds = seconds
        self.generator = Generator()
        self.fans, self.chains = (OpenPairs([*t, *coverage.apart]) for t in (coverage.pairs, coverage.alone))
        self.seen: Counter[tuple[str, str]] = Counter()
        self.shapes: set[tuple] = set()

    def seed(self, seed: int) -> None:
        self.say({"begin": seed})
        try:
            program = self._program(seed)
        except Unfit as e:
            if isinstance(e, Missed):
                self._missed(e.pairs)
            self.say({"unfit": seed})
            return
        self._missed(program.missed)
        case = Case(program.model, program.feeds, program.setting, seed)
        save(case, self.out / LAST)  # so that it is known if it takes this process with it
        self._judge(program, case)

    def _program(self, seed: int) -> Program:
        """Every other model is made for pairs, as long as some are missing: most of them with many readers of a value."""
        if self.paired or seed % 2:
            if self.fans.count() and (seed % 8 < 6 or not self.chains.count()):
                return self.generator.paired(seed, self.fans, False)
            if self.chains.count():
                return self.generator.paired(seed, self.chains, True)
        return self.generator.products(seed) if seed % PRODUCTS == 0 else self.generator.program(seed)

    def _missed(self, pairs: dict[Pair, str]) -> None:
        """Note that pairs did not come about; those that are given up are told."""
        for pair, why in pairs.items():
            self.chains.fail(pair, why)
            if self.fans.fail(pair, why):
                self.chains.drop([pair])
                self.say({"apart": [*pair], "why": why})

    def _judge(self, program: Program, case: Case) -> None:
        try:
            failure = judge(case, due(program))
        except (Refused, NoReference) as e:
            refused = isinstance(e, Refused)
            self.say({"refused": e.kind} if refused else {"no_reference": str(e)[:100]})
            if program.origin in PAIRED and not self._parts(program, case):
                why = f"{'refused' if refused else 'no reference'}: {e}"
                self._missed(dict.fromkeys(pairs_of(case.model), general_reason(why)))
            return
        grouped = sorted({pair for p in case.programs() for pair in grouped_pairs(p)})
        found, alone = pairs_of(case.model), alone_of(case.model)
        self.fans.drop(found)
        self.chains.drop(alone)
        eager = case.programs(eager=True)
        counts = {"eager": len(eager), "gathering": sum(map(gathers, eager))}
        self.say({"done": {"pairs": sorted(found), "alone": sorted(alone), "grouped": grouped}} | counts)
        if failure is None and case.seed % AGAIN == 0:
            remember(case, self.out.parent / "again", case.seed)
        if failure is not None:
            self._found(program, case, failure)

    def _parts(self, program: Program, case: Case) -> bool:
        """Judge what a model consists of instead; False if it is but a pair."""
        g = case.model.graph
        outputs = list(g.output)
        if len(outputs) > 1:
            half = len(outputs) // 2
            parts = [pruned(case.model, part, case.feeds) for part in (outputs[:half], outputs[half:])]
        elif len(g.node) > 2:
            try:
                parts = [pruned(case.model, [info_of(case.oracle, g.node[-2].output[0])], case.feeds)]
            except (NoReference, KeyError):
                return False
        else:
            return False
        for model, feeds in parts:
            self._judge(program, Case(model, feeds, case.setting, case.seed))
        return True

    def _found(self, program: Program, case: Case, failure: Failure) -> None:
        self.seen[failure.bucket, program.origin] += 1
        if self.seen[failure.bucket, program.origin] > PER_BUCKET:
            self.say({"again": failure.bucket})
            return
        whole = save(
            case, self.out / f"{failure.stage}-{program.seed}-whole.onnx"
        )  # kept if shrinking ends this process
        self.say({"begin": program.seed, "shrinking": failure.bucket})
        small = shrink(case, failure, self.shrink_seconds, lambda: self.say({"beat": 1}))
        try:
            again = judge(small) or failure
        except (Refused, NoReference):
            again = failure
        for suffix in (".onnx", ".npz"):
            whole.with_suffix(suffix).unlink()
        shape = (failure.bucket, *sorted(n.op_type for n in small.model.graph.node))
        if shape in self.shapes:
            self.say({"again": failure.bucket})
            return
        self.shapes.add(shape)
        ops = "-".join(n.op_type for n in small.model.graph.node[:5])
        path = save(small, self.out / f"{failure.stage}-{ops}-{program.seed}.onnx")
        path.with_suffix(".txt").write_text(f"{again.bucket}\n{small.setting}\n{again.text}\n", encoding="utf-8")
        self.say({"found": failure.bucket, "path": str(path), "setting": str(small.setting), "text": again.text[-600:]})


def due(program: Program) -> list[Check] | None:
    """Return the judges of a model that is made for pairs, or takes long: fewer, so that there are more of them; None: all that are
    due."""
    if program.origin == "products":
        return [right_values, other_setting][: 1 + (program.seed // PRODUCTS % OTHERS == 0)]
    if program.origin not in PAIRED:
        return None
    if program.seed % OTHERS == 0:
        return [right_values, other_setting]
    return [right_values if program.origin == "chain" else values_alone]


def explain(model: ModelProto, failure: Failure | None) -> str:
    """Return the model as text and what is wrong with it."""
    return f"{onnx.printer.to_text(model.graph)}\n{failure.bucket}\n{failure.text}" if failure is not None else ""


def child(pipe: int, first: int, out: Path, coverage: Coverage, paired: bool) -> None:
    """Work through seeds until ended."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def say(message: dict) -> None:
        os.write(pipe, (json.dumps(message) + "\n").encode())

    hunt = Hunt(say, out, coverage, paired)
    seed = first
    while not paired or hunt.fans.count() or hunt.chains.count():
        try:
            hunt.seed(seed)
        except Exception as e:  # our own defect must not end the hunt
            say({"broken": f"{type(e).__name__}: {e}", "at": seed, "trace": traceback.format_exc()[-800:]})
        seed += 1
    say({"complete": seed})


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Parent:
    """Starts children, counts, and ends them when the time is over."""

    def __init__(
        self, first: int, out: Path, coverage: Coverage, log: Callable[[str], None], paired: bool = False
    ) -> None:
        self.next, self.out, self.coverage, self.log, self.paired = first, out, coverage, log, paired
        self.complete = False
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.found: list[dict] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.complete:
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(read)
                try:
                    child(write, self.next, self.out, self.coverage, self.paired)
                finally:
                    os._exit(1)
            os.close(write)
            try:
                self._listen(read, end, pid)
            finally:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                os.close(read)

    def _listen(self, read: int, end: float, pid: int) -> None:
        """Take messages until the time is over, or the child is silent too long or gone."""
        rest, told, seen = b"", 0.0, 0.0
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([read], [], [], min(left, PATIENCE))
            data = os.read(read, 1 << 16) if ready else b""
            used = _cpu_seconds(pid)
            if not ready and seen + PATIENCE / 100 < used < told + PATIENCE:
                seen = used
                continue
            told = seen = used
            if not data:
                if time.monotonic() < end and not self.complete:
                    kind = "killed: the process died" if ready else f"hang: nothing for {PATIENCE:.0f} s"
                    self.counts[kind] += 1
                    self.log(f"FOUND {kind}, seed {self.next - 1}, {self._keep_last(kind.partition(':')[0])}")
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _keep_last(self, kind: str) -> Path | None:
        """Keep the model that ended a child."""
        if not (self.out / LAST).exists():
            return None
        kept = self.out / f"{kind}-{self.next - 1}.onnx"
        for suffix in (".onnx", ".npz"):
            (self.out / LAST).with_suffix(suffix).replace(kept.with_suffix(suffix))
        self.found.append({"found": kind, "path": str(kept)})
        return kept

    def _take(self, m: dict) -> None:
        if "begin" in m:
            self.next = m["begin"] + 1
        elif "done" in m:
            self.counts["judged"] += 1
            self.coverage.eager += m.get("eager", 0)
            self.coverage.gathering += m.get("gathering", 0)
            self.coverage.add(**{name: map(tuple, pairs) for name, pairs in m["done"].items()})  # type: ignore[arg-type]
        elif "complete" in m:
            self.complete = True
        elif "apart" in m:
            self.coverage.apart[*m["apart"]] = m["why"]
        elif "refused" in m:
            self.counts["refused"] += 1
            self.refused[m["refused"]] += 1
        elif "found" in m:
            self.found.append(m)
            self.counts[m["found"]] += 1
            self.log(f"FOUND {m['found']} ({m['setting']}) {m['path']}\n      {m['text'][-300:]}")
        elif "again" in m:
            self.counts[m["again"]] += 1
        elif "broken" in m:
            self.counts["the hunt itself failed"] += 1
            self.log(f"the hunt itself failed at seed {m['at']}: {m['broken']}\n{m['trace']}")
        elif "no_reference" in m:
            self.counts["no reference"] += 1
        elif "unfit" in m:
            self.counts["unfit"] += 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="hunt")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0: behind those of the last run)")
    parser.add_argument("--pairs", action="store_true", help="only models for pairs that are missing, until none is")
    parser.add_argument("--out", type=Path, default=Path("build/hunt"), help="found graphs and the table of pairs")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    state = args.out / "next_seed"
    first = args.seed or (int(state.read_text()) if state.exists() else 1)
    coverage = Coverage(args.out / "coverage.json")
    parent = Parent(first, args.out / "found", coverage, lambda text: print(text, flush=True), args.pairs)
    shutil.rmtree(args.out / "again", ignore_errors=True)  # of a hunt that was ended, perhaps with other code
    try:
        parent.run(args.seconds)
    except KeyboardInterrupt:
        pass
    for path in in_another_process(args.out / "again", 1 + first % 1000):
        parent.counts["bytes: hashes decide"] += 1
        parent.found.append({"found": "bytes: hashes decide", "path": path})
        parent.log(f"FOUND bytes: hashes decide {path}")
    shutil.rmtree(args.out / "again", ignore_errors=True)
    state.write_text(f"{parent.next}\n")
    coverage.save()
    print(coverage.report())
    print(f"\nseeds {first} to {parent.next - 1}")
    for kind, n in parent.refused.most_common(12):
        print(f"{n:7}  refused: {kind}")
    for kind, n in parent.counts.most_common():
        print(f"{n:7}  {kind}")
    return 1 if parent.found else 0


if __name__ == "__main__":
    sys.exit(main())
