"""The meaning of every instruction as a dependency-free C core (`csrc/`), bound with Cython.

May import: errors, machine, isa, numerics. Must not: know programs. The header of the instruction set is written by `isa_header`.
"""
