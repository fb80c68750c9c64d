"""GGUF files: lazy opening, validation, packed blocks against the format's own reference."""

import struct

import ml_dtypes
import numpy as np
import pytest

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.weights import WeightTable
from tx8fast.weights.gguf import add_gguf, open_gguf
from tx8fast.weights.gguf_blocks import BLOCKS, unpack_blocks
from tx8fast.weights.gguf_header import Skipped

RNG = np.random.default_rng(0)


def random_blocks(name, n=9):
    """Any bytes are numbers, but scales and offsets must be finite."""
    blocks = RNG.integers(0, 256, (n, BLOCKS[name][1]), dtype=np.uint8)
    places = {
        "Q4_1": (0, 2),
        "Q5_1": (0, 2),
        "Q4_K": (0, 2),
        "Q5_K": (0, 2),
        "Q6_K": (208,),
        "Q2_K": (80, 82),
        "Q3_K": (108,),
        "MXFP4": (),
    }.get(name, (0,))
    for at in places:
        blocks[:, at : at + 2] = RNG.uniform(-2, 2, (n, 1)).astype("<f2").view(np.uint8)
    return blocks


def test_eight_bit_and_four_bit_blocks_by_hand():
    """Scale 0.5; eight-bit numbers 0..31; four-bit numbers: byte i holds i below and 15 - i above."""
    scale = np.array([0.5], "<f2").view(np.uint8)
    eight = np.concatenate([scale, np.arange(32, dtype=np.uint8)])[None]
    assert unpack_blocks([eight], {"format": "Q8_0"}, (32,)).tolist() == [0.5 * i for i in range(32)]
    four = np.concatenate([scale, np.array([i | (15 - i) << 4 for i in range(16)], np.uint8)])[None]
    expected = [0.5 * (i - 8) for i in range(16)] + [0.5 * (15 - i - 8) for i in range(16)]
    assert unpack_blocks([four], {"format": "Q4_0"}, (2, 16)).reshape(-1).tolist() == expected


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_equal_the_reference(name):
    gguf = pytest.importorskip("gguf")
    blocks = random_blocks(name)
    kind = getattr(gguf.GGMLQuantizationType, name)
    assert gguf.GGML_QUANT_SIZES[kind] == BLOCKS[name][:2]
    expected = gguf.quants.dequantize(blocks, kind)
    np.testing.assert_array_equal(unpack_blocks([blocks], {"format": name}, expected.shape), expected)


def test_wrong_blocks_are_diagnosed():
    with pytest.raises(ImportModelError, match="unknown block format 'Q9'"):
        unpack_blocks([np.zeros((1, 34), np.uint8)], {"format": "Q9"}, (32,))
    with pytest.raises(ImportModelError, match=r"\[1, 34\] bytes of Q8_0 blocks .* do not hold \[33\]"):
        unpack_blocks([np.zeros((1, 34), np.uint8)], {"format": "Q8_0"}, (33,))


@pytest.fixture
def model(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "m.gguf"
    tensors = {
        "a": RNG.standard_normal((3, 5)).astype(np.float32), "b": RNG.standard_normal((2, 2, 4)).astype(np.float16),
        "h": RNG.standard_normal((4, 8)).astype(ml_dtypes.bfloat16), "i": np.arange(6, dtype=np.int32),
    }  # fmt: skip
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("answer", 42)
    for name, array in tensors.items():
        if array.dtype == ml_dtypes.bfloat16:
            writer.add_tensor(name, array.view(np.uint8).reshape(4, 16), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, array)
    wide = RNG.standard_normal((4, 64)).astype(np.float32)
    for name in ("Q8_0", "Q4_0"):
        kind = getattr(gguf.GGMLQuantizationType, name)
        writer.add_tensor(name, gguf.quants.quantize(wide, kind), raw_dtype=kind)
        tensors[name] = gguf.quants.dequantize(gguf.quants.quantize(wide, kind), kind)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    return path, tensors


def table_of(path, dtype="f32"):
    table = WeightTable(path.parent)
    for name, entry in open_gguf(path)[1].items():
        assert add_gguf(table, name, entry, dtype) == name
    return table


def test_tensors_keep_names_shapes_and_bytes(model):
    path, tensors = model
    table = table_of(path)
    assert [k for k in table.keys() if "#" not in k] == list(tensors)
    assert not table._maps, "nothing is read before somebody looks"
    for name, expected in tensors.items():
        found = table.view(name)
        assert found.shape == expected.shape and found.dtype == expected.dtype and not found.flags.writeable
        np.testing.assert_array_equal(found, expected)
    assert not table.view("a").flags.owndata and table["h"].dtype == "bf16"
    assert table["Q4_0#q4_0"].nbytes == 8 * 18 and table["Q4_0"].dtype == "f32"
    again = table_of(path, "bf16")
    np.testing.assert_array_equal(again.view("Q8_0"), tensors["Q8_0"].astype(ml_dtypes.bfloat16))


def test_metadata_is_what_the_writer_was_given(model):
    metadata, _ = open_gguf(model[0])
    assert metadata == {"general.architecture": "llama", "answer": 42}


def test_long_arrays_are_counted_not_kept(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(str(tmp_path / "v.gguf"), "llama")
    writer.add_token_list([f"token {i}" for i in range(5000)])
    writer.add_token_types([1] * 5000)
    writer.add_array("short", [1, 2, 3])
    writer.add_tensor("w", np.arange(3, dtype=np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    metadata, entries = open_gguf(tmp_path / "v.gguf")
    assert metadata["tokenizer.ggml.tokens"] == metadata["tokenizer.ggml.token_type"] == Skipped(5000)
    assert metadata["short"] == [1, 2, 3]
    assert entries["w"].shape == (3,)


def test_descriptions_name_the_file(model):
    from tx8fast.weights import resolve

    path, tensors = model
    np.testing.assert_array_equal(resolve(table_of(path).describe("Q4_0"), path.parent), tensors["Q4_0"])


def test_every_truncation_is_diagnosed(model):
    path, _ = model
    data = path.read_bytes()
    last = max(e.offset + e.nbytes for e in open_gguf(path)[1].values())
    for end in [*range(0, last, max(1, last // 60)), last - 1]:
        path.write_bytes(data[:end])
        with pytest.raises(ImportModelError, match="m.gguf"):
            open_gguf(path)


def test_damage_is_diagnosed(model, tmp_path):
    path, _ = model
    with pytest.raises(ImportModelError, match="gone.gguf"):
        open_gguf(tmp_path / "gone.gguf")
    path.write_bytes(b"GGML" + path.read_bytes()[4:])
    with pytest.raises(ImportModelError, match="no GGUF file"):
        open_gguf(path)


def kv(key, kind, payload):
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + payload


def tensor(name, shape, form=0, offset=0):
    return struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name, len(shape), *shape, form, offset)


HUGE = 1 << 60
HOSTILE = {
    "an array of 2^60 numbers": ([kv(b"a", 9, struct.pack("<IQ", 0, HUGE))], [], 1, 0, "needs"),
    "an array of 2^60 texts": ([kv(b"a", 9, struct.pack("<IQ", 8, HUGE))], [], 1, 0, "more than the file has room for"),
    "an array of arrays": ([kv(b"a", 9, struct.pack("<IQ", 9, 1))], [], 1, 0, "array of type 9"),
    "a text of 2^60 bytes": ([kv(b"a", 8, struct.pack("<Q", HUGE))], [], 1, 0, "needs 1152921504606846976 bytes"),
    "2^60 keys": ([], [], HUGE, 0, "truncated, damaged"),
    "2^60 tensors": ([], [], 0, HUGE, "truncated, damaged"),
    "a key twice": ([kv(b"a", 0, b"1")] * 2, [], 2, 0, "'a' appears twice"),
    "an unknown type": ([kv(b"a", 77, b"1")], [], 1, 0, "unknown type 77"),
    "a key that is no text": ([kv(b"\xff", 0, b"1")], [], 1, 0, "not UTF-8"),
    "alignment 0": ([kv(b"general.alignment", 4, bytes(4))], [], 1, 0, "'general.alignment' is 0"),
    "a tensor twice": ([], [tensor(b"t", (1,))] * 2, 0, 2, "tensor 't' appears twice"),
    "nine dimensions": ([], [tensor(b"t", (1,) * 9)], 0, 1, "has 9 dimensions"),
    "2^180 elements": ([], [tensor(b"t", (HUGE, HUGE, HUGE))], 0, 1, "truncated"),
    "bytes past the end": ([], [tensor(b"t", (4,), 0, 1 << 63)], 0, 1, "truncated"),
    "overlap": ([], [tensor(b"t", (4,)), tensor(b"u", (4,), 0, 8)], 0, 2, "'u' overlaps 't' by 8 bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_diagnosed_at_once(tmp_path, name):
    keys, tensors, n_keys, n_tensors, message = HOSTILE[name]
    path = tmp_path / "h.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + b"".join(keys + tensors) + bytes(64))
    with pytest.raises(ImportModelError, match=message):
        open_gguf(path)


@pytest.mark.parametrize(("version", "message"), [(1, "version 1 is not read"), (3 << 24, "big-endian")])
def test_other_versions_are_refused(tmp_path, version, message):
    path = tmp_path / "h.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0) + bytes(64))
    with pytest.raises(UnsupportedError, match=message):
        open_gguf(path)


def test_formats_that_nothing_unpacks_are_listed(tmp_path):
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType.IQ2_XXS
    writer = gguf.GGUFWriter(str(tmp_path / "q.gguf"), "llama")
    writer.add_tensor("w", np.zeros((2, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), raw_dtype=kind)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    with pytest.raises(UnsupportedError, match=r"formats IQ2_XXS \(first 'w'\) are not supported; supported are F32"):
        open_gguf(tmp_path / "q.gguf")
