"""Many models at once: a manifest of jobs, run by any executor, with a journal that survives everything.

May import: everything below the command line. Must not: print.
"""
