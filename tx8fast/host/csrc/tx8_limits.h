/* Written by tx8fast.host.limits_header from the declarations of tx8fast.isa. Do not edit. */
#ifndef TX8_LIMITS_H
#define TX8_LIMITS_H

#define TX8_DDR_BASE 10737418240 /* byte address of the first byte of DDR */
#define TX8_MAX_ROWS 16777216 /* of one code with its loops written out */
#define TX8_MAX_LOOPS 2 /* around a row */
#define TX8_DDR_OFFSET 17592186044416 /* bytes; offsets, steps and reaches are smaller */
#define TX8_SIZE 35184372088832 /* elements or bytes; products of counts are smaller */
#define TX8_FORMS 33 /* of parameters */

/* opcode, name, form of its parameters */
#define TX8_OPCODES(X) \
    X(0x400, "kcore", 0) X(0x500, "wait", 1) X(0x501, "barrier", 1) X(0x502, "wait_worker", 2) X(0x507, "fence", 1) \
    X(0x600, "loop", 3) X(0x601, "end", 1) X(0x380, "send", 4) X(0x381, "scatter", 5) X(0x382, "gather", 6) \
    X(0x503, "recv", 7) X(0x504, "send_wait", 1) X(0x505, "barrier_sub", 8) X(0x506, "handshake", 9) X(0x0, "abs_v", 10) \
    X(0x1, "recip_v", 10) X(0x2, "square_v", 10) X(0x3, "sqrt_v", 10) X(0x4, "rsqrt_v", 10) X(0x5, "neg_v", 10) \
    X(0x62, "log2_v", 10) X(0x63, "ln_v", 10) X(0x64, "pow2_v", 10) X(0x65, "exp_v", 10) X(0x66, "exp_lp_v", 10) \
    X(0x67, "sin_v", 10) X(0x68, "cos_v", 10) X(0x69, "tanh_v", 10) X(0x6a, "sigmoid_v", 10) X(0x6b, "relu_v", 10) \
    X(0x6c, "satrelu_v", 10) X(0x6d, "leakyrelu_v", 10) X(0x6e, "softplus_v", 10) X(0x6, "max_vv", 10) \
    X(0x7, "max_vs", 11) X(0x8, "max_vuv", 12) X(0x9, "max_vuvloop", 13) X(0xa, "min_vv", 10) X(0xb, "min_vs", 11) \
    X(0xc, "min_vuv", 12) X(0xd, "min_vuvloop", 13) X(0xe, "add_vv", 10) X(0xf, "add_vs", 11) X(0x10, "add_vuv", 12) \
    X(0x11, "add_vuvloop", 13) X(0x12, "sub_vv", 10) X(0x13, "sub_vs", 11) X(0x14, "sub_vuv", 12) \
    X(0x15, "sub_vuvloop", 13) X(0x16, "mul_vv", 10) X(0x17, "mul_vs", 11) X(0x18, "mul_vuv", 12) \
    X(0x19, "mul_vuvloop", 13) X(0x1a, "div_vv", 10) X(0x1b, "div_vs", 11) X(0x1c, "div_vuv", 12) \
    X(0x1d, "div_vuvloop", 13) X(0x1e, "eq_vv", 10) X(0x1f, "bool_eq_vv", 10) X(0x20, "eq_vs", 11) \
    X(0x21, "bool_eq_vs", 11) X(0x22, "eq_vuv", 12) X(0x23, "eq_vuvloop", 13) X(0x24, "bool_eq_vuv", 12) \
    X(0x25, "bool_eq_vuvloop", 13) X(0x26, "ne_vv", 10) X(0x27, "bool_ne_vv", 10) X(0x28, "ne_vs", 11) \
    X(0x29, "bool_ne_vs", 11) X(0x2a, "ne_vuv", 12) X(0x2b, "ne_vuvloop", 13) X(0x2c, "bool_ne_vuv", 12) \
    X(0x2d, "bool_ne_vuvloop", 13) X(0x2e, "ge_vv", 10) X(0x2f, "bool_ge_vv", 10) X(0x30, "ge_vs", 11) \
    X(0x31, "bool_ge_vs", 11) X(0x32, "ge_vuv", 12) X(0x33, "ge_vuvloop", 13) X(0x34, "bool_ge_vuv", 12) \
    X(0x35, "bool_ge_vuvloop", 13) X(0x36, "gt_vv", 10) X(0x37, "bool_gt_vv", 10) X(0x38, "gt_vs", 11) \
    X(0x39, "bool_gt_vs", 11) X(0x3a, "gt_vuv", 12) X(0x3b, "gt_vuvloop", 13) X(0x3c, "bool_gt_vuv", 12) \
    X(0x3d, "bool_gt_vuvloop", 13) X(0x3e, "le_vv", 10) X(0x3f, "bool_le_vv", 10) X(0x40, "le_vs", 11) \
    X(0x41, "bool_le_vs", 11) X(0x42, "le_vuv", 12) X(0x43, "le_vuvloop", 13) X(0x44, "bool_le_vuv", 12) \
    X(0x45, "bool_le_vuvloop", 13) X(0x46, "lt_vv", 10) X(0x47, "bool_lt_vv", 10) X(0x48, "lt_vs", 11) \
    X(0x49, "bool_lt_vs", 11) X(0x4a, "lt_vuv", 12) X(0x4b, "lt_vuvloop", 13) X(0x4c, "bool_lt_vuv", 12) \
    X(0x4d, "bool_lt_vuvloop", 13) X(0x4e, "not_v", 10) X(0x4f, "and_vv", 10) X(0x50, "or_vv", 10) X(0x51, "xor_vv", 10) \
    X(0x52, "and_vuv", 12) X(0x53, "or_vuv", 12) X(0x54, "xor_vuv", 12) X(0x55, "and_vuvloop", 13) \
    X(0x56, "or_vuvloop", 13) X(0x57, "xor_vuvloop", 13) X(0x58, "bool_not_v", 10) X(0x59, "bool_and_vv", 10) \
    X(0x5a, "bool_or_vv", 10) X(0x5b, "bool_xor_vv", 10) X(0x5c, "bool_and_vuv", 12) X(0x5d, "bool_or_vuv", 12) \
    X(0x5e, "bool_xor_vuv", 12) X(0x5f, "bool_and_vuvloop", 13) X(0x60, "bool_or_vuvloop", 13) \
    X(0x61, "bool_xor_vuvloop", 13) X(0x86, "mask_move", 10) X(0x8b, "cvt_i8_f16", 14) X(0x8c, "cvt_i8_bf16", 14) \
    X(0x8d, "cvt_i8_f32", 14) X(0x8e, "cvt_i8_tf32", 14) X(0x8f, "cvt_i16_f16", 14) X(0x90, "cvt_i16_bf16", 14) \
    X(0x91, "cvt_i16_f32", 14) X(0x92, "cvt_i16_tf32", 14) X(0x93, "cvt_i32_f16", 14) X(0x94, "cvt_i32_bf16", 14) \
    X(0x95, "cvt_i32_f32", 14) X(0x96, "cvt_i32_tf32", 14) X(0x97, "cvt_bf16_i8", 14) X(0x98, "cvt_bf16_i16", 14) \
    X(0x99, "cvt_bf16_i32", 14) X(0x9a, "cvt_bf16_f16", 14) X(0x9b, "cvt_bf16_f32", 14) X(0x9c, "cvt_bf16_tf32", 14) \
    X(0x9d, "cvt_f16_i8", 14) X(0x9e, "cvt_f16_i16", 14) X(0x9f, "cvt_f16_i32", 14) X(0xa0, "cvt_f16_bf16", 14) \
    X(0xa1, "cvt_f16_f32", 14) X(0xa2, "cvt_f16_tf32", 14) X(0xa3, "cvt_f32_i8", 14) X(0xa4, "cvt_f32_i16", 14) \
    X(0xa5, "cvt_f32_i32", 14) X(0xa6, "cvt_f32_f16", 14) X(0xa7, "cvt_f32_bf16", 14) X(0xa8, "cvt_f32_tf32", 14) \
    X(0xa9, "cvt_tf32_i8", 14) X(0xaa, "cvt_tf32_i16", 14) X(0xab, "cvt_tf32_i32", 14) X(0xac, "cvt_tf32_f16", 14) \
    X(0xad, "cvt_tf32_bf16", 14) X(0xae, "cvt_tf32_f32", 14) X(0x300, "rdma", 15) X(0x301, "wdma", 15) \
    X(0x7c, "mirror", 16) X(0x7d, "transpose", 16) X(0x7e, "rotate90", 16) X(0x7f, "rotate180", 16) \
    X(0x80, "rotate270", 16) X(0x81, "nchw2nhwc", 16) X(0x82, "nhwc2nchw", 16) X(0x84, "pad", 17) \
    X(0x85, "tensor_norm", 18) X(0x87, "gather_scatter", 19) X(0x8a, "img2col", 20) X(0xb3, "memset", 21) \
    X(0x302, "rdma_row", 22) X(0x180, "tdma_row", 23) X(0x200, "conv", 24) X(0x201, "depthwise", 24) \
    X(0x202, "backward_conv", 24) X(0x203, "gemm", 25) X(0x83, "concat", 26) X(0x88, "mask_gather", 10) \
    X(0x89, "mask_gather_b", 10) X(0xaf, "count", 10) X(0xb0, "bitcount", 10) X(0xb1, "argmax", 10) \
    X(0xb2, "argmin", 10) X(0xb4, "factorize", 10) X(0xb5, "bit2fp", 10) X(0xb6, "bilinear", 27) X(0xb7, "lut16", 28) \
    X(0xb8, "lut32", 28) X(0xb9, "rand_gen", 10) X(0xba, "elem_mask", 29) X(0x580, "scalar_recip", 30) \
    X(0x581, "scalar_sqrt", 30) X(0x582, "scalar_sin", 30) X(0x583, "scalar_cos", 30) X(0x584, "scalar_log2", 30) \
    X(0x585, "scalar_pow2", 30) X(0x6f, "reduce_sum", 31) X(0x70, "reduce_avg", 31) X(0x71, "reduce_max", 31) \
    X(0x72, "reduce_min", 31) X(0x73, "pool_avg", 20) X(0x74, "pool_sum", 20) X(0x75, "pool_max", 20) \
    X(0x77, "pool_min", 20) X(0x76, "pool_max_indexed", 20) X(0x78, "pool_min_indexed", 20) X(0x79, "unpool", 32) \
    X(0x7a, "unpool_avg", 32) X(0x7b, "mask_unpool", 32)

/* form, parameter, lowest value, first that is too high, name */
#define TX8_BOUNDS(X) \
    X(0, 1, 0, 17592186044416, "loads") X(0, 2, 0, 17592186044416, "stores") X(0, 3, 0, 17592186044416, "ops") \
    X(0, 4, 0, 17592186044416, "divides") X(0, 5, 0, 17592186044416, "functions") X(3, 0, 1, 1099511627776, "count") \
    X(4, 0, 0, 1099511627776, "bytes") X(5, 0, 0, 1099511627776, "bytes") X(6, 0, 0, 1099511627776, "bytes") \
    X(6, 3, 1, 33554432, "run_bytes") X(6, 4, 0, 1099511627776, "s0") X(6, 5, 1, 33554432, "n0") \
    X(6, 6, 0, 1099511627776, "s1") X(6, 7, 1, 33554432, "n1") X(6, 8, 0, 1099511627776, "s2") \
    X(6, 9, 1, 33554432, "n2") X(7, 1, 0, 1099511627776, "bytes") X(10, 0, 1, 33554432, "n") X(11, 0, 1, 33554432, "n") \
    X(12, 0, 1, 33554432, "n") X(12, 1, 1, 33554432, "unit") X(13, 0, 1, 33554432, "n") X(13, 1, 1, 33554432, "unit") \
    X(13, 2, 1, 33554432, "full") X(13, 3, 1, 33554432, "full_unit") X(14, 0, 1, 33554432, "n") \
    X(15, 0, 1, 33554432, "run_bytes") X(15, 1, 0, 1099511627776, "s0") X(15, 2, 1, 33554432, "n0") \
    X(15, 3, 0, 1099511627776, "s1") X(15, 4, 1, 33554432, "n1") X(15, 5, 0, 1099511627776, "s2") \
    X(15, 6, 1, 33554432, "n2") X(16, 0, 1, 33554432, "n") X(16, 1, 0, 33554432, "h") X(16, 2, 0, 33554432, "w") \
    X(16, 3, 1, 33554432, "c") X(17, 0, 1, 33554432, "n") X(17, 1, 0, 33554432, "h") X(17, 2, 0, 33554432, "w") \
    X(17, 3, 1, 33554432, "c") X(17, 4, 0, 33554432, "top") X(17, 5, 0, 33554432, "bottom") \
    X(17, 6, 0, 33554432, "left") X(17, 7, 0, 33554432, "right") X(18, 0, 1, 33554432, "n") X(18, 1, 0, 33554432, "h") \
    X(18, 2, 0, 33554432, "w") X(18, 3, 1, 33554432, "c") X(18, 4, 0, 2, "inverse") X(19, 0, 1, 33554432, "size") \
    X(19, 1, 0, 1099511627776, "ss0") X(19, 2, 1, 33554432, "sn0") X(19, 3, 0, 1099511627776, "ss1") \
    X(19, 4, 1, 33554432, "sn1") X(19, 5, 0, 1099511627776, "ss2") X(19, 6, 1, 33554432, "sn2") \
    X(19, 7, 0, 1099511627776, "ds0") X(19, 8, 1, 33554432, "dn0") X(19, 9, 0, 1099511627776, "ds1") \
    X(19, 10, 1, 33554432, "dn1") X(19, 11, 0, 1099511627776, "ds2") X(19, 12, 1, 33554432, "dn2") \
    X(20, 0, 1, 33554432, "n") X(20, 1, 0, 33554432, "h") X(20, 2, 0, 33554432, "w") X(20, 3, 1, 33554432, "c") \
    X(20, 4, 0, 33554432, "top") X(20, 5, 0, 33554432, "bottom") X(20, 6, 0, 33554432, "left") \
    X(20, 7, 0, 33554432, "right") X(20, 8, 1, 33554432, "kx") X(20, 9, 1, 33554432, "ky") X(20, 10, 1, 33554432, "sx") \
    X(20, 11, 1, 33554432, "sy") X(21, 1, 1, 33554432, "n") X(21, 2, 0, 1099511627776, "s0") X(21, 3, 1, 33554432, "n0") \
    X(21, 4, 0, 1099511627776, "s1") X(21, 5, 1, 33554432, "n1") X(21, 6, 0, 1099511627776, "s2") \
    X(21, 7, 1, 33554432, "n2") X(22, 0, 1, 33554432, "run_bytes") X(22, 1, 0, 1099511627776, "stride") \
    X(22, 2, 1, 33554432, "entries") X(22, 3, 0, 2147483648, "index_slot") X(22, 4, 0, 17592186044416, "index_ddr") \
    X(23, 0, 1, 33554432, "size") X(23, 1, 0, 1099511627776, "stride") X(23, 2, 1, 33554432, "entries") \
    X(23, 3, 0, 2147483648, "index_slot") X(23, 4, 0, 17592186044416, "index_ddr") X(23, 5, 0, 1099511627776, "ss0") \
    X(23, 6, 1, 33554432, "sn0") X(23, 7, 0, 1099511627776, "ds0") X(23, 8, 1, 33554432, "dn0") \
    X(24, 0, 1, 33554432, "n") X(24, 1, 0, 33554432, "h") X(24, 2, 0, 33554432, "w") X(24, 3, 1, 33554432, "c") \
    X(24, 4, 1, 33554432, "oh") X(24, 5, 1, 33554432, "ow") X(24, 6, 1, 33554432, "oc") X(24, 7, 0, 33554432, "top") \
    X(24, 8, 0, 33554432, "bottom") X(24, 9, 0, 33554432, "left") X(24, 10, 0, 33554432, "right") \
    X(24, 11, 1, 33554432, "kx") X(24, 12, 1, 33554432, "ky") X(24, 13, 1, 33554432, "sx") X(24, 14, 1, 33554432, "sy") \
    X(24, 15, 1, 33554432, "dx") X(24, 16, 1, 33554432, "dy") X(24, 19, 0, 2, "psum_en") X(24, 20, 0, 2, "bias_en") \
    X(24, 21, 0, 3, "act") X(24, 22, 0, 2147483648, "scale_n") X(25, 0, 1, 33554432, "m") X(25, 1, 1, 33554432, "k") \
    X(25, 2, 1, 33554432, "n") X(25, 3, 1, 33554432, "batch_l") X(25, 4, 1, 33554432, "batch_r") X(25, 5, 0, 2, "l_trs") \
    X(25, 6, 0, 2, "r_trs") X(25, 9, 0, 2, "psum_en") X(25, 10, 0, 2, "bias_en") X(25, 11, 0, 3, "act") \
    X(25, 13, 0, 2147483648, "scale_n") X(26, 1, 1, 33554432, "n") X(26, 2, 0, 33554432, "h") X(26, 3, 0, 33554432, "w") \
    X(26, 4, 1, 33554432, "c") X(26, 5, 1, 33554432, "size1") X(27, 0, 1, 33554432, "n") X(27, 1, 0, 33554432, "h") \
    X(27, 2, 0, 33554432, "w") X(27, 3, 1, 33554432, "c") X(27, 4, 1, 33554432, "oh") X(27, 5, 1, 33554432, "ow") \
    X(28, 0, 1, 33554432, "n") X(28, 1, 1, 33554432, "entries") X(29, 0, 1, 33554432, "n") X(31, 1, 1, 33554432, "n") \
    X(31, 2, 0, 33554432, "h") X(31, 3, 0, 33554432, "w") X(31, 4, 1, 33554432, "c") X(32, 0, 1, 33554432, "n") \
    X(32, 1, 0, 33554432, "h") X(32, 2, 0, 33554432, "w") X(32, 3, 1, 33554432, "c") X(32, 4, 1, 33554432, "oh") \
    X(32, 5, 1, 33554432, "ow") X(32, 6, 1, 33554432, "kx") X(32, 7, 1, 33554432, "ky") X(32, 8, 1, 33554432, "sx") \
    X(32, 9, 1, 33554432, "sy")

/* form, parameter that holds a format code, name */
#define TX8_FORMAT_PARAMETERS(X) \
    X(24, 17, "out_fmt") X(24, 18, "psum_fmt") X(25, 7, "out_fmt") X(25, 8, "psum_fmt") X(25, 12, "bias_fmt")

/* form, parameters whose product is a size; -1: none */
#define TX8_PRODUCTS(X) \
    X(6, 3, 5, 7, 9, -1) X(15, 0, 2, 4, 6, -1) X(16, 0, 1, 2, 3, -1) X(17, 0, 1, 2, 3, -1) X(18, 0, 1, 2, 3, -1) \
    X(19, 0, 2, 4, 6, -1) X(19, 0, 8, 10, 12, -1) X(20, 0, 1, 2, 3, -1) X(21, 1, 3, 5, 7, -1) X(22, 2, 1, -1, -1, -1) \
    X(23, 2, 1, -1, -1, -1) X(24, 0, 1, 2, 3, -1) X(24, 0, 4, 5, 6, -1) X(24, 0, 4, 5, 3, -1) X(24, 11, 12, 3, 6, -1) \
    X(24, 11, 12, 4, 5, 0) X(25, 3, 0, 1, -1, -1) X(25, 4, 1, 2, -1, -1) X(25, 3, 4, 0, 2, -1) X(26, 1, 2, 3, 4, -1) \
    X(27, 0, 1, 2, 3, -1) X(27, 0, 4, 5, 3, -1) X(31, 1, 2, 3, 4, -1) X(32, 0, 1, 2, 3, -1) X(32, 0, 4, 5, 3, -1) \
    X(32, 6, 7, 4, 5, 0)

/* form, three strides with their counts; -1: none */
#define TX8_REACHES(X) \
    X(6, 4, 5, 6, 7, 8, 9) X(15, 1, 2, 3, 4, 5, 6) X(19, 1, 2, 3, 4, 5, 6) X(19, 7, 8, 9, 10, 11, 12) \
    X(21, 2, 3, 4, 5, 6, 7) X(23, 5, 6, -1, -1, -1, -1) X(23, 7, 8, -1, -1, -1, -1)

/* form, parameter that holds the slot of a row number; codes of formats that row numbers may have */
#define TX8_NUMBER_SLOTS(X) \
    X(22, 3) X(23, 3)

#define TX8_NUMBER_FORMATS(X) \
    X(4) X(10) X(11) X(12)

#endif
