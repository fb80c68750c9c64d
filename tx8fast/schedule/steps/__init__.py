"""Parts of the time-step machinery that no command runs yet, each usable by itself.

- `table`: rows of ops and transfers, lifetimes that wrap around the loop;
- `overlap`: transfers of neighbouring groups hidden in each other;
- `spills`: the step of every transfer, and what is spilled, by an integer program.

What the compile path does by time steps is in `tile/epochs.py`.
"""
