"""Code of two tiles, of which one streams pieces to the other."""

from __future__ import annotations

from tx8fast.program.builder import CodeBuilder

PIECES, BYTES = 5, 512


def piece_streams(source: int, target: int, parts: int = 1) -> tuple[CodeBuilder, CodeBuilder]:
    """Return the code of tile 0, which loads pieces from slot 0 and sends each to tile 1, and that of tile 1, which stores them to slot 1
    in so many `parts`. The handshake keeps the sender from overtaking. source, target: bytes in their scratchpads."""
    one, two = CodeBuilder(), CodeBuilder()
    with one.loop(PIECES):
        one.add("rdma", dst=source, run_bytes=BYTES, slot=0, ddr_step=(BYTES,)).add("wait")
        one.add("send", src=source, dst=target, bytes=BYTES, mask=2).add("send_wait").add("handshake", peer=1)
    with two.loop(PIECES):
        two.add("recv", monitor=0, bytes=BYTES)
        with two.loop(parts):
            two.add("wdma", src=target, run_bytes=BYTES // parts, slot=1, ddr_step=(BYTES, BYTES // parts))
            two.add("wait_worker", workers=1)
        two.add("handshake", peer=0)
    return one, two
