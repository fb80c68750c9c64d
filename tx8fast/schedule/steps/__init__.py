"""Time steps of a layer group: a chain of ops that runs slice by slice with its intermediates in scratchpad.

A machine whose engines meet at the end of every step needs more than an order of instructions: which transfer goes
into which step, and where its bytes lie so that it may. These modules plan that, each usable by itself:

- `slices`, `mining`, `counts`: how a group's tensors are cut, backwards from its results, with halos; how often at least;
- `table`, `assign`: rows of ops and transfers, loads one step ahead, stores one behind, three pipeline stages, lifetimes
  that wrap around the loop;
- `cost`, `balance`: cycles of a group; transfers moved to steps with room to spare, per engine;
- `place`: addresses with bank exclusion and held buffers;
- `combine`, `overlap`: transfers moved and steps merged after placement; transfers of neighbouring groups hidden in each other;
- `spills`: the step of every transfer, and what is spilled, by an integer program;
- `group`: all of it for one group, with the slice counts that fit;
- `replay`: the independent check, by running the rows on symbols.

The compile path does not call them: TX8 queues run freely and the search times whole plans (docs/scheduling.md says which
step of which method that replaces). They serve machines with step barriers and as a yardstick for the search.
"""
