"""The program artifact: model, container file, verifier, parameter images, builder for hand-written programs.

May import: numpy, isa, machine, weights, numerics, errors. Must not: import the compiler.
"""
