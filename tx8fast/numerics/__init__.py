"""Number formats, tensor layouts and reference routines of the chip.

May import: numpy, ml_dtypes, tx8fast.errors. Must not: know the IR,
instructions or the machine file.
"""
