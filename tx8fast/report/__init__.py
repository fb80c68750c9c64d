"""Text for people, made from JSON-able facts: tables, disassembly and the HTML page.

May import: numpy, isa, program.model. Must not: compute a figure; a number here was computed before.
"""
