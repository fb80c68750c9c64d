"""Element-wise functions in Python as kernels: what a function does to an element, step by step.

May import: the standard library, numpy, numerics.steps, errors, files. Must not: know the graph, or load a file that nobody named.

A function is called once with stand-ins for its tensors. They take what numpy's element-wise functions and Python's operators do to
them and refuse everything else, with the line. So the same function also works on arrays, and under compilers of Python.
"""

from __future__ import annotations

import inspect
import linecache
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tx8fast.errors import ConfigError, ImportModelError, Tx8Error
from tx8fast.files import read_input
from tx8fast.numerics.steps import MOST_STEPS, Step, parse_steps, steps_text
from tx8fast.records import dataclass

MOST_POWER = 16
MAX_FILE_BYTES = 1 << 20
#: numpy's name -> kind of step
_NUMBERS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "maximum": "max", "minimum": "min",
    "negative": "neg", "absolute": "abs", "fabs": "abs", "exp": "exp", "log": "log", "sqrt": "sqrt", "square": "square",
    "reciprocal": "recip", "sin": "sin", "cos": "cos", "tanh": "tanh",
}  # fmt: skip
_COMPARISONS = {
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "equal": "eq",
    "not_equal": "ne",
}
#: of truth values, which are 1 and 0
_TRUTHS = {
    "logical_and": "mul",
    "bitwise_and": "mul",
    "logical_or": "add",
    "bitwise_or": "add",
    "logical_xor": "ne",
    "bitwise_xor": "ne",
    "logical_not": "eq",
    "invert": "eq",
}
_NEGATIONS, _SUMS = ("logical_not", "invert"), ("logical_or", "bitwise_or")
_HINTS = {
    "expm1": "exp(x) - 1",
    "log1p": "log(1 + x)",
    "exp2": "exp(0.6931471805599453 * x)",
    "sign": "where(x > 0, 1, where(x < 0, -1, 0))",
    "tan": "sin(x) / cos(x)",
    "power": "exp(y * log(x)), or whole exponents",
}


@dataclass
class Trace:
    """What a function does: `outputs` are places of values, behind `n` arguments the steps."""

    n: int
    file: str
    name: str
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def add(self, kind: str, operands: Sequence[Any], truth: bool = False) -> Element:
        if len(self.steps) == MOST_STEPS:
            raise self.refused(f"it takes more than {MOST_STEPS} steps")
        given = tuple(o.place if isinstance(o, Element) else float(o) for o in operands)
        self.steps.append(Step(kind, given))
        return Element(self, self.n + len(self.steps) - 1, truth)

    def text(self, output: int) -> str:
        """Return the steps that result `output` needs, as `numerics.steps` reads them. Raises ImportModelError if it takes too many
        arguments, or is an argument as it came."""
        needed, left = set(), [self.outputs[output]]
        while left:
            place = left.pop()
            if place >= self.n and place not in needed:
                needed.add(place)
                left += [o for o in self.steps[place - self.n].operands if type(o) is int]
        places = {k: k for k in range(self.n)} | {k: self.n + i for i, k in enumerate(sorted(needed))}
        steps = [self.steps[k - self.n] for k in sorted(needed)] or [Step("max", (self.outputs[output],) * 2)]
        text = steps_text([Step(s.kind, tuple(places[o] if type(o) is int else o for o in s.operands)) for s in steps])
        try:
            parse_steps(text, self.n)
        except ConfigError as e:
            raise ImportModelError(f"kernel '{self.name}' ({self.file}): {e}") from e
        return text

    def refused(self, why: str) -> ImportModelError:
        """Return the error with the line of the kernel's file that is being executed."""
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        if frame is None:
            return ImportModelError(f"kernel '{self.name}' ({self.file}): {why}")
        line = linecache.getline(self.file, frame.f_lineno).strip()
        return ImportModelError(f"kernel '{self.name}' ({self.file}, line {frame.f_lineno}, `{line}`): {why}")


class Element(NDArrayOperatorsMixin):
    """Stands for any element of a tensor while a kernel is traced."""

    __slots__ = ("trace", "place", "truth")
    __array_priority__ = 1000

    def __init__(self, trace: Trace, place: int, truth: bool) -> None:
        self.trace, self.place, self.truth = trace, place, truth

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **more: Any) -> Element:
        name, trace = ufunc.__name__, self.trace
        if method != "__call__" or more:
            raise trace.refused(
                f"numpy.{name} with {', '.join(more) or method} is not element-wise; write numpy.{name}(x)"
            )
        operands = [self._operand(o, name) for o in given]
        if name == "positive":
            return self
        if name in ("power", "float_power"):
            return self._power(*operands)
        for names, wants, gives in ((_NUMBERS, False, False), (_COMPARISONS, False, True), (_TRUTHS, True, True)):
            if name in names:
                self._want(operands, wants, name)
                made = trace.add(names[name], [*operands, 0.0] if name in _NEGATIONS else operands, gives)
                return trace.add("ne", [made, 0.0], gives) if name in _SUMS else made
        hint = (
            f"; write {_HINTS[name]}"
            if name in _HINTS
            else f"; known are {', '.join((*_NUMBERS, 'power', 'where', 'clip'))}"
        )
        raise trace.refused(f"numpy.{name} has no vector instructions{hint}")

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: Any
    ) -> Element:
        name = function.__name__
        if name == "where" and len(args) == 3 and not kwargs:
            chosen, *values = (self._operand(o, name) for o in args)
            if not (isinstance(chosen, Element) and chosen.truth):
                raise self.trace.refused("numpy.where needs a comparison first")
            self._want(values, False, name)
            return self.trace.add("select", [chosen, *values])
        if name == "clip" and len(args) == 3 and not kwargs:
            return np.minimum(np.maximum(args[0], args[1]), args[2])
        raise self.trace.refused(f"numpy.{name} is not element-wise")

    def _operand(self, o: Any, name: str) -> Any:
        if isinstance(o, Element):
            return o
        number = np.asarray(o)
        if number.ndim or number.dtype.kind not in "iufb":
            raise self.trace.refused(
                f"numpy.{name} takes {type(o).__name__} {str(o):.40}; operands are arguments, and single numbers"
            )
        return bool(number) if number.dtype.kind == "b" else float(number)

    def _want(self, operands: Sequence[Any], truths: bool, name: str) -> None:
        if any((o.truth if isinstance(o, Element) else isinstance(o, bool)) != truths for o in operands):
            raise self.trace.refused(
                f"numpy.{name} takes {'truth values' if truths else 'numbers'}; numpy.where makes numbers of truth values, comparisons the reverse"
            )

    def _power(self, x: Any, n: Any) -> Element:
        self._want([x, n], False, "power")
        if not isinstance(n, Element) and n in (0.5, -0.5):
            return self.trace.add("sqrt" if n > 0 else "rsqrt", [x])
        if isinstance(n, Element) or not isinstance(x, Element) or n != int(n) or not 0 < abs(n) <= MOST_POWER:
            raise self.trace.refused(
                f"numpy.power has no vector instructions; write {_HINTS['power']} up to {MOST_POWER}"
            )
        found, factor, left = None, x, abs(int(n))
        while left:
            if left & 1:
                found = factor if found is None else self.trace.add("mul", [found, factor])
            left >>= 1
            factor = self.trace.add("square", [factor]) if left else factor
        assert found is not None
        return found if n > 0 else self.trace.add("recip", [found])

    def _no_number(self) -> Any:
        raise self.trace.refused(
            "what an element is cannot decide what is computed, nor leave numpy: numpy.where chooses, numpy.exp and its like compute"
        )

    __bool__ = __float__ = __int__ = __index__ = __complex__ = _no_number

    def _no_array(self, *_: Any) -> Any:
        raise self.trace.refused("a kernel sees one element: it has no index, length, shape or method")

    __len__ = __iter__ = __getitem__ = __setitem__ = __contains__ = _no_array

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and numpy ask any object for
            raise AttributeError(name)
        return self._no_array()


class VectorKernel:
    """An element-wise function that serves ONNX nodes of its name. Call it as the function."""

    def __init__(self, function: Callable[..., Any], name: str, domain: str) -> None:
        self.function, self.name, self.domain = function, name, domain
        self.code: CodeType = function.__code__
        self.where = f"kernel '{name}' ({self.code.co_filename}, line {self.code.co_firstlineno})"
        parameters = inspect.signature(function).parameters
        self.defaults = {p.name: None if p.default is p.empty else p.default for p in parameters.values()}
        odd = [p.name for p in parameters.values() if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if odd or not parameters:
            raise ImportModelError(
                f"{self.where}: found parameters {', '.join(odd) or '()'}, required one or more plain ones"
            )
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise ImportModelError(f"{self.where}: it yields or awaits; required a function that returns its result")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def trace(self, inputs: int, attributes: Mapping[str, Any] | None = None) -> Trace:
        """Return what the function does to so many tensors, its first parameters; the others are numbers: `attributes` by name, or their
        defaults. Raises ImportModelError with the line of what cannot be done to an element."""
        names = list(self.defaults)
        given = dict(attributes or {})
        unknown = [n for n in given if n not in names[inputs:]]
        missing = [n for n in names[inputs:] if n not in given and self.defaults[n] is None]
        if not 1 <= inputs <= len(names) or unknown or missing:
            raise ImportModelError(
                f"{self.where}: found {inputs} tensors{''.join(f', attribute {n}' for n in given)}; "
                f"required are {', '.join(names)}, tensors first, the others as attributes"
            )
        numbers: list[Any] = [given.get(n, self.defaults[n]) for n in names[inputs:]]
        odd = [
            f"{n} = {v!r:.40}"
            for n, v in zip(names[inputs:], numbers)
            if type(v) not in (int, float) or not math.isfinite(v)
        ]
        if odd:
            raise ImportModelError(f"{self.where}: found {', '.join(odd)}, required finite numbers")
        trace = Trace(inputs, self.code.co_filename, self.name)
        try:
            found = self.function(*(Element(trace, k, False) for k in range(inputs)), *numbers)
        except Tx8Error:
            raise
        except (Exception, SystemExit) as e:
            raise ImportModelError(f"{_line(self.code.co_filename, e, self.where)}: {type(e).__name__}: {e}") from e
        results = list(found) if isinstance(found, tuple) else [found]
        for r in results:
            if not isinstance(r, Element) or r.truth:
                what = "truth values" if isinstance(r, Element) else type(r).__name__
                raise ImportModelError(
                    f"{self.where}: it returns {what}, required a number for each element, or a tuple of such"
                )
            trace.outputs.append(r.place)
        return trace


def vector_kernel(function: Callable[..., Any] | None = None, *, name: str = "", domain: str = "") -> Any:
    """Mark an element-wise function as a kernel for ONNX nodes of type `name` (default: the function's) in `domain` (default: any that
    is not a standard one). Tensors are the first parameters; a node's attributes give the others.

        @tx8fast.vector_kernel
        def swish(x, beta=1.0):
            return x / (1 + np.exp(-beta * x))
    """
    if function is None:
        return lambda f: vector_kernel(f, name=name, domain=domain)
    if not inspect.isfunction(function):
        raise ImportModelError(f"marking a kernel: found {function!r:.60}, required a function")
    return VectorKernel(function, name or function.__name__, domain)


def load_kernels(path: str | os.PathLike[str]) -> list[VectorKernel]:
    """Execute a Python file and return the kernels that it defines. Raises ConfigError if it cannot be read or executed, or defines none."""
    where = os.fspath(path)
    doing = f"reading kernels {where}"
    try:
        text = read_input(Path(where), MAX_FILE_BYTES)
        module = ModuleType(Path(where).stem)
        module.__file__ = where
        exec(compile(text, where, "exec"), module.__dict__)
    except OSError as e:
        raise ConfigError(f"{doing}: {e.strerror or e}") from e
    except SyntaxError as e:
        raise ConfigError(f"{doing}: line {e.lineno}: {e.msg}") from e
    except ImportModelError as e:
        raise ConfigError(f"{doing}: {e}") from e
    except (Exception, SystemExit) as e:
        raise ConfigError(f"{_line(where, e, doing)}: {type(e).__name__}: {e}") from e
    found = [k for k in vars(module).values() if isinstance(k, VectorKernel)]
    if not found:
        raise ConfigError(f"{doing}: it marks no function with @tx8fast.vector_kernel")
    return found


def _line(file: str, e: BaseException, where: str) -> str:
    """Return `where` with the last line of the file that an exception came through."""
    at = e.__traceback__
    number = 0
    while at is not None:
        number = at.tb_lineno if at.tb_frame.f_code.co_filename == file else number
        at = at.tb_next
    return f"{where}, line {number}" if number else where
