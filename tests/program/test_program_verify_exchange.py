"""The verifier on programs whose tiles exchange data."""

from __future__ import annotations

import pytest

from tx8fast.errors import ProgramError
from tx8fast.machine import load_machine
from tx8fast.program.builder import CodeBuilder, make_program, make_segment
from tx8fast.program.verify import verify

MACHINE = load_machine("test_2x2")
A = MACHINE.spm_base


def check(*builders):
    """Verify a segment in which tile t runs builder t; tiles without one wait at the barriers of the first."""
    codes = [b.code() for b in builders]
    barriers = int((codes[0]["opcode"] == 0x501).sum())
    idle = CodeBuilder()
    for _ in range(barriers):
        idle.finish()
    which = list(range(len(codes))) + [len(codes)] * (4 - len(codes))
    if len(codes) < 4:
        codes.append(idle.code())
    segment = make_segment(MACHINE, "s", codes, which)
    verify(make_program(MACHINE, [segment], [(0, [])]))


def send(b=None, n=64, mask=2, **more):
    return (b or CodeBuilder()).add("send", **{"src": A, "dst": A, "bytes": n, "mask": mask, **more})


def recv(b=None, n=64, monitor=0):
    return (b or CodeBuilder()).add("recv", monitor=monitor, bytes=n)


def meet(b=None, mask=3):
    return (b or CodeBuilder()).add("barrier_sub", mask=mask)


def done(b=None):
    return (b or CodeBuilder()).add("send_wait").finish()


def test_good_exchanges_pass():
    check(done(send()), recv().finish())
    check(done(recv(send(mask=15))), recv().finish(), recv().finish(), recv().finish())
    # a matching receive before the barrier shows that the message is over
    check(send().finish(), recv().finish())
    check(meet(meet()).finish(), meet(meet()).finish())
    shake = [CodeBuilder().add("handshake", peer=p).finish() for p in (1, 0)]
    check(*shake)
    both = CodeBuilder().add("add_vs", src0=A, dst=A, n=64, scalar=0, fmt="f32", worker=1)
    check(both.add("wait_worker", workers=2).add("barrier"))


BROKEN = {
    r"mask 16 of a send outside \[1, 16\)": lambda: [done(send(mask=16))],
    r"mask 0 of a barrier_sub outside \[1, 16\)": lambda: [meet(mask=0).finish()],
    r"monitor 4 of a send outside \[0, 4\)": lambda: [done(send(monitor=4))],
    r"monitor 4 of a recv outside \[0, 4\)": lambda: [done(send()), recv(monitor=4).finish()],
    r"bytes 0 of a send outside": lambda: [done(send(n=0))],
    r"peer 4 of a handshake outside \[0, 4\)": lambda: [CodeBuilder().add("handshake", peer=4).finish()],
    r"workers 8 of a wait_worker outside \[1, 8\)": lambda: [CodeBuilder().add("wait_worker", workers=8).finish()],
    r"worker outside \[0, 3\)": lambda: [CodeBuilder().add("wait", worker=3).finish()],
    "tile 0 does a handshake with itself": lambda: [CodeBuilder().add("handshake", peer=0).finish()],
    "tile 0 is not in the mask of its barrier": lambda: [meet(mask=2).finish(), meet(mask=2).finish()],
    "tile 1 monitor 0: 64 bytes are sent to it, 0 received": lambda: [done(send())],
    "tile 0 monitor 0: 0 bytes are sent to it, 64 received": lambda: [recv().finish()],
    "tile 1 monitor 1: 64 bytes are sent to it, 0 received": lambda: [done(send(monitor=1)), recv().finish()],
    "tile 1 monitor 0: 128 bytes are sent to it, 64 received": lambda: [
        done(send()), recv().finish(), done(send())],
    "instruction 0: a message to tile 1 may be under way at barrier 0": lambda: [
        send().finish().finish(), recv(CodeBuilder().finish()).finish(), *[CodeBuilder().finish().finish()] * 2],
    "partial barrier 0x3 differently often: {0: 2, 1: 1}": lambda: [meet(meet()).finish(), meet().finish()],
    "tile 0 does 1 handshakes with tile 1, which answers 0": lambda: [CodeBuilder().add("handshake", peer=1).finish()],
    "reads SPM .* outside": lambda: [done(send(src=A - 64)), recv().finish()],
    "writes SPM .* outside": lambda: [done(send(dst=MACHINE.spm_limit - 63)), recv().finish()],
    "a barrier without a wait": lambda: [
        CodeBuilder().add("add_vs", src0=A, dst=A, n=64, scalar=0, fmt="f32", worker=1)
        .add("wait_worker", workers=5).add("barrier")],
}  # fmt: skip


@pytest.mark.parametrize("message", BROKEN)
def test_broken_exchange_is_found(message):
    with pytest.raises(ProgramError, match=message):
        check(*BROKEN[message]())
