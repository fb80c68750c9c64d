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
    """Place, check and print; return 0, or 2 when the input is at fault."""
    parser = argparse.ArgumentParser(
        prog="python -m tx8fast.alloc", description="Place buffers in memory."
    )
    parser.add_argument(
        "problem", metavar="IN.csv", help="columns id, lower, upper, size[, offset]"
    )
    parser.add_argument(
        "--capacity", type=int, metavar="N", help="bytes available (default: no limit)"
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT.csv", help="write the problem with an offset column"
    )
    parser.add_argument(
        "--effort",
        type=int,
        default=1_000_000,
        metavar="N",
        help="nodes to search when first fit is not low enough (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
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
    quality = "optimal" if placement.optimal else "not proven optimal"
    print(f"buffers      {len(problem.buffers)}")
    print(f"height       {placement.peak_bytes} bytes ({quality})")
    print(f"lower bound  {placement.lower_bound_bytes} bytes")
    print(f"time         {seconds * 1e3:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
