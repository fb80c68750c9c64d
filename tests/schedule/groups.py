"""Random groups for property tests: ops with random engines, loops, operands and buffer copies."""

from hypothesis import assume
from hypothesis import strategies as st

from tx8fast.errors import InfeasibleError
from tx8fast.schedule.stages import ENGINES, IC, NH, OC, LoopOp, Nest, build_script, build_values

LOOPS = [0, NH, OC, NH | OC, NH | OC | IC, OC | IC, NH | IC]


@st.composite
def random_groups(draw):
    """Return (script, values, nests) of a group that can be ordered."""
    nests: list[Nest] = []
    made: list[str] = ["table"]  # a value that nothing in the group writes
    trips = st.integers(1, 4)
    for n in range(draw(st.integers(1, 2))):
        ops = []
        oc, ic = draw(trips), draw(trips)
        for k in range(draw(st.integers(2, 6))):
            engine = draw(st.sampled_from(ENGINES))
            loops = draw(st.sampled_from(LOOPS))
            reads = () if engine == "ld" else tuple(draw(st.lists(st.sampled_from(made[-3:]), max_size=2, unique=True)))
            writes = () if engine == "st" else (f"v{n}{k}",)
            inplace = draw(st.integers(0, len(reads))) - 1 if engine != "ne" else -1
            sums = draw(st.sampled_from([0, IC, OC | IC])) & loops if engine == "ne" else 0
            ops.append(LoopOp(f"{engine}{n}{k}", engine, reads, writes, loops, sums, inplace))
            made += writes
        nests.append(Nest(tuple(ops), oc, ic))
    nh = draw(trips)
    copies = {v: draw(st.integers(1, 3)) for v in made}
    try:
        script = build_script(nests, nh, draw(st.booleans()))
        values = build_values(nests, nh, copies=copies)
    except InfeasibleError:
        assume(False)
    return script, values, nests
