"""The simulators: everything here works from a program alone.

May import: program, isa, machine, numerics, errors, _kernels. Must not: import the compiler.
"""
