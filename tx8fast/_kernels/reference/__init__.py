"""Readable twins of the kernels, one module per kernel: the oracle of the kernel tests.

May import: the standard library and numpy. Must not: be imported by the compile path.
"""
