"""The host library runs program files without Python as `CompiledProgram.run` does, and says what is wrong with a file or a call."""

from __future__ import annotations

import sys
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "chips"))
from test_chip_programs import N, swap  # noqa: E402

import tx8fast  # noqa: E402
from tests.simulator.planting import feed_of  # noqa: E402
from tests.support.checkpoints import make_checkpoint  # noqa: E402
from tests.support.corpus import DATA  # noqa: E402
from tests.support.host_library import NAMES, CProgram  # noqa: E402
from tests.support.host_library import HostError as CError  # noqa: E402
from tests.support.one_op import Arg, build  # noqa: E402
from tx8fast.api import CompiledProgram  # noqa: E402
from tx8fast.program import container  # noqa: E402
from tx8fast.program.params import param_arrays  # noqa: E402

HOSTS = {"C": (CProgram, CError)}
try:
    from tx8fast.host._program import HostError, Program

    HOSTS["C++"] = (Program, HostError)
except ImportError:  # built without pybind11
    pass


@pytest.fixture(params=HOSTS)
def host(request):
    return HOSTS[request.param]


def fails(host, kind: str, says: str, call, *args, **more):
    """Check that a call ends in an error of this kind."""
    with pytest.raises(host[1], match=says) as found:
        call(*args, **more)
    assert NAMES[found.value.code] == kind  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint(folder, hidden=64, heads=4, kv_heads=2, intermediate=96, vocab=50, layers=1, dtype="bfloat16")
    made = tx8fast.compile(folder, phase="prefill", seq=6, embed_limit_bytes=0)
    made.save(folder / "whole.tx8", standalone=True)
    made.save(folder / "bare.tx8")
    return folder


@cache
def routines() -> CompiledProgram:
    """A program that calls routines of the kernel core, whose words the file holds."""
    args = [Arg((3, 40), "f32"), Arg((3, 40), "f32")]
    return CompiledProgram(build(args, lambda b, x, y: b("cumsum", b("add", x, y), axis=1)).program)


@cache
def chips() -> CompiledProgram:
    return CompiledProgram(swap())


@cache
def lookup() -> CompiledProgram:
    return tx8fast.compile(DATA / "onnx" / "gpt2-decode-op23.onnx", opt=1)


@pytest.mark.parametrize("make", [routines, chips, lookup])
def test_a_program_gives_the_same_bytes(host, tmp_path, make):
    made = make()
    made.save(tmp_path / "p.tx8", standalone=True)
    feed = feed_of(made.program)
    want = {name: np.ascontiguousarray(x) for name, x in made.run(feed).items()}
    program = host[0](str(tmp_path / "p.tx8"))
    for threads in (1, 2):  # memory of the run before shows in no byte
        assert program.run(feed, threads) == {name: x.tobytes() for name, x in want.items()}
    assert {t["name"]: t["shape"] for t in program.outputs()} == {name: x.shape for name, x in want.items()}
    assert [t["name"] for t in program.inputs()] == list(feed)
    assert tx8fast.load(tmp_path / "p.tx8").run(feed).keys() == want.keys()


def test_one_array_is_for_all_chips(host, tmp_path):
    chips().save(tmp_path / "p.tx8", standalone=True)
    x = np.arange(N).astype(np.uint8)
    assert host[0](str(tmp_path / "p.tx8")).run({"x": x})["y"] == x.tobytes() * 2


def test_figures_and_facts_are_those_of_the_file(host, llama):
    program, made = host[0](str(llama / "whole.tx8")), tx8fast.load(llama / "whole.tx8").program
    found = program.figures()
    assert found["launches"] == len(made.launches) and found["useful_macs"] == made.meta["useful_macs"] > 0
    assert found["estimate_cycles"] == sum(made.segments[x.segment].estimate_cycles for x in made.launches)
    assert found["file_bytes"] == (llama / "whole.tx8").stat().st_size
    assert (program.fact("model"), program.fact("options"), program.fact("x")) == ("llama", None, None)


def test_weights_may_be_given(host, llama):
    """A file without weights is opened; it runs when it has them, as they lie in DDR."""
    feed = {"input_ids": np.arange(6, dtype=np.int64).reshape(1, 6)}
    program, made = host[0](str(llama / "bare.tx8")), tx8fast.load(llama / "bare.tx8")
    fails(host, "weights", r"15 of 15 parameters are not in the file \(the first is '.*--standalone", program.run, feed)
    fails(host, "argument", "none is called 'x'", program.set_param, "x", b"1")
    images = {t.name: image for t, image in param_arrays(made.program, llama)}
    for t in program.params():
        fails(
            host, "size", f"found 3 bytes, required {t['bytes']}", program.set_param, t["name"], np.zeros(3, np.uint8)
        )
        program.set_param(t["name"], images[t["name"]])
    assert program.run(feed) == host[0](str(llama / "whole.tx8")).run(feed)


def test_calls_of_routines_are_in_standalone_files_only(host, tmp_path):
    made = routines()
    made.save(tmp_path / "p.tx8")
    program = host[0](str(tmp_path / "p.tx8"))
    assert program.figures()["launches"] >= 1
    fails(host, "version", "compile with --standalone", program.run, feed_of(made.program))


def test_wrong_calls_change_nothing(host, llama):
    program = host[0](str(llama / "whole.tx8"))
    ids = np.arange(6, dtype=np.int64).reshape(1, 6)
    want = program.run({"input_ids": ids})
    fails(host, "argument", "input 'input_ids' is missing", program.run, {})
    fails(host, "argument", "no input is called 'x'", program.run, {"x": ids})
    fails(host, "size", "found 40 bytes, required 48", program.run, {"input_ids": ids[:, :5]})
    says = r"input 'input_ids', element 2, is 1000, required 0 to 49 \(or -50 to -1"
    fails(host, "run", says, program.run, {"input_ids": np.where(ids == 2, 1000, ids)})
    if host[0] is CProgram:
        fails(
            host, "size", "output '.*': found room for [0-9]+ bytes, required", program.run, {"input_ids": ids}, short=1
        )
    assert program.run({"input_ids": ids}) == want


def test_progress_is_told_and_may_end_the_run(host, llama):
    program = host[0](str(llama / "whole.tx8"))
    feed, told = {"input_ids": np.arange(6, dtype=np.int64).reshape(1, 6)}, []
    want = program.run(feed, 1, lambda *at: told.append(at))
    n = int(program.figures()["launches"])
    assert told == [(k + 1, n) for k in range(n)]
    fails(host, "cancelled", f"after 2 of {n} launches", program.run, feed, 1, lambda done, _: done < 2)
    assert program.run(feed) == want


def test_an_exception_of_the_callback_comes_out(llama):
    if "C++" not in HOSTS:
        pytest.skip("built without pybind11")
    program = HOSTS["C++"][0](str(llama / "whole.tx8"))
    with pytest.raises(ZeroDivisionError):
        program.run({"input_ids": np.zeros((1, 6), np.int64)}, 1, lambda *_: 1 // 0)


def test_a_second_thread_is_told_that_the_program_is_busy(host, llama):
    program = host[0](str(llama / "whole.tx8"))
    feed, found = {"input_ids": np.zeros((1, 6), np.int64)}, []

    def second(done, _):
        if done == 1:  # the first run stands in its callback; Python's other threads go on
            t = threading.Thread(target=lambda: found.append(busy()))
            t.start()
            t.join()

    def busy() -> int:
        with pytest.raises(host[1], match="another thread works with this program") as e:
            program.run(feed)
        assert program.figures()["launches"] > 1
        return e.value.code  # type: ignore[attr-defined]

    want = program.run(feed)
    assert program.run(feed, 2, second) == want
    assert [NAMES[code] for code in found] == ["busy"]


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda b: b[:40], "file", "40 bytes, at least 64 required; the file is truncated"),
        (lambda b: b[:-9], "file", "expected; the file is truncated or was extended"),
        (lambda b: b"PK" + b[2:], "file", "this is not a .tx8 file"),
        (lambda b: b[:8] + b"\x02" + b[9:], "version", "format version 2.0, this library reads 3.0 to 3.0; compile the model again"),
        (lambda b: b[:-1] + b"]", "file", "the header's checksum is wrong"),
        (lambda b: b[:70] + bytes([b[70] ^ 1]) + b[71:], "file", "the checksum of section 'row_words' is wrong"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(host, llama, tmp_path, change, kind, says):
    path = tmp_path / "p.tx8"
    path.write_bytes(change((llama / "whole.tx8").read_bytes()))
    fails(host, kind, f"reading program file {path}: .*{says}", host[0], str(path))


def test_changed_weights_are_found_when_they_are_needed(host, llama, tmp_path):
    held = container.Container(llama / "whole.tx8", (3, 0))
    at = held._sections["data"][0]
    data = bytearray((llama / "whole.tx8").read_bytes())
    data[at] ^= 1
    (tmp_path / "p.tx8").write_bytes(data)
    program = host[0](str(tmp_path / "p.tx8"))
    feed = {"input_ids": np.zeros((1, 6), np.int64)}
    fails(host, "file", "the checksum of section 'data' is wrong", program.run, feed)


@pytest.mark.parametrize(("name", "says"), [("nix.tx8", "No such file"), (".", "no regular file")])
def test_what_is_no_file_is_refused(host, tmp_path, name, says):
    fails(host, "file", says, host[0], str(tmp_path / name))


def test_files_of_several_lengths_are_left_to_python(host, tmp_path):
    from tx8fast.program import bundle

    made = routines().program
    bundle.save({"name": "seq"}, [made, made], tmp_path / "p.tx8")
    fails(host, "version", "programs for several lengths", host[0], str(tmp_path / "p.tx8"))
