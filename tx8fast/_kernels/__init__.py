"""The one door to compiled code: validated calls in, exceptions instead of status codes out.

May import: the doors beside it, one `_facade_<kernel>.py` per kernel. Must not: know ops, graphs or
machines. Bounds checks are off inside the kernels, so every function here checks shapes and ranges
first.
"""

from tx8fast._kernels._checks import STATUS_ERRORS, Ints, check_status, int_array, require
from tx8fast._kernels._facade_banks import STEPS, bank_shares
from tx8fast._kernels._facade_distinct import distinct_rows
from tx8fast._kernels._facade_events import (
    EventDeadlock,
    EventInput,
    EventResult,
    Routes,
    simulate_events,
)
from tx8fast._kernels._facade_fit import first_fit
from tx8fast._kernels._facade_folds import find_folds
from tx8fast._kernels._facade_list_schedule import (
    ENGINES,
    Csr,
    Windows,
    byte_dependences,
    improved,
    list_order,
    longest_paths,
    within_reach,
)
from tx8fast._kernels._facade_overlaps import Overlaps, number_pairs, overlapping, stretched
from tx8fast._kernels._facade_pack import N_RULES, PackSearch, pack_exact
from tx8fast._kernels._facade_pages import extra_pages
from tx8fast._kernels._facade_plan_cost import BOUNDS, PlanSpace, plan_costs
from tx8fast._kernels._facade_product import MOST_LANES, single_product
from tx8fast._kernels._facade_shard_enum import enumerate_shardings
from tx8fast._kernels._facade_shorts import WIDE, f16_of_f32, looked_up
from tx8fast._kernels._facade_time_steps import bubble

__all__ = [
    "BOUNDS",
    "ENGINES",
    "MOST_LANES",
    "N_RULES",
    "Overlaps",
    "PackSearch",
    "PlanSpace",
    "plan_costs",
    "STATUS_ERRORS",
    "STEPS",
    "WIDE",
    "EventDeadlock",
    "EventInput",
    "EventResult",
    "Csr",
    "Ints",
    "Routes",
    "Windows",
    "bank_shares",
    "bubble",
    "byte_dependences",
    "check_status",
    "distinct_rows",
    "enumerate_shardings",
    "extra_pages",
    "f16_of_f32",
    "find_folds",
    "first_fit",
    "int_array",
    "improved",
    "list_order",
    "looked_up",
    "longest_paths",
    "number_pairs",
    "overlapping",
    "pack_exact",
    "require",
    "simulate_events",
    "single_product",
    "stretched",
    "within_reach",
]
