/* Written by tx8fast.host.isa_header from the declarations of tx8fast.isa.routines. Do not edit. */
#ifndef TX8_ROUTINES_H
#define TX8_ROUTINES_H

#define TX8_WORK 5 /* kinds of work */
#define TX8_ROUTINE_COUNT 115
#define TX8_MAP_STEPS 128
#define TX8_MAP_ARGUMENTS 16
#define TX8_CALLS_VERSION 1 /* of calls as words */

/* code, name, function */
#define TX8_ROUTINES(X) \
    X(0, exp, routine_unary) X(1, log, routine_unary) X(2, rsqrt, routine_unary) X(3, sin, routine_unary) \
    X(4, cos, routine_unary) X(5, tan, routine_unary) X(6, asin, routine_unary) X(7, acos, routine_unary) \
    X(8, atan, routine_unary) X(9, sinh, routine_unary) X(10, cosh, routine_unary) X(11, asinh, routine_unary) \
    X(12, acosh, routine_unary) X(13, atanh, routine_unary) X(14, tanh, routine_unary) X(15, sigmoid, routine_unary) \
    X(16, erf, routine_unary) X(17, sqrt, routine_unary) X(18, recip, routine_unary) X(19, neg, routine_unary) \
    X(20, abs, routine_unary) X(21, square, routine_unary) X(22, sign, routine_unary) X(23, floor, routine_unary) \
    X(24, ceil, routine_unary) X(25, round, routine_unary) X(26, not, routine_unary) X(27, isnan, routine_unary) \
    X(28, isinf, routine_unary) X(29, relu, routine_activation) X(30, leaky_relu, routine_activation) \
    X(31, gelu, routine_activation) X(32, gelu_tanh, routine_activation) X(33, silu, routine_activation) \
    X(34, hswish, routine_activation) X(35, softplus, routine_activation) X(36, softsign, routine_activation) \
    X(37, mish, routine_activation) X(38, elu, routine_activation) X(39, celu, routine_activation) \
    X(40, thresholded_relu, routine_activation) X(41, hsigmoid, routine_activation) X(42, selu, routine_activation) \
    X(43, add, routine_binary) X(44, sub, routine_binary) X(45, mul, routine_binary) X(46, div, routine_binary) \
    X(47, mod, routine_binary) X(48, max, routine_binary) X(49, min, routine_binary) X(50, pow, routine_binary) \
    X(51, and, routine_binary) X(52, or, routine_binary) X(53, xor, routine_binary) X(54, shl, routine_binary) \
    X(55, shr, routine_binary) X(56, eq, routine_binary) X(57, ne, routine_binary) X(58, lt, routine_binary) \
    X(59, le, routine_binary) X(60, gt, routine_binary) X(61, ge, routine_binary) X(62, prelu, routine_prelu) \
    X(63, clamp, routine_clamp) X(64, swiglu, routine_swiglu) X(65, select, routine_select) X(66, convert, routine_copy) \
    X(67, quantize, routine_quantize) X(68, dequantize, routine_dequantize) X(69, max_pool, routine_pool) \
    X(70, avg_pool, routine_pool) X(71, max_pool_indices, routine_max_pool_indices) X(72, col2im, routine_col2im) \
    X(73, grid_sample, routine_grid_sample) X(74, roi_align, routine_roi_align) \
    X(75, max_roi_pool, routine_max_roi_pool) X(76, deform_conv, routine_deform_conv) \
    X(77, recurrent, routine_recurrent) X(78, det, routine_det) X(79, channel_norm, routine_copy) \
    X(80, load_var, routine_copy) X(81, store_var, routine_copy) X(82, load_const, routine_copy) \
    X(83, reshape, routine_reshape) X(84, bitcast, routine_bitcast) X(85, transpose, routine_transpose) \
    X(86, broadcast, routine_broadcast) X(87, concat, routine_concat) X(88, slice, routine_slice) \
    X(89, pad, routine_pad) X(90, trilu, routine_trilu) X(91, iota, routine_iota) X(92, gather, routine_gather) \
    X(93, embedding, routine_gather) X(94, gather_elements, routine_gather_elements) X(95, gather_nd, routine_gather_nd) \
    X(96, scatter, routine_scatter) X(97, scatter_nd, routine_scatter_nd) X(98, kv_update, routine_kv_update) \
    X(99, gemm, routine_contract) X(100, contract, routine_contract) X(101, einsum, routine_contract) \
    X(102, conv, routine_conv) X(103, conv_transpose, routine_conv) X(104, reduce, routine_reduce) \
    X(105, arg_reduce, routine_arg_reduce) X(106, topk, routine_topk) X(107, cumsum, routine_scan) \
    X(108, cumprod, routine_scan) X(109, layernorm, routine_norm) X(110, rmsnorm, routine_norm) \
    X(111, softmax, routine_softmax) X(112, batchnorm_inference, routine_batchnorm) X(113, rope, routine_rope) \
    X(114, map, routine_map)

/* functions */
#define TX8_ROUTINE_FUNCTIONS(X) \
    X(routine_unary) X(routine_activation) X(routine_binary) X(routine_prelu) X(routine_clamp) X(routine_swiglu) \
    X(routine_select) X(routine_copy) X(routine_quantize) X(routine_dequantize) X(routine_pool) \
    X(routine_max_pool_indices) X(routine_col2im) X(routine_grid_sample) X(routine_roi_align) X(routine_max_roi_pool) \
    X(routine_deform_conv) X(routine_recurrent) X(routine_det) X(routine_reshape) X(routine_bitcast) \
    X(routine_transpose) X(routine_broadcast) X(routine_concat) X(routine_slice) X(routine_pad) X(routine_trilu) \
    X(routine_iota) X(routine_gather) X(routine_gather_elements) X(routine_gather_nd) X(routine_scatter) \
    X(routine_scatter_nd) X(routine_kv_update) X(routine_contract) X(routine_conv) X(routine_reduce) \
    X(routine_arg_reduce) X(routine_topk) X(routine_scan) X(routine_norm) X(routine_softmax) X(routine_batchnorm) \
    X(routine_rope) X(routine_map)

/* by code: whether operand 0 may lie where result 0 does, whether channel blocks are taken as they lie; work of an element beside loads and stores */
#define TX8_ROUTINE_UPDATES \
    [0] = 0, [1] = 0, [2] = 0, [3] = 0, [4] = 0, [5] = 0, [6] = 0, [7] = 0, [8] = 0, [9] = 0, [10] = 0, [11] = 0, \
    [12] = 0, [13] = 0, [14] = 0, [15] = 0, [16] = 0, [17] = 0, [18] = 0, [19] = 0, [20] = 0, [21] = 0, [22] = 0, \
    [23] = 0, [24] = 0, [25] = 0, [26] = 0, [27] = 0, [28] = 0, [29] = 0, [30] = 0, [31] = 0, [32] = 0, [33] = 0, \
    [34] = 0, [35] = 0, [36] = 0, [37] = 0, [38] = 0, [39] = 0, [40] = 0, [41] = 0, [42] = 0, [43] = 0, [44] = 0, \
    [45] = 0, [46] = 0, [47] = 0, [48] = 0, [49] = 0, [50] = 0, [51] = 0, [52] = 0, [53] = 0, [54] = 0, [55] = 0, \
    [56] = 0, [57] = 0, [58] = 0, [59] = 0, [60] = 0, [61] = 0, [62] = 0, [63] = 0, [64] = 0, [65] = 0, [66] = 0, \
    [67] = 0, [68] = 0, [69] = 0, [70] = 0, [71] = 0, [72] = 0, [73] = 0, [74] = 0, [75] = 0, [76] = 0, [77] = 0, \
    [78] = 0, [79] = 0, [80] = 0, [81] = 0, [82] = 0, [83] = 0, [84] = 0, [85] = 0, [86] = 0, [87] = 0, [88] = 0, \
    [89] = 0, [90] = 0, [91] = 0, [92] = 0, [93] = 0, [94] = 0, [95] = 0, [96] = 1, [97] = 1, [98] = 1, [99] = 0, \
    [100] = 0, [101] = 0, [102] = 0, [103] = 0, [104] = 0, [105] = 0, [106] = 0, [107] = 0, [108] = 0, [109] = 0, \
    [110] = 0, [111] = 0, [112] = 0, [113] = 0, [114] = 0,

#define TX8_ROUTINE_TAKES_BLOCKS \
    [0] = 0, [1] = 0, [2] = 0, [3] = 0, [4] = 0, [5] = 0, [6] = 0, [7] = 0, [8] = 0, [9] = 0, [10] = 0, [11] = 0, \
    [12] = 0, [13] = 0, [14] = 0, [15] = 0, [16] = 0, [17] = 0, [18] = 0, [19] = 0, [20] = 0, [21] = 0, [22] = 0, \
    [23] = 0, [24] = 0, [25] = 0, [26] = 0, [27] = 0, [28] = 0, [29] = 0, [30] = 0, [31] = 0, [32] = 0, [33] = 0, \
    [34] = 0, [35] = 0, [36] = 0, [37] = 0, [38] = 0, [39] = 0, [40] = 0, [41] = 0, [42] = 0, [43] = 0, [44] = 0, \
    [45] = 0, [46] = 0, [47] = 0, [48] = 0, [49] = 0, [50] = 0, [51] = 0, [52] = 0, [53] = 0, [54] = 0, [55] = 0, \
    [56] = 0, [57] = 0, [58] = 0, [59] = 0, [60] = 0, [61] = 0, [62] = 0, [63] = 0, [64] = 0, [65] = 0, [66] = 0, \
    [67] = 0, [68] = 0, [69] = 0, [70] = 0, [71] = 0, [72] = 0, [73] = 0, [74] = 0, [75] = 0, [76] = 0, [77] = 0, \
    [78] = 0, [79] = 0, [80] = 0, [81] = 0, [82] = 0, [83] = 0, [84] = 0, [85] = 0, [86] = 0, [87] = 0, [88] = 0, \
    [89] = 0, [90] = 0, [91] = 0, [92] = 0, [93] = 0, [94] = 0, [95] = 0, [96] = 0, [97] = 0, [98] = 1, [99] = 0, \
    [100] = 0, [101] = 0, [102] = 0, [103] = 0, [104] = 0, [105] = 0, [106] = 0, [107] = 0, [108] = 0, [109] = 0, \
    [110] = 0, [111] = 0, [112] = 0, [113] = 0, [114] = 0,

#define TX8_ROUTINE_EACH \
    [0] = {0, 0, 0, 0, 1}, [1] = {0, 0, 0, 0, 1}, [2] = {0, 0, 0, 2, 0}, [3] = {0, 0, 0, 0, 1}, [4] = {0, 0, 0, 0, 1}, \
    [5] = {0, 0, 0, 1, 2}, [6] = {0, 0, 0, 0, 1}, [7] = {0, 0, 0, 0, 1}, [8] = {0, 0, 0, 0, 1}, [9] = {0, 0, 0, 0, 1}, \
    [10] = {0, 0, 0, 0, 1}, [11] = {0, 0, 0, 0, 1}, [12] = {0, 0, 0, 0, 1}, [13] = {0, 0, 0, 0, 1}, \
    [14] = {0, 0, 0, 0, 1}, [15] = {0, 0, 1, 1, 1}, [16] = {0, 0, 0, 0, 1}, [17] = {0, 0, 0, 1, 0}, \
    [18] = {0, 0, 0, 1, 0}, [19] = {0, 0, 1, 0, 0}, [20] = {0, 0, 1, 0, 0}, [21] = {0, 0, 1, 0, 0}, \
    [22] = {0, 0, 1, 0, 0}, [23] = {0, 0, 1, 0, 0}, [24] = {0, 0, 1, 0, 0}, [25] = {0, 0, 1, 0, 0}, \
    [26] = {0, 0, 1, 0, 0}, [27] = {0, 0, 1, 0, 0}, [28] = {0, 0, 1, 0, 0}, [29] = {0, 0, 1, 0, 0}, \
    [30] = {0, 0, 2, 0, 0}, [31] = {0, 0, 3, 0, 1}, [32] = {0, 0, 8, 1, 1}, [33] = {0, 0, 2, 1, 1}, \
    [34] = {0, 0, 5, 0, 0}, [35] = {0, 0, 2, 0, 2}, [36] = {0, 0, 2, 1, 0}, [37] = {0, 0, 3, 0, 3}, \
    [38] = {0, 0, 2, 0, 1}, [39] = {0, 0, 4, 1, 1}, [40] = {0, 0, 1, 0, 0}, [41] = {0, 0, 4, 0, 0}, \
    [42] = {0, 0, 3, 0, 1}, [43] = {0, 0, 1, 0, 0}, [44] = {0, 0, 1, 0, 0}, [45] = {0, 0, 1, 0, 0}, \
    [46] = {0, 0, 0, 1, 0}, [47] = {0, 0, 3, 1, 0}, [48] = {0, 0, 1, 0, 0}, [49] = {0, 0, 1, 0, 0}, \
    [50] = {0, 0, 2, 0, 2}, [51] = {0, 0, 1, 0, 0}, [52] = {0, 0, 1, 0, 0}, [53] = {0, 0, 1, 0, 0}, \
    [54] = {0, 0, 2, 0, 0}, [55] = {0, 0, 2, 0, 0}, [56] = {0, 0, 1, 0, 0}, [57] = {0, 0, 1, 0, 0}, \
    [58] = {0, 0, 1, 0, 0}, [59] = {0, 0, 1, 0, 0}, [60] = {0, 0, 1, 0, 0}, [61] = {0, 0, 1, 0, 0}, \
    [62] = {0, 0, 2, 0, 0}, [63] = {0, 0, 2, 0, 0}, [64] = {0, 0, 0, 0, 0}, [65] = {0, 0, 1, 0, 0}, \
    [66] = {0, 0, 0, 0, 0}, [67] = {0, 0, 0, 0, 0}, [68] = {0, 0, 0, 0, 0}, [69] = {0, 0, 0, 0, 0}, \
    [70] = {0, 0, 0, 0, 0}, [71] = {0, 0, 0, 0, 0}, [72] = {0, 0, 0, 0, 0}, [73] = {0, 0, 0, 0, 0}, \
    [74] = {0, 0, 0, 0, 0}, [75] = {0, 0, 0, 0, 0}, [76] = {0, 0, 0, 0, 0}, [77] = {0, 0, 0, 0, 0}, \
    [78] = {0, 0, 0, 0, 0}, [79] = {0, 0, 0, 0, 0}, [80] = {0, 0, 0, 0, 0}, [81] = {0, 0, 0, 0, 0}, \
    [82] = {0, 0, 0, 0, 0}, [83] = {0, 0, 0, 0, 0}, [84] = {0, 0, 0, 0, 0}, [85] = {0, 0, 0, 0, 0}, \
    [86] = {0, 0, 0, 0, 0}, [87] = {0, 0, 0, 0, 0}, [88] = {0, 0, 0, 0, 0}, [89] = {0, 0, 0, 0, 0}, \
    [90] = {0, 0, 0, 0, 0}, [91] = {0, 0, 0, 0, 0}, [92] = {0, 0, 0, 0, 0}, [93] = {0, 0, 0, 0, 0}, \
    [94] = {0, 0, 0, 0, 0}, [95] = {0, 0, 0, 0, 0}, [96] = {0, 0, 0, 0, 0}, [97] = {0, 0, 0, 0, 0}, \
    [98] = {0, 0, 0, 0, 0}, [99] = {0, 0, 0, 0, 0}, [100] = {0, 0, 0, 0, 0}, [101] = {0, 0, 0, 0, 0}, \
    [102] = {0, 0, 0, 0, 0}, [103] = {0, 0, 0, 0, 0}, [104] = {0, 0, 0, 0, 0}, [105] = {0, 0, 0, 0, 0}, \
    [106] = {0, 0, 0, 0, 0}, [107] = {0, 0, 0, 0, 0}, [108] = {0, 0, 0, 0, 0}, [109] = {0, 0, 0, 0, 0}, \
    [110] = {0, 0, 0, 0, 0}, [111] = {0, 0, 0, 0, 0}, [112] = {0, 0, 0, 0, 0}, [113] = {0, 0, 0, 0, 0}, \
    [114] = {0, 0, 0, 0, 0},

/* the work of activations per element, of reductions per element and per row */
#define TX8_ACT_EACH \
    {0, 0, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 2, 0, 0}, {0, 0, 3, 0, 1}, {0, 0, 8, 1, 1}, {0, 0, 2, 1, 1}, \
    {0, 0, 5, 0, 0}, {0, 0, 2, 0, 2}, {0, 0, 2, 1, 0}, {0, 0, 3, 0, 3}, {0, 0, 2, 0, 1}, {0, 0, 4, 1, 1}, \
    {0, 0, 1, 0, 0}, {0, 0, 1, 1, 1}, {0, 0, 0, 0, 1},

#define TX8_REDUCE_EACH \
    {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 2, 0, 0}, \
    {0, 0, 2, 0, 0}, {0, 0, 2, 0, 0}, {0, 0, 1, 0, 0}, {1, 0, 3, 0, 1},

#define TX8_REDUCE_ROW \
    {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 1, 0}, {0, 0, 0, 0, 0}, \
    {0, 0, 0, 1, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 1}, {0, 0, 1, 0, 1},

/* why a call is refused, in words about the three numbers found */
#define TX8_WHY_TEXTS(X) \
    X(0, "number %1$lld is not known") X(1, "operand %1$lld is missing") \
    X(2, "found %1$lld dimensions or bytes between elements, required others") \
    X(3, "operands of %1$lld and %2$lld elements do not fit each other") \
    X(4, "an attribute has %1$lld numbers, required one or %2$lld") \
    X(5, "%1$lld indices out of range, first %2$lld, required [-%3$lld, %3$lld)") \
    X(6, "writes [%1$lld, %2$lld), required within [0, %3$lld)") X(7, "axis %1$lld has no elements to choose from")

enum {
    TX8_R_EXP = 0, TX8_R_LOG = 1, TX8_R_RSQRT = 2, TX8_R_SIN = 3, TX8_R_COS = 4, TX8_R_TAN = 5, TX8_R_ASIN = 6,
    TX8_R_ACOS = 7, TX8_R_ATAN = 8, TX8_R_SINH = 9, TX8_R_COSH = 10, TX8_R_ASINH = 11, TX8_R_ACOSH = 12,
    TX8_R_ATANH = 13, TX8_R_TANH = 14, TX8_R_SIGMOID = 15, TX8_R_ERF = 16, TX8_R_SQRT = 17, TX8_R_RECIP = 18,
    TX8_R_NEG = 19, TX8_R_ABS = 20, TX8_R_SQUARE = 21, TX8_R_SIGN = 22, TX8_R_FLOOR = 23, TX8_R_CEIL = 24,
    TX8_R_ROUND = 25, TX8_R_NOT = 26, TX8_R_ISNAN = 27, TX8_R_ISINF = 28, TX8_R_RELU = 29, TX8_R_LEAKY_RELU = 30,
    TX8_R_GELU = 31, TX8_R_GELU_TANH = 32, TX8_R_SILU = 33, TX8_R_HSWISH = 34, TX8_R_SOFTPLUS = 35, TX8_R_SOFTSIGN = 36,
    TX8_R_MISH = 37, TX8_R_ELU = 38, TX8_R_CELU = 39, TX8_R_THRESHOLDED_RELU = 40, TX8_R_HSIGMOID = 41, TX8_R_SELU = 42,
    TX8_R_ADD = 43, TX8_R_SUB = 44, TX8_R_MUL = 45, TX8_R_DIV = 46, TX8_R_MOD = 47, TX8_R_MAX = 48, TX8_R_MIN = 49,
    TX8_R_POW = 50, TX8_R_AND = 51, TX8_R_OR = 52, TX8_R_XOR = 53, TX8_R_SHL = 54, TX8_R_SHR = 55, TX8_R_EQ = 56,
    TX8_R_NE = 57, TX8_R_LT = 58, TX8_R_LE = 59, TX8_R_GT = 60, TX8_R_GE = 61, TX8_R_PRELU = 62, TX8_R_CLAMP = 63,
    TX8_R_SWIGLU = 64, TX8_R_SELECT = 65, TX8_R_CONVERT = 66, TX8_R_QUANTIZE = 67, TX8_R_DEQUANTIZE = 68,
    TX8_R_MAX_POOL = 69, TX8_R_AVG_POOL = 70, TX8_R_MAX_POOL_INDICES = 71, TX8_R_COL2IM = 72, TX8_R_GRID_SAMPLE = 73,
    TX8_R_ROI_ALIGN = 74, TX8_R_MAX_ROI_POOL = 75, TX8_R_DEFORM_CONV = 76, TX8_R_RECURRENT = 77, TX8_R_DET = 78,
    TX8_R_CHANNEL_NORM = 79, TX8_R_LOAD_VAR = 80, TX8_R_STORE_VAR = 81, TX8_R_LOAD_CONST = 82, TX8_R_RESHAPE = 83,
    TX8_R_BITCAST = 84, TX8_R_TRANSPOSE = 85, TX8_R_BROADCAST = 86, TX8_R_CONCAT = 87, TX8_R_SLICE = 88, TX8_R_PAD = 89,
    TX8_R_TRILU = 90, TX8_R_IOTA = 91, TX8_R_GATHER = 92, TX8_R_EMBEDDING = 93, TX8_R_GATHER_ELEMENTS = 94,
    TX8_R_GATHER_ND = 95, TX8_R_SCATTER = 96, TX8_R_SCATTER_ND = 97, TX8_R_KV_UPDATE = 98, TX8_R_GEMM = 99,
    TX8_R_CONTRACT = 100, TX8_R_EINSUM = 101, TX8_R_CONV = 102, TX8_R_CONV_TRANSPOSE = 103, TX8_R_REDUCE = 104,
    TX8_R_ARG_REDUCE = 105, TX8_R_TOPK = 106, TX8_R_CUMSUM = 107, TX8_R_CUMPROD = 108, TX8_R_LAYERNORM = 109,
    TX8_R_RMSNORM = 110, TX8_R_SOFTMAX = 111, TX8_R_BATCHNORM_INFERENCE = 112, TX8_R_ROPE = 113, TX8_R_MAP = 114,
};

enum {
    TX8_WORK_LOADS = 0, TX8_WORK_STORES = 1, TX8_WORK_OPS = 2, TX8_WORK_DIVIDES = 3, TX8_WORK_FUNCTIONS = 4,
};

enum {
    TX8_WHY_UNKNOWN = 0, TX8_WHY_MISSING = 1, TX8_WHY_RANK = 2, TX8_WHY_SIZES = 3, TX8_WHY_LIST = 4, TX8_WHY_INDEX = 5,
    TX8_WHY_RANGE = 6, TX8_WHY_EMPTY = 7,
};

enum {
    TX8_ACT_NONE = 0, TX8_ACT_RELU = 1, TX8_ACT_LEAKY_RELU = 2, TX8_ACT_GELU = 3, TX8_ACT_GELU_TANH = 4,
    TX8_ACT_SILU = 5, TX8_ACT_HSWISH = 6, TX8_ACT_SOFTPLUS = 7, TX8_ACT_SOFTSIGN = 8, TX8_ACT_MISH = 9,
    TX8_ACT_ELU = 10, TX8_ACT_CELU = 11, TX8_ACT_THRESHOLDED_RELU = 12, TX8_ACT_SIGMOID = 13, TX8_ACT_TANH = 14,
};

enum {
    TX8_REDUCE_ADD = 0, TX8_REDUCE_MAX = 1, TX8_REDUCE_MIN = 2, TX8_REDUCE_MUL = 3, TX8_REDUCE_MEAN = 4,
    TX8_REDUCE_L1 = 5, TX8_REDUCE_L2 = 6, TX8_REDUCE_SUMSQ = 7, TX8_REDUCE_LOGSUM = 8, TX8_REDUCE_LOGSUMEXP = 9,
};

enum {
    TX8_PAD_CONSTANT = 0, TX8_PAD_EDGE = 1, TX8_PAD_REFLECT = 2, TX8_PAD_WRAP = 3,
};

enum {
    TX8_COMBINE_SET = 0, TX8_COMBINE_ADD = 1, TX8_COMBINE_MUL = 2, TX8_COMBINE_MAX = 3, TX8_COMBINE_MIN = 4,
};

enum {
    TX8_SAMPLE_NEAREST = 0, TX8_SAMPLE_LINEAR = 1, TX8_SAMPLE_CUBIC = 2, TX8_SAMPLE_ZEROS = 0, TX8_SAMPLE_BORDER = 1,
    TX8_SAMPLE_REFLECTION = 2,
};

enum {
    TX8_NET_RNN = 0, TX8_NET_GRU = 1, TX8_NET_LSTM = 2,
};

enum {
    TX8_CELL_SIGMOID = 0, TX8_CELL_TANH = 1, TX8_CELL_RELU = 2,
};

#endif
