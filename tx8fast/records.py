"""Dataclasses that cost a tenth of their time when a module is loaded, and properties that are worked out once, without a lock.

May import: the standard library. Must not: know what is recorded.

The standard decorator writes and compiles the text of up to six methods of every class (300 us for a frozen one); a command
loads over two hundred classes and calls few of their methods. Here the fields are found by the standard decorator, so that
`fields`, `replace` and `asdict` work; what compares and prints reads them by name, and the text of `__init__` is compiled when
the first object is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801
        """That of the standard library, without the lock that it takes before Python 3.12: tilings ask for tens of thousands."""

        def __init__(self, made: Callable[[Any], Any]) -> None:
            self.made, self.__doc__ = made, made.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.made(instance)
            return value


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(*, frozen: bool = False, eq: bool = True, slots: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Any = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
    """Make a class of annotated fields, as the decorator of the standard library of the same name and options does.

    Raises what that one raises, FrozenInstanceError where a field of a frozen object is set."""
    return (lambda c: _made(c, frozen, eq, slots)) if cls is None else _made(cls, frozen, eq, slots)


def _made(cls: Any, frozen: bool, eq: bool, slots: bool) -> Any:
    own = {*cls.__dict__}  # a method that the class has itself stays
    cls.__doc__ = cls.__doc__ or cls.__name__  # or its signature would be worked out
    # of a frozen class a frozen one is made, by this decorator as by that of the standard library
    inherits = any(
        getattr(base, "__dataclass_params__", None) and base.__dataclass_params__.frozen for base in cls.__mro__[1:]
    )
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, frozen=frozen and inherits)(cls)
    cls.__dataclass_params__.frozen = frozen
    methods: dict[str, Any] = {"__init__": _first_init(cls, frozen), "__repr__": _repr_of(cls)}
    if eq:
        values = _values([f.name for f in fields(cls) if f.compare])
        hashed = _values([f.name for f in fields(cls) if (f.compare if f.hash is None else f.hash)])
        methods["__eq__"] = _eq_of(values)
        methods["__hash__"] = (lambda self: hash(hashed(self))) if frozen else None
    if frozen:
        methods |= _guards(cls)
    if frozen and slots:
        methods["__setstate__"] = _set_state
    for name, method in methods.items():
        if name in own and not (
            name == "__hash__" and cls.__dict__[name] is None
        ):  # None where a class has its own __eq__
            continue
        if method is not None:
            method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
    return cls


def _values(names: list[str]) -> Callable[[Any], tuple]:
    """Return what reads these fields of an object, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that puts the real one in its place."""

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        made = _init_of(cls, frozen)
        cls.__init__ = made  # type: ignore[misc]
        made(self, *args, **given)

    return __init__


def _init_of(cls: type, frozen: bool) -> Callable[..., None]:
    """Return the `__init__` that sets the fields and calls `__post_init__`, if there is one."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING, "__name__": cls.__module__}
    taken, body = [], []
    for f in fields(cls):  # type: ignore[arg-type]
        value = f.name
        if f.default_factory is not MISSING:
            names[f"_make_{f.name}"] = f.default_factory
            value = f"_make_{f.name}() if {f.name} is _missing else {f.name}" if f.init else f"_make_{f.name}()"
            default = "=_missing"
        elif f.default is not MISSING:
            names[f"_default_{f.name}"] = f.default
            default = f"=_default_{f.name}"
            value = f.name if f.init else f"_default_{f.name}"
        elif f.init:
            default = ""
        else:
            continue
        taken += [f"{f.name}{default}"] if f.init else []
        body.append(f"_set(_self, {f.name!r}, {value})" if frozen else f"_self.{f.name} = {value}")
    body += ["_self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    exec(f"def __init__({', '.join(['_self', *taken])}):\n " + "\n ".join(body or ["pass"]), names)
    names["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return names["__init__"]


def _repr_of(cls: type) -> Callable[[Any], str]:
    shown = [f.name for f in fields(cls) if f.repr]  # type: ignore[arg-type]

    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in shown])})"

    return __repr__


def _eq_of(values: Callable[[Any], tuple]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _guards(cls: type) -> dict[str, Callable[..., None]]:
    """Return what keeps the fields of an object as they are. An object of a subclass may have others that change."""
    known = frozenset([f.name for f in fields(cls)])  # type: ignore[arg-type]

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in known:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in known:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _set_state(self: Any, state: Any) -> None:
    """Set the fields of an object that was packed, of a class with slots."""
    for part in state if isinstance(state, tuple) else (state,):
        for name, value in (part or {}).items():
            object.__setattr__(self, name, value)
