"""Quantised checkpoints: what `quantization_config` says, and the expressions that give the float weight back.

May import: weights, frontend.hf.reader. Must not: read tensor bytes.

The weight of a module becomes a derived entry in the model's float format over the stored tensors of that
module; modules that the quantiser left alone are recognised by their float tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tx8fast.frontend.hf.reader import Reader
from tx8fast.weights import CheckpointEntry, WeightTable
from tx8fast.weights.gguf import PLAIN, GgufEntry, add_gguf

METHODS = ("gptq", "awq", "auto-round", "fp8", "fbgemm_fp8", "bitsandbytes", "compressed-tensors", "modelopt", "mxfp4")
_SYNONYMS = {
    "auto_round": "auto-round",
    "intel/auto-round": "auto-round",
    "modelopt_fp4": "modelopt",
    "modelopt_fp8": "modelopt",
}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
FLOATS = ("bf16", "f16", "f32")
Scheme = dict[str, Any]
Entries = Mapping[str, CheckpointEntry | GgufEntry]


def read_scheme(r: Reader) -> Scheme | None:
    """Return method, bits and conventions; note what is unsupported."""
    raw = r.raw.get("quantization_config") or r.raw.get("compression_config")
    if not raw:
        return None
    if not isinstance(raw, dict):
        r.problems.append(f"key 'quantization_config' is {raw!r}, required: an object")
        return None
    method = raw.get("quant_method", "bitsandbytes" if raw.get("load_in_8bit") else None)
    q = Reader(raw)
    method = _SYNONYMS.get(method, method) if isinstance(method, str) else method
    if method == "auto-round":  # stored as one of two others
        packing = str(raw.get("packing_format", "auto_round:auto_gptq"))
        method = "awq" if "awq" in packing else "gptq" if "gptq" in packing else packing
    scheme: Scheme = {"method": method}
    if method == "gptq":
        q.fixed("bits", 2, 4, 8)
        q.fixed("checkpoint_format", "gptq", "gptq_v2")
        scheme |= {
            "bits": raw.get("bits", 4),
            "offset": 0 if raw.get("checkpoint_format") == "gptq_v2" else 1,
            "group": _group(q, raw),
        }
    elif method == "awq":
        q.fixed("bits", 4)
        q.fixed("version", "gemm", "GEMM")
        if "packing_format" not in raw:
            q.fixed("zero_point", True)
        scheme |= {"bits": 4, "group": _group(q, raw)}
    elif method in ("fp8", "fbgemm_fp8"):
        q.fixed("fmt", "e4m3")
        block = raw.get("weight_block_size")
        if block is not None and (
            type(block) is not list or len(block) != 2 or any(type(n) is not int or n < 1 for n in block)
        ):
            q.problems.append(f"key 'weight_block_size' is {block!r}, required: two whole numbers >= 1")
        scheme |= {"block": block}
    elif method == "mxfp4":
        pass  # the format has no variants
    elif method == "bitsandbytes":
        if raw.get("load_in_4bit") or raw.get("_load_in_4bit"):
            q.fixed("bnb_4bit_quant_type", "nf4", "fp4")
            scheme["book"] = raw.get("bnb_4bit_quant_type", "fp4")
    elif method == "modelopt":
        q.fixed("quant_algo", "FP8", "NVFP4")
    elif method == "compressed-tensors":
        q.fixed(
            "format", "int-quantized", "pack-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized"
        )
        groups = raw.get("config_groups")
        found = [g.get("weights") for g in groups.values() if isinstance(g, dict)] if isinstance(groups, dict) else []
        bits = {w.get("num_bits", 8) for w in found if isinstance(w, dict)}
        if len(bits) > 1 or not bits <= {4, 8}:
            q.problems.append(
                f"'config_groups' quantise weights to {sorted(map(str, bits))} bits, supported: 4 or 8, one for all"
            )
        scheme |= {"bits": next(iter(bits), 8)}
    else:
        q.problems.append(f"key 'quant_method' is {method!r}, required: one of {', '.join(METHODS)}")
    r.problems += [f"quantization_config: {p}" for p in q.problems]
    return scheme


def _group(q: Reader, raw: dict[str, Any]) -> int | None:
    """Return how many input features share a scale, None if all do or nothing is said."""
    size = raw.get("group_size")
    if size is not None and (type(size) is not int or size == 0 or size < -1):
        q.problems.append(f"key 'group_size' is {size!r}, required: a whole number >= 1, or -1 for all")
        return None
    return None if size == -1 else size


def add_float(
    table: WeightTable,
    entries: Entries,
    scheme: Scheme,
    key: str,
    shape: tuple[int, ...],
    dtype: str,
) -> list[str] | None:
    """Add the float weight "%<key>" of the quantised module that stores `key`; return problems, None if it is not quantised.

    shape: [out, in]. Raises nothing: what does not fit is described."""
    if scheme["method"] == "gguf":
        return _block_float(table, entries, key, shape, dtype)
    if scheme["method"] == "mxfp4":
        return _blocks_of_32(table, entries, key, shape, dtype)
    if len(shape) != 2 or not key.endswith(".weight"):
        return None
    module = _Module(table, entries, key.removesuffix("weight"), shape, dtype)
    method = scheme["method"]
    if method in ("gptq", "awq"):
        made = module.packed_words(scheme)
    elif module.has("weight_global_scale") or module.has("weight_scale_2"):
        made = module.four_bit_floats()
    elif scheme.get("book") and module.has("weight.absmax"):
        made = module.booked(scheme["book"])
    elif method == "compressed-tensors" and module.has("weight_packed"):
        made = module.packed_rows(scheme)
    else:
        made = module.scaled(scheme)
    return module.problems if made or module.problems else None


def _blocks_of_32(
    table: WeightTable, entries: Entries, key: str, shape: tuple[int, ...], dtype: str
) -> list[str] | None:
    """Four-bit floats [.., blocks, 16 bytes] with an exponent per block of the last dimension (OCP Microscaling Formats v1.0)."""
    if key + "_blocks" not in entries:
        return None
    wide = _Module(table, entries, key, shape, dtype)
    *lead, last = shape
    blocks = wide.take("_blocks", ((*lead, last // 32, 16),), ("u8",))
    scales = wide.take("_scales", ((*lead, last // 32),), ("u8",))
    wide.derive("", "mxfp4", {"dtype": dtype}, [blocks, scales], shape, dtype)
    return wide.problems


def _block_float(
    table: WeightTable, entries: Entries, key: str, shape: tuple[int, ...], dtype: str
) -> list[str] | None:
    """Bring a tensor of a GGUF file, which is packed or has another float format than the model, to the latter."""
    entry = entries.get(key)
    if not isinstance(entry, GgufEntry) or entry.shape != shape or entry.dtype == dtype:
        return None
    if entry.format in PLAIN:
        if entry.dtype in FLOATS:
            table.add_derived("%" + key, "convert", {}, [add_gguf(table, key, entry, dtype)], shape, dtype)
            return []
        return None
    add_gguf(table, "%" + key, entry, dtype)
    return []


class _Module:
    """The stored tensors `prefix`* of one linear layer."""

    def __init__(self, table: WeightTable, entries: Entries, prefix: str, shape: tuple[int, ...], dtype: str) -> None:
        self.table, self.entries, self.prefix, self.shape, self.dtype = (
            table,
            entries,
            prefix,
            shape,
            dtype,
        )
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        return self.prefix + name in self.entries

    def take(self, name: str, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> str:
        """Put a stored tensor into the table; note if its shape or type is none of those expected. -1 = any size."""
        key = self.prefix + name
        entry = self.entries.get(key)
        if entry is None:
            self.problems.append(f"'{key}' is absent, required shape {list(shapes[0])}")
            return key
        fits = any(len(s) == len(entry.shape) and all(a in (-1, b) for a, b in zip(s, entry.shape)) for s in shapes)
        if not fits:
            self.problems.append(
                f"'{key}' has shape {list(entry.shape)}, required {' or '.join(str(list(s)) for s in shapes)}"
            )
        elif entry.dtype not in dtypes:
            self.problems.append(f"'{key}' has dtype {entry.dtype}, required one of {', '.join(dtypes)}")
        elif key not in self.table:
            self.table.add_file(key, entry)
        return key

    def derive(
        self,
        name: str,
        expr: str,
        attrs: dict[str, Any],
        inputs: list[str],
        shape: tuple[int, ...],
        dtype: str,
    ) -> str:
        key = "%" + self.prefix + name
        if not self.problems and key not in self.table:
            self.table.add_derived(key, expr, attrs, inputs, shape, dtype)
        return key

    def weight(self, inputs: list[str], **attrs: Any) -> bool:
        self.derive("weight", "dequantize", {"dtype": self.dtype, **attrs}, inputs, self.shape, self.dtype)
        return True

    def groups(self, name: str, rows_first: bool) -> int:
        """Return how many groups of input features have a scale."""
        entry = self.entries.get(self.prefix + name)
        return entry.shape[0 if rows_first else -1] if entry is not None and len(entry.shape) == 2 else 1

    def packed_words(self, scheme: Scheme) -> bool:
        """GPTQ packs input features, AWQ output features; both keep [in, out] and one scale per group of inputs."""
        if not self.has("qweight"):
            return False
        out, inner = self.shape
        bits, gptq = scheme["bits"], scheme["method"] == "gptq"
        per = 32 // bits
        n = self.groups("scales", True)
        order = {} if gptq else {"order": list(AWQ_ORDER)}
        words = (-(-inner // per), out) if gptq else (inner, -(-out // per))
        q = self.take("qweight", (words,), ("i32",))
        zeros = self.take("qzeros", ((n, -(-out // per)),), ("i32",))
        scales = self.take("scales", ((n, out),), FLOATS)
        q = self.derive(
            "q",
            "unpack_bits",
            {"bits": bits, "axis": 0 if gptq else 1, **order},
            [q],
            (inner, out),
            "u8",
        )
        z = self.derive(
            "zero",
            "unpack_bits",
            {"bits": bits, "axis": 1, "offset": scheme.get("offset", 0), **order},
            [zeros],
            (n, out),
            "u8",
        )
        inputs, group = [q, scales, z], scheme["group"]
        if gptq and self.has("g_idx"):
            inputs.append(self.take("g_idx", ((inner,),), ("i32", "i64")))
            return self.weight(inputs, zero=True, groups=True, transpose=True)
        if group is not None and n != -(-inner // group):
            self.problems.append(
                f"'{self.prefix}scales' has {n} groups, required {-(-inner // group)} of group_size {group} for {inner} input features"
            )
        elif group is None and inner % n:
            self.problems.append(f"'{self.prefix}scales' has {n} groups, which do not divide {inner} input features")
        blocks = {} if group is None or n == 1 else {"block": [group, 1]}  # the last group may have fewer
        return self.weight(inputs, zero=True, groups=False, transpose=True, **blocks)

    def packed_rows(self, scheme: Scheme) -> bool:
        """compressed-tensors: input features packed in words of a row, signed values stored from the lowest up."""
        out, inner = self.shape
        bits = scheme["bits"]
        words = self.take("weight_packed", ((out, -(-inner * bits // 32)),), ("i32",))
        q = self.derive("q", "unpack_bits", {"bits": bits, "axis": 1}, [words], self.shape, "u8")
        n = self.groups("weight_scale", False)
        scale = self.take("weight_scale", ((out, n),), FLOATS)
        if self.has("weight_g_idx"):
            self.problems.append(f"'{self.prefix}weight_g_idx' is present, supported: groups of neighbours")
        if not self.has("weight_zero_point"):
            return self.weight([q, scale], midpoint=1 << (bits - 1))
        # stored from the lowest up, too, so that nothing is left to subtract; packed along the rows
        zeros = self.take("weight_zero_point", ((-(-out * bits // 32), n),), ("i32",))
        zeros = self.derive("zero", "unpack_bits", {"bits": bits, "axis": 0}, [zeros], (out, n), "u8")
        return self.weight([q, scale, zeros], zero=True)

    def four_bit_floats(self) -> bool:
        """NVFP4: two numbers a byte, a scale in eight bits per 16 of a row, and one for all, by which these are divided (compressed-tensors)
        or multiplied (modelopt)."""
        out, inner = self.shape
        divide = self.has("weight_global_scale")
        codes = self.take("weight_packed" if divide else "weight", ((out, inner // 2),), ("u8",))
        scales = self.take("weight_scale", ((out, inner // 16),), ("f8e4m3fn",))
        whole = self.take("weight_global_scale" if divide else "weight_scale_2", ((), (1,)), ("f32",))
        self.derive(
            "weight",
            "fp4_groups",
            {"dtype": self.dtype, "divide": divide},
            [codes, scales, whole],
            self.shape,
            self.dtype,
        )
        return True

    def booked(self, book: str) -> bool:
        """bitsandbytes in four bits: numbers of a table, times the largest magnitude of a block, which may be packed itself."""
        out, inner = self.shape
        nested = self.has("weight.nested_absmax")
        inputs = [
            self.take("weight", ((-(-out * inner // 2), 1),), ("u8",)),
            self.take("weight.quant_map", ((16,),), ("f32",)),
            self.take("weight.absmax", ((-1,),), ("u8",) if nested else ("f32",)),
            self.take(f"weight.quant_state.bitsandbytes__{book}", ((-1,),), ("u8",)),
        ]
        if nested:
            inputs += [
                self.take("weight.nested_quant_map", ((256,),), ("f32",)),
                self.take("weight.nested_absmax", ((-1,),), ("f32",)),
            ]
        self.derive("weight", "code_book", {"dtype": self.dtype}, inputs, self.shape, self.dtype)
        return True

    def scaled(self, scheme: Scheme) -> bool:
        """A matrix of 8-bit numbers and scales: per tensor, row, group of columns, or block of both."""
        stored = self.entries.get(self.prefix + "weight")
        if stored is None or stored.dtype in FLOATS:
            return False
        out, inner = self.shape
        q = self.take("weight", (self.shape,), ("i8", "f8e4m3fn", "f8e5m2"))
        if self.has("SCB"):
            return self.weight([q, self.take("SCB", ((out,), (out, 1)), FLOATS)], gain=1.0 / 127.0)
        block = scheme.get("block")
        name = "weight_scale_inv" if self.has("weight_scale_inv") else "weight_scale"
        scalar = ((), (1,), (1, 1), (out,), (out, 1), (out, self.groups(name, False)))
        blocks = tuple(-(-n // b) for n, b in zip(self.shape, block, strict=True)) if block else ()
        scale = self.take(name, (blocks,) if block else scalar, FLOATS)
        zeros = [self.take("weight_zero_point", scalar, ("i8",))] if self.has("weight_zero_point") else []
        more = {"zero": True} if zeros else {}
        return self.weight([q, scale, *zeros], **({"block": list(block)} if block else {}), **more)
