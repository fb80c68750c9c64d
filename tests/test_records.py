"""Dataclasses of our own against those of the standard library: what can be asked of both has one answer."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

from tx8fast.records import dataclass

OPTIONS = [
    {},
    {"eq": False},
    {"frozen": True},
    {"frozen": True, "eq": False},
    {"slots": True},
    {"frozen": True, "slots": True},
]


def classes(**options: Any) -> list[type]:
    """The same class made by both decorators."""
    out = []
    for decorate in (dataclasses.dataclass, dataclass):

        @decorate(**options)
        class Point:
            """A point."""

            kind: ClassVar[str] = "p"
            x: int
            y: list = field(default_factory=list)
            z: str = "here"
            made: dict = field(default_factory=dict, init=False)
            unseen: int = field(default=3, repr=False, compare=False)

            def norm(self) -> int:
                return self.x

        Point.__qualname__ = "Point"
        out.append(Point)
    return out


def new_name(cls: Any) -> Any:
    """What comes of a name that the class has not."""
    one = cls(1)
    try:
        one.new = 7
    except AttributeError as err:
        return type(err).__name__, str(err)
    return one.new


def asked(cls: Any) -> list[Any]:
    """What one class answers."""

    def attempt(do: Any) -> Any:
        try:
            return do()
        except (TypeError, AttributeError) as err:
            return type(err).__name__, str(err).rpartition("Point.")[2]

    one, same, other = cls(1, [2]), cls(x=1, y=[2], unseen=9), cls(2, z="there")
    out = [
        repr(one),
        repr(other),
        one == same,
        one == other,
        one != same,
        one == 1,
        asdict(one),
        asdict(replace(one, x=5)),
    ]
    out += [
        [(f.name, f.init, f.compare) for f in fields(cls)],
        cls.__match_args__,
        cls.__doc__,
        one.norm(),
        one.unseen,
        same.unseen,
    ]
    out += [
        attempt(lambda: cls()),
        attempt(lambda: cls(1, 2, 3, 4, 5)),
        attempt(lambda: cls(1, made={})),
        attempt(lambda: cls(1, q=1)),
    ]
    out += [
        attempt(lambda: setattr(one, "x", 7)),
        attempt(lambda: delattr(one, "z")),
        one.x,
    ]
    out += [cls(1).y is cls(1).y, repr(copy.copy(other)), repr(copy.deepcopy(other)), cls.__hash__ is None]
    return out


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_class_is_that_of_the_standard_library(options: dict[str, bool]) -> None:
    standard, ours = classes(**options)
    assert asked(ours) == asked(standard)
    if options != {
        "frozen": True,
        "slots": True,
    }:  # where that of the standard library stumbles over the class it had replaced
        assert new_name(ours) == new_name(standard)


@dataclass(frozen=True)
class Key:
    """What is looked up."""

    name: str
    size: tuple[int, ...] = ()
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Longer(Key):
    """A key with one more field, and a check."""

    depth: int = 1

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth is {self.depth}")


@dataclass(frozen=True, slots=True)
class Packed:
    """What has no dictionary."""

    a: int
    b: list = field(default_factory=list)


@dataclass(frozen=True)
class Alone:
    """One field, and methods of its own."""

    a: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alone) and abs(self.a - other.a) < 2

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "alone"


def test_keys() -> None:
    table = {Key("a", (1,)): 1, Longer("a", (1,)): 2}
    assert table[Key("a", (1,), "another note")] == 1
    assert table[Longer("a", (1,))] == 2
    assert hash(Key("a")) == hash(Key("a", note="x")) != hash(Key("b"))
    assert Key("a") != Longer("a")


def test_fields_of_a_base_come_first() -> None:
    assert repr(Longer("a", (2,), "n", 3)) == "Longer(name='a', size=(2,), note='n', depth=3)"
    with pytest.raises(ValueError, match="depth is -1"):
        Longer("a", depth=-1)
    with pytest.raises(FrozenInstanceError):
        Longer("a").name = "b"  # type: ignore[misc]


@pytest.mark.parametrize("decorate", [dataclasses.dataclass, dataclass])
def test_frozen_classes_are_made_of_frozen_ones(decorate: Any) -> None:
    @decorate(frozen=True)
    class More(Key):
        depth: int = 2

    assert repr(More("a")).endswith("More(name='a', size=(), note='', depth=2)") and hash(More("a")) == hash(
        More("a", note="x")
    )
    with pytest.raises(FrozenInstanceError):
        More("a").depth = 3
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @decorate
        class _Open(Key):
            depth: int = 2


def test_methods_are_of_the_module_of_their_class() -> None:
    assert Key("a").__init__.__module__ == Longer("a").__init__.__module__ == __name__


def test_own_methods_stay() -> None:
    assert Alone(1) == Alone(2) != Alone(4)
    assert (hash(Alone(1)), repr(Alone(1))) == (7, "alone")


@pytest.mark.parametrize("made", [Key("a", (3,)), Longer("b", depth=4), Packed(1, [2]), Packed(1)], ids=repr)
def test_packed_and_unpacked(made: Any) -> None:
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made


def test_a_default_that_objects_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass
        class _Shared:
            a: list = []  # noqa: RUF012


def test_no_init_is_compiled_before_an_object_is_made() -> None:
    @dataclass(frozen=True)
    class Late:
        a: int = 0

    assert Late.__init__.__code__.co_varnames[:3] == ("self", "args", "given")
    assert Late(3).a == 3
    assert Late.__init__.__code__.co_varnames[:2] == ("_self", "a")
