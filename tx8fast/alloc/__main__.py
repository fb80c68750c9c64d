"""`python -m tx8fast.alloc IN.csv --capacity N [-o OUT.csv]`: place one problem from the command line.

May import: this package and `errors`. Must not: contain logic that the library lacks.
"""

from __future__ import annotations

import argparse
import sys
import time

from tx8fast.alloc.problem import read_csv, write_csv
from tx8fast.alloc.solve import solve
from tx8fast.alloc.validate import validate
from tx8fast.errors import Tx8Error


def main(arguments: list[str] | None = None) -> int:
    """Place, check and print; return 0, 2 when the input is at fault, or 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tx8fast.alloc", description="Place buffers in memory.")
    parser.add_argument("problem", metavar="IN.csv", help="columns id, lower, upper, size[, offset]")
    parser.add_argument("--capacity", type=int, metavar="N", help="bytes available (default: no limit)")
    parser.add_argument("-o", "--output", metavar="OUT.csv", help="write the problem with an offset column")
    parser.add_argument(
        "--effort",
        type=int,
        default=4_000_000,
        metavar="N",
        help="nodes to search when first fit is not low enough (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.effort < 0 or (options.capacity is not None and options.capacity < 0):
        parser.error("--capacity and --effort must not be negative")
    try:
        problem = read_csv(options.problem, options.capacity)
        began = time.perf_counter()
        placement = solve(problem, effort=options.effort)
        seconds = time.perf_counter() - began
        validate(problem, placement.offsets)
        if options.output:
            write_csv(options.output, problem, placement.offsets)
    except Tx8Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    bound, peak = placement.lower_bound_bytes, placement.peak_bytes
    gap = f"not proven optimal, at most {peak - bound} bytes too high"
    print(f"buffers      {len(problem.buffers)}")
    print(f"height       {peak} bytes ({'proven optimal' if placement.optimal else gap})")
    if options.capacity is not None:
        print(f"capacity     {options.capacity} bytes, {options.capacity - peak} of them free")
    print(f"lower bound  {bound} bytes")
    print(f"time         {seconds * 1e3:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
