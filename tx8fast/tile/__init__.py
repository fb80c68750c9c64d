"""One fused op: members composed through their factor rules.

May import: graph_table, lower, machine. Must not: search.
"""
