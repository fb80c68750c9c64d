"""Time steps of a group: ops and transfers in rows that follow one clock, with intermediates in scratchpad.

A machine whose engines meet at the end of every step needs more than an order of instructions: which transfer goes
into which step, and where its bytes lie so that it may. These modules plan that, each usable by itself:

- `table`, `assign`: rows of ops and transfers, loads one step ahead, stores one behind, three pipeline stages, lifetimes
  that wrap around the loop;
- `cost`, `balance`: cycles of a group; transfers moved to steps with room to spare, per engine;
- `place`: addresses with bank exclusion and held buffers;
- `combine`, `overlap`: transfers moved and steps merged after placement; transfers of neighbouring groups hidden in each other;
- `spills`: the step of every transfer, and what is spilled, by an integer program.

The compile path does not call them yet: TX8 queues run freely and the search times whole plans. What a common clock costs is
measured by `benchmarks/stepped_groups.py`; docs/scheduling.md has the figures.
"""
