"""Damaged files, made of sound ones: the same seed gives the same bytes.

`bytes_of` knows nothing of a format; the others change one or a few fields of a structure and write it again.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Random = random.Random
WORDS = (
    b"\0" * 8,
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
    b"{" * 50,
    b"[" * 3000,
    b"9" * 5000,
    b"\xf0\x28\x8c",
)
NUMBERS = (0, -1, 1, 2, 127, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**48, 2**63 - 1, 2**63, 2**64, 10**400, -(2**63))
TEXTS = ("", "x", "\0", "../x", "/dev/zero", "\ud800", "a" * 5000, "nan", "\u00e9", "model.onnx", "f32", "bf16")


def bytes_of(data: bytes, r: Random) -> bytes:
    """One to four changes of bits, bytes or stretches."""
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 4))):
        r.choice((_flip, _flip, _set, _cut, _insert, _repeat, _swap, _drop))(out, r)
    return bytes(out)


def _at(out: bytearray, r: Random) -> int:
    """Structure is mostly at the start or the end."""
    n = max(1, len(out))
    return r.choice((r.randrange(n), r.randrange(min(n, 256)), n - 1 - r.randrange(min(n, 256))))


def _flip(out: bytearray, r: Random) -> None:
    if out:
        out[_at(out, r)] ^= 1 << r.randrange(8)


def _set(out: bytearray, r: Random) -> None:
    at, word = _at(out, r), r.choice(WORDS[:4])
    out[at : at + len(word)] = word


def _cut(out: bytearray, r: Random) -> None:
    del out[_at(out, r) :]


def _insert(out: bytearray, r: Random) -> None:
    at = _at(out, r)
    out[at:at] = r.choice(WORDS)


def _repeat(out: bytearray, r: Random) -> None:
    at = _at(out, r)
    out[at:at] = out[at : at + r.randrange(1, 64)] * r.choice((1, 1, 2, 100))


def _swap(out: bytearray, r: Random) -> None:
    a, b, n = _at(out, r), _at(out, r), r.randrange(1, 64)
    out[a : a + n], out[b : b + n] = out[b : b + n], out[a : a + n]


def _drop(out: bytearray, r: Random) -> None:
    at = _at(out, r)
    del out[at : at + r.randrange(1, 64)]


# ---- trees of JSON


@contextmanager
def _deeply() -> Iterator[None]:
    """Two values that are nested 900 times, one in the other, are deeper than Python goes by itself; what reads them keeps its limit."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def tree_of(tree: Any, r: Random) -> Any:
    """A copy of a JSON-able tree with one to three changed places."""
    out = json.loads(json.dumps(tree))
    with _deeply():
        for _ in range(r.choice((1, 1, 1, 2, 3))):
            places = list(_places(out))
            if places:
                r.choice((_value, _value, _value, _delete, _rename, _double))(*r.choice(places), r)
    return out


def _places(tree: Any) -> Any:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(tree[key])


def _odd(old: Any, r: Random) -> Any:
    deep: Any = 0
    for _ in range(r.choice((5, 900))):
        deep = [deep] if r.random() < 0.5 else {"a": deep}
    numbers = [r.choice(NUMBERS), 0.5, float("inf"), float("nan"), 1e308]
    if type(old) is int:
        numbers += [old + 1, old - 1, -old, old * 2, old * 1000, old * 10**9]
    return r.choice([*numbers, *numbers, *r.sample(TEXTS, 3), None, True, [], {}, [old], {"x": old}, deep])


def _value(inside: Any, key: Any, r: Random) -> None:
    inside[key] = _odd(inside[key], r)


def _delete(inside: Any, key: Any, r: Random) -> None:
    del inside[key]


def _rename(inside: Any, key: Any, r: Random) -> None:
    if isinstance(inside, dict):
        inside[r.choice((*TEXTS, f"{key}x"))] = inside.pop(key)


def _double(inside: Any, key: Any, r: Random) -> None:
    if isinstance(inside, list):
        inside[key:key] = [inside[key]] * r.choice((1, 1, 50))


def json_text(tree: Any) -> bytes:
    """The tree as text; what JSON does not know (NaN, lone surrogates) is written all the same."""
    with _deeply():
        return json.dumps(tree).encode("utf-8", "surrogatepass")


# ---- lines of text


def text_of(data: bytes, r: Random) -> bytes:
    """Change words and numbers of a text, or its brackets and lines; now and then only bytes."""
    if r.random() < 0.25:
        return bytes_of(data, r)
    lines = data.split(b"\n")
    for _ in range(r.choice((1, 1, 2, 3))):
        r.choice((_number, _number, _word, _line, _nest))(lines, r)
    return b"\n".join(lines)


def _number(lines: list[bytes], r: Random) -> None:
    import re

    found = [(i, m.span()) for i, line in enumerate(lines) for m in re.finditer(rb"\d+", line)]
    if found:
        i, (a, b) = r.choice(found)
        new = r.choice((*(str(n).encode() for n in NUMBERS), b"9" * 5000, b"1e400", b"0x", b"?"))
        lines[i] = lines[i][:a] + new + lines[i][b:]


def _word(lines: list[bytes], r: Random) -> None:
    i, j = r.randrange(len(lines)), r.randrange(len(lines))
    here, there = lines[i].split(b" "), lines[j].split(b" ")
    here[r.randrange(len(here))] = r.choice(there)
    lines[i] = b" ".join(here)


def _line(lines: list[bytes], r: Random) -> None:
    i = r.randrange(len(lines))
    r.choice((lambda: lines.pop(i) if len(lines) > 1 else None, lambda: lines.insert(i, r.choice(lines))))()


def _nest(lines: list[bytes], r: Random) -> None:
    i = r.randrange(len(lines))
    at, n = r.randrange(len(lines[i]) + 1), r.choice((1, 1, 3000, 100_000))
    lines[i] = lines[i][:at] + r.choice((b"[", b"{", b"(", b"<", b'"', b"({", b"tuple<", b"a.")) * n + lines[i][at:]


# ---- messages of protocol buffers


def proto_of(message: Any, r: Random) -> Any:
    """A copy of a message with one to three changed fields, at any depth."""
    out = type(message)()
    out.CopyFrom(message)
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        fields = list(_fields(out))
        inside, field = r.choice(fields)
        _change(inside, field, r)
    return out


def _fields(message: Any) -> Any:
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if _repeated(field) else (value,):
                yield from _fields(inner)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _change(inside: Any, field: Any, r: Random) -> None:
    value = getattr(inside, field.name)
    if r.random() < 0.15:
        inside.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        if _repeated(field) and len(value):
            r.choice(
                (lambda: value.append(r.choice(value)), lambda: value.pop(r.randrange(len(value))), value.reverse)
            )()
        elif not _repeated(field):
            inside.ClearField(field.name)
    elif _repeated(field):
        i = r.randrange(len(value)) if len(value) else 0
        new = _scalar(field, value[i] if len(value) else 0, r)
        if len(value) and r.random() < 0.7:
            value[i] = new
        else:
            value.append(new)
    else:
        setattr(inside, field.name, _scalar(field, value, r))


def _scalar(field: Any, old: Any, r: Random) -> Any:
    if field.type == field.TYPE_STRING:
        return r.choice([t for t in TEXTS if t != "\ud800"] + [str(n) for n in NUMBERS])
    if field.type == field.TYPE_ENUM:
        return r.choice(field.enum_type.values).number
    if field.type == field.TYPE_BYTES:
        return bytes_of(old, r)
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return r.choice((0.0, -1.0, float("inf"), float("nan"), 1e30))
    choices: list[Callable[[], int]] = [
        lambda: r.choice(NUMBERS),
        lambda: int(old) + 1,
        lambda: -int(old),
        lambda: r.randrange(30),
    ]
    n = r.choice(choices)()
    wide = field.type in (field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_SINT64)
    low, high = (
        (0, 2**32 - 1) if field.type == field.TYPE_UINT32 else (-(2**63), 2**63 - 1) if wide else (-(2**31), 2**31 - 1)
    )
    if field.type == field.TYPE_UINT64:
        low, high = 0, 2**64 - 1
    return max(low, min(high, n))
