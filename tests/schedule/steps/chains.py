"""Random groups for the time-step tests: ops in order, values used outside, and what each transfer costs."""

from hypothesis import strategies as st

from tx8fast.schedule.steps.table import Move, StepOp


@st.composite
def chains(draw):
    """Return (ops, outputs, transfer) of a group; every op reads an earlier result or values from outside."""
    ops, made, outside = [], [], [f"in{k}" for k in range(4)]
    for k in range(draw(st.integers(1, 6))):
        pool = outside + made
        reads = tuple(draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True)))
        ops.append(StepOp(f"op{k}", reads, (f"v{k}",), draw(st.integers(0, 100)), draw(st.sampled_from([0, 0, 20]))))
        made.append(f"v{k}")
    outputs = {made[-1], *draw(st.sets(st.sampled_from(made)))}
    sizes = {v: draw(st.integers(1, 120)) for v in outside + made}
    cycles = {v: draw(st.integers(0, 80)) for v in outside + made}
    held = draw(st.sets(st.sampled_from(outside)))
    engine = draw(st.sampled_from([("dma", "dma"), ("rdma", "wdma")]))

    def transfer(kind: str, value: str) -> Move:
        store = kind == "store"
        return Move(kind, value, cycles[value], sizes[value], engine[store], held=not store and value in held)

    return ops, outputs, transfer
