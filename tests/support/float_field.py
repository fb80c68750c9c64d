"""The field's operations over float64, to see what an expression over the field is as a function of numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

FORMATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


class FloatField:
    """Takes arrays where `Field` takes elements."""

    add, sub, mul = staticmethod(np.add), staticmethod(np.subtract), staticmethod(np.multiply)
    neg, exp, square = staticmethod(np.negative), staticmethod(np.exp), staticmethod(np.square)
    maximum, minimum = staticmethod(np.maximum), staticmethod(np.minimum)

    def inv(self, x):
        return 1 / x

    def constant(self, value, fmt="f32"):
        return np.float64(FORMATS[fmt](value))

    def numbers(self, values):
        return np.asarray(values, np.float64)

    def order(self, x):
        return x

    def atom(self, name, x):
        with np.errstate(over="ignore"):
            return {"abs": lambda a: np.sqrt(a), "sigmoid": lambda a: 1 / (1 + np.exp(-a))}[name](x)
