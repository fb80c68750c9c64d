"""Programs as C: text in the public C interface of the runtime, tables, parameter images, and a main that runs it all.

May import: program, isa, machine, numerics, weights, host (where the C core lies), files, errors. Must not: know the compiler or simulate.
"""
