"""What the judge of values knows of operators: which round, which jump, which lose small numbers."""

from __future__ import annotations

from hunt.formats import BF16, F16

#: ops that give one of their operands' elements, a comparison of them, or a whole number
EXACT = frozenset((
    "Abs And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil CenterCropPad Clip Compress Concat "
    "Constant ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual "
    "Hardmax Identity IsInf IsNaN Less LessOrEqual Max MaxPool MaxRoiPool MaxUnpool Min Neg NonZero Not OneHot Or Pad ReduceMax "
    "ReduceMin Relu Reshape ReverseSequence Round Shape Sign Size Slice SpaceToDepth Split Squeeze TensorScatter Tile TopK Transpose "
    "Trilu Unique Unsqueeze Where Xor GlobalMaxPool ThresholdedRelu Scatter Range").split())  # fmt: skip
#: ops whose formula passes through numbers of the size of 1, or of their operand, however small the result is
INNER = frozenset((
    "Elu Celu Selu Softplus Mish Sinh Cosh Tanh Sin Cos Tan Asinh Acosh Atanh Acos Asin Atan LogSoftmax Gelu FastGelu QuickGelu BiasGelu Erf "
    "Log Swish ReduceLogSumExp ReduceLogSum GRU LSTM RNN HardSwish HardSigmoid Sigmoid Shrink Resize GridSample RoiAlign AffineGrid "
    "DequantizeLinear Mod LRN DFT STFT BatchNormalization BlackmanWindow HammingWindow HannWindow").split())  # fmt: skip
#: ops that reckon with coordinates in the format: their error grows with the image
COORDINATES = frozenset("Resize GridSample RoiAlign AffineGrid".split())
#: ops that take something from their operand that may be larger than what is left
CENTRED = frozenset({"BatchNormalization", "DequantizeLinear"})
#: in units of the format at 1: erf by Abramowitz and Stegun 7.1.26, whose own error is 1.5e-7, and as much by its roundings; twice, as
#: two of one operand err alike
FORMULAS = {"Erf": 6.0, "Gelu": 6.0, "BiasGelu": 6.0}
#: scores of attention above which the reference, which has them in f32, is none: f16 has no such numbers, and in bf16 neighbours are 4 apart
SCORES = {F16: 65504.0, BF16: 512.0}
#: ops that take a root of a sum of powers: an operand whose power is below the smallest normal number may as well be nothing
ROOTS = frozenset("ReduceL2 LpNormalization LpPool GlobalLpPool".split())
#: ops that give something infinite or undefined next to a number that rounding may reach
POLES = frozenset("Reciprocal Div Mod Pow Log Tan LpNormalization ReduceLogSum".split())
#: ops of an exponential, whose results below the smallest normal number the reference takes for nothing
UNDERFLOWS = frozenset("Exp Softmax Sigmoid Swish Mish Gelu FastGelu QuickGelu BiasGelu Softplus".split())
#: products, whose factors of 2^-6 or more may be applied to an operand
PRODUCTS = frozenset({"MatMul", "FusedMatMul", "Gemm", "Einsum", "Conv"})
EARLY = 2.0**-18
#: which operand of an op must not be nothing, or makes the op jump there: then all such elements may be nothing at once
DIVISORS = {"Div": 1, "Mod": 1} | dict.fromkeys("Reciprocal Log Pow Sign Abs NonZero LpNormalization".split(), 0)
#: ops whose small change gives nothing at all, on both sides of which are numbers far from it
WRAPS = frozenset({"Mod"})
#: ops whose results are each made of a few operands; all others may add up many numbers
ELEMENTWISE = INNER - frozenset(
    "ReduceLogSumExp ReduceLogSum LogSoftmax GRU LSTM RNN LRN DFT STFT".split()
) | frozenset(
    "Add Sub Mul Div Pow Sqrt Exp Reciprocal LeakyRelu PRelu Softsign Cast CastLike Max Min Mean Sum QuantizeLinear".split()
)
#: ops that jump: a small change of an operand may change what they give by much
DECISIONS = frozenset(
    (
        "ArgMax ArgMin Ceil Floor Round Sign Equal Greater GreaterOrEqual Less LessOrEqual Hardmax IsInf IsNaN NonZero TopK Unique Mod Cast "
        "CastLike QuantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul MaxPool Shrink ThresholdedRelu GridSample RoiAlign"
    ).split()
)
