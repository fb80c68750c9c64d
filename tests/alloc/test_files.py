"""Problem files: round trip, every malformed row reported, the command line."""

import subprocess
import sys

import pytest

from tx8fast.alloc.__main__ import main
from tx8fast.alloc.problem import Buffer, Problem, read_csv, write_csv
from tx8fast.errors import AllocationError


def test_round_trip_with_offsets(tmp_path) -> None:
    path = tmp_path / "p.csv"
    problem = Problem((Buffer("x", ((0, 2), (4, 6)), 10), Buffer("y", ((1, 5),), 20)))
    write_csv(path, problem, (20, 0))
    again = read_csv(path)
    assert [(b.label, b.lifetimes, b.size_bytes, b.fixed) for b in again.buffers] == [
        ("x", ((0, 2), (4, 6)), 10, 20),
        ("y", ((1, 5),), 20, 0),
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lower,size\n0,1,2\n", "column upper missing"),
        ("", "column id, lower, upper, size missing"),
        ("id,lower,upper,size\n0,1,2\n1,a,3,4\n", "2 problems"),
        ("id,lower,upper,size\n0,3,3,4\n", "empty or reversed"),
        ("id,lower,upper,size\n0,1,2,3\n0,4,5,6\n", "another size"),
        ("id,lower,upper,size\n0,1,3,4\n0,2,5,4\n", "listed twice"),
        ("id,lower,upper,size\n0,1,3,4\n0,1,3,4\n", "listed twice"),
        ("id,lower,upper,size\n0,5,3,4\n", "empty or reversed"),
        ("id,lower,upper,size\n0,1,3,-4\n", "negative"),
        ("id,lower,upper,size\n0,1,3,NaN\n", "must be integers"),
        ("id,lower,upper,size\n0,1,3,1e3\n", "must be integers"),
        ("id,lower,upper,size\n0,1,3\n", "must be integers"),
        ("id,lower,upper,size,offset\n0,1,3,4,inf\n", "must be integers"),
        ("id,lower,upper,size,offset\n0,1,3,4,-8\n", "fixed offset -8"),
        ("id,lower,upper,size\n0,1,3,9223372036854775808\n", "below 2\\*\\*61"),
        ("id,lower,upper,size\n0,1,99999999999999999999,4\n", "out of range"),
        (f"id,lower,upper,size\n0,1,3,{'9' * 5000}\n", "must be integers"),
        ("id,lower,upper,size\n" + "x,1,a,1\n" * 1000, "and 980 more"),
        ("id,lower,upper,size\n0,1,3,\0\n", "reading"),
    ],
)
def test_malformed_files(tmp_path, capsys, text: str, message: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(AllocationError, match=message):
        read_csv(path)
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: reading") and "Traceback" not in error
    assert len(error) < 5000


def test_missing_and_binary_files(tmp_path) -> None:
    with pytest.raises(AllocationError, match="reading"):
        read_csv(tmp_path / "none.csv")
    (tmp_path / "bin.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AllocationError, match="reading"):
        read_csv(tmp_path / "bin.csv")
    with pytest.raises(AllocationError, match="writing"):
        write_csv(tmp_path / "no" / "p.csv", Problem(()), ())


def test_command_line(tmp_path, data_dir, capsys) -> None:
    source, target = str(data_dir / "A.1048576.csv"), tmp_path / "out.csv"
    assert main([source, "--capacity", "1048576"]) == 0
    assert "height       1048576 bytes (proven optimal)" in capsys.readouterr().out
    assert main([source, "--capacity", "1400000", "--effort", "0", "-o", str(target)]) == 0
    out = capsys.readouterr().out
    assert "lower bound  1048576 bytes" in out and "not proven optimal" in out
    assert len(read_csv(target, 1_400_000).buffers) == 154
    target.unlink()
    assert main([source, "--capacity", "1000", "-o", str(target)]) == 2
    assert "1,000 bytes available" in capsys.readouterr().err
    assert not target.exists()


def test_options_out_of_range(data_dir, capsys) -> None:
    for bad in (["--capacity", "-1"], ["--effort", "-1"], ["--capacity", "1.5"]):
        with pytest.raises(SystemExit) as info:
            main([str(data_dir / "G.1048576.csv"), *bad])
        assert info.value.code == 2 and "error" in capsys.readouterr().err


def test_an_empty_problem_and_a_byte_order_mark(tmp_path, capsys) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(b"\xef\xbb\xbfid,lower,upper,size\n")
    assert main([str(path), "--capacity", "0"]) == 0
    assert "height       0 bytes (proven optimal)" in capsys.readouterr().out


def test_module_runs(data_dir, repo_root) -> None:
    command = [sys.executable, "-m", "tx8fast.alloc", str(data_dir / "G.1048576.csv")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=repo_root)
    assert run.returncode == 0 and "height" in run.stdout
