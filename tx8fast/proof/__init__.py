"""The proof of a program: placed code executed over a finite field, where sums have no order and no rounding.

May import: program, isa (record layout and field names only), _kernels, errors. Must not: use any meaning that isa, the
simulators or the compiler define; whatever moves or computes here is written a second time.
"""
