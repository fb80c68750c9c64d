"""Weight table: lazy opening, validation, views, derived entries, descriptions."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.support.checkpoints import make_checkpoint, safetensors_bytes
from tx8fast.errors import ImportModelError
from tx8fast.weights import (
    CheckpointEntry,
    FileSource,
    Weight,
    WeightTable,
    find_checkpoint,
    open_checkpoint,
    resolve,
    rope_frequencies,
)
from tx8fast.weights.derived import evaluate

BF16 = ml_dtypes.bfloat16


def write(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_view_is_a_read_only_map_of_the_file(tmp_path):
    tensors = {"w": np.arange(6, dtype=BF16).reshape(2, 3), "b": np.arange(5, dtype=np.int64)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes(tensors, {"format": "pt"}))
    table = WeightTable(tmp_path)
    for key, e in open_checkpoint(path).items():
        table.add_file(key, e)
    w = table.view("w")
    assert w.dtype == BF16 and w.shape == (2, 3) and float(w[1, 2]) == 5.0
    assert not w.flags.writeable and not w.flags.owndata
    np.testing.assert_array_equal(table.view("b"), tensors["b"])
    assert table["w"].dtype == "bf16" and table["w"].nbytes == 12


def test_opening_reads_the_header_only(tmp_path):
    """A sparse 8 GiB file opens at once, and no byte of it becomes resident."""
    n = 8 << 30
    text = json.dumps({"w": entry("BF16", (n // 2,), 0, n)}).encode()
    path = tmp_path / "model.safetensors"
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + n)
    table = WeightTable(tmp_path)
    table.add_file("w", open_checkpoint(path)["w"])
    assert not table._maps
    assert table.view("w").shape == (n // 2,) and float(table.view("w")[-1]) == 0.0
    table.remove("w")
    assert not table._maps and "w" not in table


@pytest.mark.parametrize(
    ("header", "data", "length", "message"),
    [
        ({"a": entry()}, b"\0" * 8, 1 << 40, "header length 1099511627776 is not credible"),
        (b"{nonsense", b"", None, "not valid JSON"),
        (b"[1]", b"", None, "not a JSON object"),
        (b'{"a":1,"a":2}', b"", None, "'a' appears twice"),
        ({"a": entry(begin=8, end=16)}, b"\0" * 16, None, "hole of 8 bytes before 'a'"),
        (
            {"a": entry(), "b": entry(begin=4, end=12)},
            b"\0" * 12,
            None,
            "overlap of 4 bytes before 'b'",
        ),
        ({"a": entry(shape=(3,))}, b"\0" * 8, None, "'a': has 8 bytes, F32 [3] needs 12"),
        ({"a": entry()}, b"\0" * 9, None, "1 bytes after the last tensor"),
        ({"a": entry()}, b"\0" * 7, None, "truncated"),
        ({"a": entry(dtype="F7")}, b"\0" * 8, None, "dtype 'F7' is not one of"),
        ({"a": entry(shape=(-2,))}, b"\0" * 8, None, "shape [-2]"),
        ({"a": entry(shape=(True,))}, b"\0" * 8, None, "shape [True]"),
        ({"a": entry(begin=8, end=0)}, b"\0" * 8, None, "data_offsets [8, 0]"),
        ({"a": 3}, b"\0" * 8, None, "not an object"),
        ({"a": {"dtype": ["F32"]}}, b"", None, "dtype ['F32']"),
    ],
)
def test_malformed_file(tmp_path, header, data, length, message):
    path = write(tmp_path / "x.safetensors", header, data, length)
    with pytest.raises(ImportModelError) as e:
        open_checkpoint(path)
    assert message in str(e.value) and "x.safetensors" in str(e.value)


@pytest.mark.parametrize("size", [0, 3, 8, 20])
def test_truncated_everywhere(tmp_path, size):
    path = tmp_path / "x.safetensors"
    path.write_bytes(safetensors_bytes({"a": np.zeros(4, np.float32)})[:size])
    with pytest.raises(ImportModelError, match="x.safetensors"):
        open_checkpoint(path)


def test_all_problems_of_all_shards_in_one_error(tmp_path):
    write(
        tmp_path / "s1.safetensors",
        {"a": entry("F7"), "b": entry(shape=(5,), begin=8, end=16)},
        b"\0" * 16,
    )
    write(tmp_path / "s2.safetensors", {"c": entry()}, b"\0" * 10)
    index = {
        "weight_map": {
            "a": "s1.safetensors",
            "c": "s2.safetensors",
            "d": "../x",
            "e": "gone.safetensors",
        }
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ImportModelError) as e:
        open_checkpoint(find_checkpoint(tmp_path))
    text = str(e.value)
    assert "5 problems" in text
    for part in (
        "'F7'",
        "needs 20",
        "2 bytes after",
        "'../x' leaves",
        "gone.safetensors: cannot be read",
    ):
        assert part in text


def test_index_that_names_an_absent_tensor(tmp_path):
    write(tmp_path / "s.safetensors", {"a": entry()}, b"\0" * 8)
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": {"zz": "s.safetensors"}}))
    with pytest.raises(ImportModelError, match="puts 'zz' into s.safetensors"):
        open_checkpoint(find_checkpoint(tmp_path))


def test_shards_equal_the_single_file_and_keys_are_kept(tmp_path):
    _, weights = make_checkpoint(tmp_path / "one")
    make_checkpoint(tmp_path / "three", shards=3)
    one, three = (open_checkpoint(find_checkpoint(tmp_path / d)) for d in ("one", "three"))
    assert list(one) == list(three) == list(weights)
    table = WeightTable()
    for key, e in three.items():
        table.add_file(key, e)
    for key, w in weights.items():
        np.testing.assert_array_equal(table.view(key), w)
    assert len(table._maps) == 3


def test_several_files_without_index_are_ambiguous(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors_bytes({}))
    with pytest.raises(ImportModelError, match="2 candidates"):
        find_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({}))
    assert find_checkpoint(tmp_path).name == "model.safetensors"


def test_missing_weights_are_compile_only():
    table = WeightTable()
    table.add_missing("w", (4, 4), "bf16")
    table.add_derived("t", "transpose", {}, ["w"], (4, 4), "bf16")
    table.add_derived("m", "causal_mask", {}, [], (4, 4), "bf16")
    assert table.missing() == ["w", "t"]
    assert table.const_view("t") is None and table.describe("w")["kind"] == "missing"
    with pytest.raises(ImportModelError, match="'w'.*compile-only"):
        table.view("t")


def test_const_view_respects_mutability_and_limit():
    table = WeightTable()
    table.add_array("w", np.ones(8, np.float32))
    assert table.const_view("w").tolist() == [1.0] * 8
    assert table.const_view("w", limit_bytes=31) is None
    table["w"].mutable = True
    assert table.const_view("w") is None


def test_move_leaves_the_source_empty_and_copies_nothing():
    a, b = WeightTable(), WeightTable()
    array = np.ones(3, np.float32)
    a.add_array("w", array)
    a.move_to(b)
    assert len(a) == 0 and np.shares_memory(b.view("w"), array)
    a.add_array("w", array)
    with pytest.raises(ImportModelError, match="both tables"):
        a.move_to(b)


def test_table_errors_name_the_key(tmp_path):
    table = WeightTable()
    table.add_array("w", np.ones(3, np.float32))
    with pytest.raises(ImportModelError, match="'w' is already"):
        table.add_missing("w", (1,), "f32")
    with pytest.raises(ImportModelError, match="'v' is not in the weight table"):
        table.view("v")
    with pytest.raises(ImportModelError, match="'f'.*holds 3 bytes.*needs 8"):
        table.add(Weight("f", (2,), "f32", FileSource("p", 0, 3)))
    table.add_file("f", CheckpointEntry(str(tmp_path / "gone"), 0, 8, (2,), "f32"))
    with pytest.raises(ImportModelError, match="gone"):
        table.view("f")


def test_descriptions_resolve_to_the_same_bytes(tmp_path):
    make_checkpoint(tmp_path, dtype="bfloat16")
    table = WeightTable(tmp_path)
    for key, e in open_checkpoint(find_checkpoint(tmp_path)).items():
        table.add_file(key, e)
    key = "model.norm.weight"
    table.add_derived("wide", "convert", {}, [key], (64,), "f32")
    table.add_derived("t", "transpose", {"perm": [1, 0]}, ["lm_head.weight"], (64, 128), "bf16")
    table.add_array("c", np.ones(2, np.float32))
    for k in (key, "wide", "t"):
        d = json.loads(json.dumps(table.describe(k)))
        np.testing.assert_array_equal(resolve(d, tmp_path), table.view(k))
    assert table.describe(key)["file"] == "model.safetensors"
    for name in ("/etc/hosts", "../model.safetensors"):
        with pytest.raises(ImportModelError, match="leaves the directory"):
            resolve({**table.describe(key), "file": name}, tmp_path)
    with pytest.raises(ImportModelError, match="kind 'array'"):
        resolve(table.describe("c"))
    with pytest.raises(ImportModelError, match="damaged"):
        resolve({"kind": "file", "shape": [1], "dtype": "f32"})
    with pytest.raises(ImportModelError, match="it changed after"):
        resolve({**table.describe(key), "offset": 1 << 40}, tmp_path)


def test_rope_tables_rotate_by_the_angle():
    """cos and the signed sine, combined as y = x cos + partner sin, rotate each pair by position x frequency."""
    table = WeightTable()
    for style, partner in (("half", lambda j: (j + 4) % 8), ("interleaved", lambda j: j ^ 1)):
        for name in ("cos", "sin"):
            table.add_derived(
                f"{name}/{style}",
                f"rope_{name}",
                {"theta": 100.0, "style": style},
                [],
                (5, 8),
                "f64",
            )
        x = np.random.default_rng(0).standard_normal(8)
        swapped = x[[partner(j) for j in range(8)]]
        y = x * table.view(f"cos/{style}")[3] + swapped * table.view(f"sin/{style}")[3]
        for pair, f in enumerate(rope_frequencies(100.0, 8)):
            i, j = (pair, pair + 4) if style == "half" else (2 * pair, 2 * pair + 1)
            assert np.isclose(y[i] + 1j * y[j], (x[i] + 1j * x[j]) * np.exp(3j * f))


def test_partial_rotation_passes_the_rest_through():
    table = WeightTable()
    attrs = {"theta": 100.0, "rotary_dim": 4}
    table.add_derived("c", "rope_cos", attrs, [], (3, 8), "f32")
    table.add_derived("s", "rope_sin", attrs, [], (3, 8), "f32")
    assert (table.view("c")[:, 4:] == 1).all() and (table.view("s")[:, 4:] == 0).all()
    assert table.view("s")[1, 0] == np.float32(-np.sin(1.0)) and table.view("s")[1, 2] == np.float32(np.sin(1.0))


@pytest.mark.parametrize(("window", "offset"), [(0, 0), (2, 0), (0, 3), (3, 2)])
def test_causal_mask(window, offset):
    table = WeightTable()
    table.add_derived(
        "m",
        "causal_mask",
        {"window": window, "offset": offset, "value": -65504.0},
        [],
        (4, 7),
        "f16",
    )
    m = table.view("m")
    for i in range(4):
        for j in range(7):
            seen = j <= i + offset and (not window or i + offset - j < window)
            assert m[i, j] == (0 if seen else -65504)
    assert m.dtype == np.float16 and not m.flags.writeable


def test_wrong_expressions_are_named():
    table = WeightTable()
    table.add_derived("a", "nope", {}, [], (1,), "f32")
    table.add_array("x", np.ones((2, 3), np.float32))
    table.add_derived("b", "transpose", {}, ["x"], (2, 3), "f32")
    with pytest.raises(ImportModelError, match="'nope'"):
        table.view("a")
    with pytest.raises(ImportModelError, match=r"gave shape \[3, 2\], required \[2, 3\]"):
        table.view("b")


def test_scalar_entries_keep_rank_zero():
    table = WeightTable()
    table.add_derived("zero", "fill", {"value": -3e38}, [], (), "bf16")
    table.add_array("one", np.float32(1.0))
    assert table.view("zero").shape == table.view("one").shape == table["one"].shape == ()
    assert float(table.view("zero")) < -2.9e38


@pytest.mark.parametrize(
    ("expr", "attrs"),
    [("rope_sin", "text"), ("rope_cos", {}), ("concat", {"axis": 7}), ("slice", {"start": [0]}), ([], {})],
)
def test_expressions_with_damaged_attributes(expr, attrs) -> None:
    """They come from program files: what is wrong with them is the user's to know, not a defect."""
    with pytest.raises(ImportModelError, match="weight expression"):
        evaluate(expr, attrs, [np.zeros((2, 3), np.float32)], (4, 8), np.dtype(np.float32))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no account of memory")
def test_what_was_read_of_a_file_is_given_back(tmp_path):
    def mapped() -> int:
        lines = Path("/proc/self/smaps").read_text().split("model.safetensors")[1:]
        return sum(int(part.split("Rss:")[1].split()[0]) for part in lines)

    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes({"w": np.ones((1024, 1024), np.float32)}))
    table = WeightTable(tmp_path)
    table.add_file("w", open_checkpoint(path)["w"])
    total = table.view("w").sum()
    assert mapped() > 3000
    table.let_go()
    assert mapped() < 1000 and table.view("w").sum() == total
