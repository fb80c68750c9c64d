"""GGUF files: lazy opening, validation, packed blocks against the format's own reference."""

import builtins

import ml_dtypes
import numpy as np
import pytest

from tx8fast.errors import ConfigError, ImportModelError, UnsupportedError
from tx8fast.weights import WeightTable
from tx8fast.weights.gguf import add_gguf, open_gguf
from tx8fast.weights.gguf_blocks import BLOCKS, unpack_blocks

pytestmark = pytest.mark.feature("IR-26")
RNG = np.random.default_rng(0)


def random_blocks(name, n=9):
    """Any bytes are numbers, but scales and offsets must be finite."""
    blocks = RNG.integers(0, 256, (n, BLOCKS[name][1]), dtype=np.uint8)
    places = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}.get(name, (0,))
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


def test_tensors_keep_names_shapes_and_bytes(model):
    path, tensors = model
    table = WeightTable(path.parent)
    assert add_gguf(table, open_gguf(path)) == list(tensors)
    assert not table._maps, "nothing is read before somebody looks"
    for name, expected in tensors.items():
        found = table.view(name)
        assert found.shape == expected.shape and found.dtype == expected.dtype and not found.flags.writeable
        np.testing.assert_array_equal(found, expected)
    assert not table.view("a").flags.owndata and table["h"].dtype == "bf16"
    assert table["Q4_0#q4_0"].nbytes == 8 * 18 and table["Q4_0"].dtype == "f32"
    again = WeightTable()
    add_gguf(again, open_gguf(path), "bf16")
    np.testing.assert_array_equal(again.view("Q8_0"), tensors["Q8_0"].astype(ml_dtypes.bfloat16))


def test_descriptions_name_the_file(model):
    from tx8fast.weights import resolve

    path, tensors = model
    table = WeightTable(path.parent)
    add_gguf(table, open_gguf(path))
    np.testing.assert_array_equal(resolve(table.describe("Q4_0"), path.parent), tensors["Q4_0"])


def test_every_truncation_is_diagnosed(model):
    path, _ = model
    data = path.read_bytes()
    last = max(e.offset + e.nbytes for e in open_gguf(path).values())
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
    with pytest.raises(ConfigError, match="become floats, found 'i8'"):
        add_gguf(WeightTable(), {}, "i8")


def test_formats_that_nothing_unpacks_are_listed(tmp_path):
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType.Q2_K
    writer = gguf.GGUFWriter(str(tmp_path / "q.gguf"), "llama")
    writer.add_tensor("w", np.zeros((2, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), raw_dtype=kind)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    with pytest.raises(UnsupportedError, match=r"formats Q2_K \(first 'w'\) are not supported; supported are F32"):
        open_gguf(tmp_path / "q.gguf")


def test_without_the_package_the_message_says_what_to_install(monkeypatch, tmp_path):
    real = builtins.__import__

    def no_gguf(name, *args, **kw):
        if name == "gguf":
            raise ImportError(name)
        return real(name, *args, **kw)

    monkeypatch.setattr(builtins, "__import__", no_gguf)
    with pytest.raises(ConfigError, match=r"install tx8fast\[gguf\]"):
        open_gguf(tmp_path / "m.gguf")
