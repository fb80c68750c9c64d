# Status codes that every kernel returns; `STATUS_ERRORS` in __init__.py says what each one means to Python.

cdef enum Status:
    OK = 0
    OUTPUT_TOO_SMALL = 1  # a preallocated output array cannot hold the result
    BAD_INPUT = 2         # an argument that the facade must have refused
    OUT_OF_MEMORY = 3     # scratch memory could not be had
    DEADLOCK = 4          # work is left that waits for something that never happens
    LIMIT_REACHED = 5     # the work budget of a search is used up
    INFEASIBLE = 6        # proven: no solution exists
