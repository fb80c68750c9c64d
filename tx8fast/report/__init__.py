"""Text for people, made from JSON-able facts: tables and disassembly.

May import: rich, numpy, isa, program.model. Must not: compute a figure; a number here was computed before.
"""
