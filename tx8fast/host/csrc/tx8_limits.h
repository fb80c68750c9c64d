/* Written by tx8fast.host.limits_header from the declarations of tx8fast.isa. Do not edit. */
#ifndef TX8_LIMITS_H
#define TX8_LIMITS_H

#define TX8_DDR_BASE 10737418240 /* byte address of the first byte of DDR */
#define TX8_MAX_ROWS 16777216 /* of one code with its loops written out */
#define TX8_MAX_LOOPS 2 /* around a row */
#define TX8_DDR_OFFSET 17592186044416 /* bytes; offsets, steps and reaches are smaller */
#define TX8_SIZE 35184372088832 /* elements or bytes; products of counts are smaller */
#define TX8_FORMS 33 /* of parameters */

/* opcode, name, form of its parameters, a bit for the code of each format that it takes */
#define TX8_OPCODES(X) \
    X(0x400, "kcore", 0, 0x1fff) X(0x500, "wait", 1, 0x1fff) X(0x501, "barrier", 1, 0x1fff) \
    X(0x502, "wait_worker", 2, 0x1fff) X(0x507, "fence", 1, 0x1fff) X(0x600, "loop", 3, 0x1fff) \
    X(0x601, "end", 1, 0x1fff) X(0x380, "send", 4, 0x1fff) X(0x381, "scatter", 5, 0x1fff) X(0x382, "gather", 6, 0x1fff) \
    X(0x503, "recv", 7, 0x1fff) X(0x504, "send_wait", 1, 0x1fff) X(0x505, "barrier_sub", 8, 0x1fff) \
    X(0x506, "handshake", 9, 0x1fff) X(0x0, "abs_v", 10, 0x6c) X(0x1, "recip_v", 10, 0x6c) X(0x2, "square_v", 10, 0x6c) \
    X(0x3, "sqrt_v", 10, 0x6c) X(0x4, "rsqrt_v", 10, 0x6c) X(0x5, "neg_v", 10, 0x6c) X(0x62, "log2_v", 10, 0x6c) \
    X(0x63, "ln_v", 10, 0x6c) X(0x64, "pow2_v", 10, 0x6c) X(0x65, "exp_v", 10, 0x6c) X(0x66, "exp_lp_v", 10, 0x6c) \
    X(0x67, "sin_v", 10, 0x6c) X(0x68, "cos_v", 10, 0x6c) X(0x69, "tanh_v", 10, 0x6c) X(0x6a, "sigmoid_v", 10, 0x6c) \
    X(0x6b, "relu_v", 10, 0x6c) X(0x6c, "satrelu_v", 10, 0x6c) X(0x6d, "leakyrelu_v", 10, 0x6c) \
    X(0x6e, "softplus_v", 10, 0x6c) X(0x6, "max_vv", 10, 0x1f7f) X(0x7, "max_vs", 11, 0x1f7f) \
    X(0x8, "max_vuv", 12, 0x1f7f) X(0x9, "max_vuvloop", 13, 0x1f7f) X(0xa, "min_vv", 10, 0x1f7f) \
    X(0xb, "min_vs", 11, 0x1f7f) X(0xc, "min_vuv", 12, 0x1f7f) X(0xd, "min_vuvloop", 13, 0x1f7f) \
    X(0xe, "add_vv", 10, 0x1f7f) X(0xf, "add_vs", 11, 0x1f7f) X(0x10, "add_vuv", 12, 0x1f7f) \
    X(0x11, "add_vuvloop", 13, 0x1f7f) X(0x12, "sub_vv", 10, 0x1f7f) X(0x13, "sub_vs", 11, 0x1f7f) \
    X(0x14, "sub_vuv", 12, 0x1f7f) X(0x15, "sub_vuvloop", 13, 0x1f7f) X(0x16, "mul_vv", 10, 0x1f7f) \
    X(0x17, "mul_vs", 11, 0x1f7f) X(0x18, "mul_vuv", 12, 0x1f7f) X(0x19, "mul_vuvloop", 13, 0x1f7f) \
    X(0x1a, "div_vv", 10, 0x6c) X(0x1b, "div_vs", 11, 0x6c) X(0x1c, "div_vuv", 12, 0x6c) \
    X(0x1d, "div_vuvloop", 13, 0x6c) X(0x1e, "eq_vv", 10, 0x1f7f) X(0x1f, "bool_eq_vv", 10, 0x1f7f) \
    X(0x20, "eq_vs", 11, 0x1f7f) X(0x21, "bool_eq_vs", 11, 0x1f7f) X(0x22, "eq_vuv", 12, 0x1f7f) \
    X(0x23, "eq_vuvloop", 13, 0x1f7f) X(0x24, "bool_eq_vuv", 12, 0x1f7f) X(0x25, "bool_eq_vuvloop", 13, 0x1f7f) \
    X(0x26, "ne_vv", 10, 0x1f7f) X(0x27, "bool_ne_vv", 10, 0x1f7f) X(0x28, "ne_vs", 11, 0x1f7f) \
    X(0x29, "bool_ne_vs", 11, 0x1f7f) X(0x2a, "ne_vuv", 12, 0x1f7f) X(0x2b, "ne_vuvloop", 13, 0x1f7f) \
    X(0x2c, "bool_ne_vuv", 12, 0x1f7f) X(0x2d, "bool_ne_vuvloop", 13, 0x1f7f) X(0x2e, "ge_vv", 10, 0x1f7f) \
    X(0x2f, "bool_ge_vv", 10, 0x1f7f) X(0x30, "ge_vs", 11, 0x1f7f) X(0x31, "bool_ge_vs", 11, 0x1f7f) \
    X(0x32, "ge_vuv", 12, 0x1f7f) X(0x33, "ge_vuvloop", 13, 0x1f7f) X(0x34, "bool_ge_vuv", 12, 0x1f7f) \
    X(0x35, "bool_ge_vuvloop", 13, 0x1f7f) X(0x36, "gt_vv", 10, 0x1f7f) X(0x37, "bool_gt_vv", 10, 0x1f7f) \
    X(0x38, "gt_vs", 11, 0x1f7f) X(0x39, "bool_gt_vs", 11, 0x1f7f) X(0x3a, "gt_vuv", 12, 0x1f7f) \
    X(0x3b, "gt_vuvloop", 13, 0x1f7f) X(0x3c, "bool_gt_vuv", 12, 0x1f7f) X(0x3d, "bool_gt_vuvloop", 13, 0x1f7f) \
    X(0x3e, "le_vv", 10, 0x1f7f) X(0x3f, "bool_le_vv", 10, 0x1f7f) X(0x40, "le_vs", 11, 0x1f7f) \
    X(0x41, "bool_le_vs", 11, 0x1f7f) X(0x42, "le_vuv", 12, 0x1f7f) X(0x43, "le_vuvloop", 13, 0x1f7f) \
    X(0x44, "bool_le_vuv", 12, 0x1f7f) X(0x45, "bool_le_vuvloop", 13, 0x1f7f) X(0x46, "lt_vv", 10, 0x1f7f) \
    X(0x47, "bool_lt_vv", 10, 0x1f7f) X(0x48, "lt_vs", 11, 0x1f7f) X(0x49, "bool_lt_vs", 11, 0x1f7f) \
    X(0x4a, "lt_vuv", 12, 0x1f7f) X(0x4b, "lt_vuvloop", 13, 0x1f7f) X(0x4c, "bool_lt_vuv", 12, 0x1f7f) \
    X(0x4d, "bool_lt_vuvloop", 13, 0x1f7f) X(0x4e, "not_v", 10, 0x1fff) X(0x4f, "and_vv", 10, 0x1fff) \
    X(0x50, "or_vv", 10, 0x1fff) X(0x51, "xor_vv", 10, 0x1fff) X(0x52, "and_vuv", 12, 0x1fff) \
    X(0x53, "or_vuv", 12, 0x1fff) X(0x54, "xor_vuv", 12, 0x1fff) X(0x55, "and_vuvloop", 13, 0x1fff) \
    X(0x56, "or_vuvloop", 13, 0x1fff) X(0x57, "xor_vuvloop", 13, 0x1fff) X(0x58, "bool_not_v", 10, 0x1fff) \
    X(0x59, "bool_and_vv", 10, 0x1fff) X(0x5a, "bool_or_vv", 10, 0x1fff) X(0x5b, "bool_xor_vv", 10, 0x1fff) \
    X(0x5c, "bool_and_vuv", 12, 0x1fff) X(0x5d, "bool_or_vuv", 12, 0x1fff) X(0x5e, "bool_xor_vuv", 12, 0x1fff) \
    X(0x5f, "bool_and_vuvloop", 13, 0x1fff) X(0x60, "bool_or_vuvloop", 13, 0x1fff) \
    X(0x61, "bool_xor_vuvloop", 13, 0x1fff) X(0x86, "mask_move", 10, 0x1f7f) X(0x8b, "cvt_i8_f16", 14, 0x1fff) \
    X(0x8c, "cvt_i8_bf16", 14, 0x1fff) X(0x8d, "cvt_i8_f32", 14, 0x1fff) X(0x8e, "cvt_i8_tf32", 14, 0x1fff) \
    X(0x8f, "cvt_i16_f16", 14, 0x1fff) X(0x90, "cvt_i16_bf16", 14, 0x1fff) X(0x91, "cvt_i16_f32", 14, 0x1fff) \
    X(0x92, "cvt_i16_tf32", 14, 0x1fff) X(0x93, "cvt_i32_f16", 14, 0x1fff) X(0x94, "cvt_i32_bf16", 14, 0x1fff) \
    X(0x95, "cvt_i32_f32", 14, 0x1fff) X(0x96, "cvt_i32_tf32", 14, 0x1fff) X(0x97, "cvt_bf16_i8", 14, 0x1fff) \
    X(0x98, "cvt_bf16_i16", 14, 0x1fff) X(0x99, "cvt_bf16_i32", 14, 0x1fff) X(0x9a, "cvt_bf16_f16", 14, 0x1fff) \
    X(0x9b, "cvt_bf16_f32", 14, 0x1fff) X(0x9c, "cvt_bf16_tf32", 14, 0x1fff) X(0x9d, "cvt_f16_i8", 14, 0x1fff) \
    X(0x9e, "cvt_f16_i16", 14, 0x1fff) X(0x9f, "cvt_f16_i32", 14, 0x1fff) X(0xa0, "cvt_f16_bf16", 14, 0x1fff) \
    X(0xa1, "cvt_f16_f32", 14, 0x1fff) X(0xa2, "cvt_f16_tf32", 14, 0x1fff) X(0xa3, "cvt_f32_i8", 14, 0x1fff) \
    X(0xa4, "cvt_f32_i16", 14, 0x1fff) X(0xa5, "cvt_f32_i32", 14, 0x1fff) X(0xa6, "cvt_f32_f16", 14, 0x1fff) \
    X(0xa7, "cvt_f32_bf16", 14, 0x1fff) X(0xa8, "cvt_f32_tf32", 14, 0x1fff) X(0xa9, "cvt_tf32_i8", 14, 0x1fff) \
    X(0xaa, "cvt_tf32_i16", 14, 0x1fff) X(0xab, "cvt_tf32_i32", 14, 0x1fff) X(0xac, "cvt_tf32_f16", 14, 0x1fff) \
    X(0xad, "cvt_tf32_bf16", 14, 0x1fff) X(0xae, "cvt_tf32_f32", 14, 0x1fff) X(0x300, "rdma", 15, 0x1fff) \
    X(0x301, "wdma", 15, 0x1fff) X(0x7c, "mirror", 16, 0x1fff) X(0x7d, "transpose", 16, 0x1fff) \
    X(0x7e, "rotate90", 16, 0x1fff) X(0x7f, "rotate180", 16, 0x1fff) X(0x80, "rotate270", 16, 0x1fff) \
    X(0x81, "nchw2nhwc", 16, 0x1fff) X(0x82, "nhwc2nchw", 16, 0x1fff) X(0x84, "pad", 17, 0x1fff) \
    X(0x85, "tensor_norm", 18, 0x1fff) X(0x87, "gather_scatter", 19, 0x1fff) X(0x8a, "img2col", 20, 0x1fff) \
    X(0xb3, "memset", 21, 0x1fff) X(0x302, "rdma_row", 22, 0x1c10) X(0x180, "tdma_row", 23, 0x1c10) \
    X(0x200, "conv", 24, 0x16d) X(0x201, "depthwise", 24, 0x16d) X(0x202, "backward_conv", 24, 0x16d) \
    X(0x203, "gemm", 25, 0x16d) X(0x83, "concat", 26, 0x1fff) X(0x88, "mask_gather", 10, 0x1f7f) \
    X(0x89, "mask_gather_b", 10, 0x1fff) X(0xaf, "count", 10, 0x1f7f) X(0xb0, "bitcount", 10, 0x1fff) \
    X(0xb1, "argmax", 10, 0x6c) X(0xb2, "argmin", 10, 0x6c) X(0xb4, "factorize", 10, 0x1fff) X(0xb5, "bit2fp", 10, 0x6c) \
    X(0xb6, "bilinear", 27, 0x6c) X(0xb7, "lut16", 28, 0x1fff) X(0xb8, "lut32", 28, 0x1fff) \
    X(0xb9, "rand_gen", 10, 0x6c) X(0xba, "elem_mask", 29, 0x6c) X(0x580, "scalar_recip", 30, 0x6c) \
    X(0x581, "scalar_sqrt", 30, 0x6c) X(0x582, "scalar_sin", 30, 0x6c) X(0x583, "scalar_cos", 30, 0x6c) \
    X(0x584, "scalar_log2", 30, 0x6c) X(0x585, "scalar_pow2", 30, 0x6c) X(0x6f, "reduce_sum", 31, 0x6c) \
    X(0x70, "reduce_avg", 31, 0x6c) X(0x71, "reduce_max", 31, 0x6c) X(0x72, "reduce_min", 31, 0x6c) \
    X(0x73, "pool_avg", 20, 0x6c) X(0x74, "pool_sum", 20, 0x6c) X(0x75, "pool_max", 20, 0x6c) \
    X(0x77, "pool_min", 20, 0x6c) X(0x76, "pool_max_indexed", 20, 0x6c) X(0x78, "pool_min_indexed", 20, 0x6c) \
    X(0x79, "unpool", 32, 0x6c) X(0x7a, "unpool_avg", 32, 0x6c) X(0x7b, "mask_unpool", 32, 0x6c)

/* name of a parameter, lowest value, first that is too high */
#define TX8_LIMITS(X) \
    X(loads, 0, 17592186044416) X(stores, 0, 17592186044416) X(ops, 0, 17592186044416) X(divides, 0, 17592186044416) \
    X(functions, 0, 17592186044416) X(count, 1, 1099511627776) X(bytes, 0, 1099511627776) X(run_bytes, 1, 33554432) \
    X(s0, 0, 1099511627776) X(n0, 1, 33554432) X(s1, 0, 1099511627776) X(n1, 1, 33554432) X(s2, 0, 1099511627776) \
    X(n2, 1, 33554432) X(n, 1, 33554432) X(unit, 1, 33554432) X(full, 1, 33554432) X(full_unit, 1, 33554432) \
    X(h, 0, 33554432) X(w, 0, 33554432) X(c, 1, 33554432) X(top, 0, 33554432) X(bottom, 0, 33554432) \
    X(left, 0, 33554432) X(right, 0, 33554432) X(inverse, 0, 2) X(size, 1, 33554432) X(ss0, 0, 1099511627776) \
    X(sn0, 1, 33554432) X(ss1, 0, 1099511627776) X(sn1, 1, 33554432) X(ss2, 0, 1099511627776) X(sn2, 1, 33554432) \
    X(ds0, 0, 1099511627776) X(dn0, 1, 33554432) X(ds1, 0, 1099511627776) X(dn1, 1, 33554432) X(ds2, 0, 1099511627776) \
    X(dn2, 1, 33554432) X(kx, 1, 33554432) X(ky, 1, 33554432) X(sx, 1, 33554432) X(sy, 1, 33554432) \
    X(stride, 0, 1099511627776) X(entries, 1, 33554432) X(index_slot, 0, 2147483648) X(index_ddr, 0, 17592186044416) \
    X(oh, 1, 33554432) X(ow, 1, 33554432) X(oc, 1, 33554432) X(dx, 1, 33554432) X(dy, 1, 33554432) X(psum_en, 0, 2) \
    X(bias_en, 0, 2) X(act, 0, 3) X(scale_n, 0, 2147483648) X(m, 1, 33554432) X(k, 1, 33554432) X(batch_l, 1, 33554432) \
    X(batch_r, 1, 33554432) X(l_trs, 0, 2) X(r_trs, 0, 2) X(size1, 1, 33554432)

/* the named parameters of a form, by place */
#define TX8_LIMITED(F, P) \
    F(0, P(1, loads) P(2, stores) P(3, ops) P(4, divides) P(5, functions)) F(3, P(0, count)) F(4, P(0, bytes)) \
    F(5, P(0, bytes)) F(6, P(0, bytes) P(3, run_bytes) P(4, s0) P(5, n0) P(6, s1) P(7, n1) P(8, s2) P(9, n2)) \
    F(7, P(1, bytes)) F(10, P(0, n)) F(11, P(0, n)) F(12, P(0, n) P(1, unit)) F(13, P(0, n) P(1, unit) P(2, full) \
    P(3, full_unit)) F(14, P(0, n)) F(15, P(0, run_bytes) P(1, s0) P(2, n0) P(3, s1) P(4, n1) P(5, s2) P(6, n2)) \
    F(16, P(0, n) P(1, h) P(2, w) P(3, c)) F(17, P(0, n) P(1, h) P(2, w) P(3, c) P(4, top) P(5, bottom) P(6, left) \
    P(7, right)) F(18, P(0, n) P(1, h) P(2, w) P(3, c) P(4, inverse)) F(19, P(0, size) P(1, ss0) P(2, sn0) P(3, ss1) \
    P(4, sn1) P(5, ss2) P(6, sn2) P(7, ds0) P(8, dn0) P(9, ds1) P(10, dn1) P(11, ds2) P(12, dn2)) F(20, P(0, n) P(1, h) \
    P(2, w) P(3, c) P(4, top) P(5, bottom) P(6, left) P(7, right) P(8, kx) P(9, ky) P(10, sx) P(11, sy)) F(21, P(1, n) \
    P(2, s0) P(3, n0) P(4, s1) P(5, n1) P(6, s2) P(7, n2)) F(22, P(0, run_bytes) P(1, stride) P(2, entries) \
    P(3, index_slot) P(4, index_ddr)) F(23, P(0, size) P(1, stride) P(2, entries) P(3, index_slot) P(4, index_ddr) \
    P(5, ss0) P(6, sn0) P(7, ds0) P(8, dn0)) F(24, P(0, n) P(1, h) P(2, w) P(3, c) P(4, oh) P(5, ow) P(6, oc) P(7, top) \
    P(8, bottom) P(9, left) P(10, right) P(11, kx) P(12, ky) P(13, sx) P(14, sy) P(15, dx) P(16, dy) P(19, psum_en) \
    P(20, bias_en) P(21, act) P(22, scale_n)) F(25, P(0, m) P(1, k) P(2, n) P(3, batch_l) P(4, batch_r) P(5, l_trs) \
    P(6, r_trs) P(9, psum_en) P(10, bias_en) P(11, act) P(13, scale_n)) F(26, P(1, n) P(2, h) P(3, w) P(4, c) \
    P(5, size1)) F(27, P(0, n) P(1, h) P(2, w) P(3, c) P(4, oh) P(5, ow)) F(28, P(0, n) P(1, entries)) F(29, P(0, n)) \
    F(31, P(1, n) P(2, h) P(3, w) P(4, c)) F(32, P(0, n) P(1, h) P(2, w) P(3, c) P(4, oh) P(5, ow) P(6, kx) P(7, ky) \
    P(8, sx) P(9, sy))

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

/* form, parameter that holds the slot of a row number */
#define TX8_NUMBER_SLOTS(X) \
    X(22, 3) X(23, 3)

#endif
