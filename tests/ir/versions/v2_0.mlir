"tx8be.module"() <{ir_version = array<i64: 2, 0>, tile_dx = 4 : i64, tile_dy = 4 : i64, chip_x = 1 : i64, chip_y = 1 : i64, chip_z = 1 : i64}> ({
  "tx8be.func"() <{sym_name = "kind_gemm", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x5x2x2xf32>, %1: !tx8be.vtensor<5x2x2xf32>, %2: !tx8be.vtensor<2xf32>):
    %3 = "tx8be.gemm"(%0, %1, %2) <{trans_a = true, trans_b = false, act = "none", useful_macs = -1 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x5x2x2xf32>, !tx8be.vtensor<5x2x2xf32>, !tx8be.vtensor<2xf32>) -> !tx8be.vtensor<3x5x2x2xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<3x5x2x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_contract", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x3x4xf32>, %1: !tx8be.vtensor<3x3x1xf32>):
    %2 = "tx8be.contract"(%0, %1) <{equation = "b s (h g d), b t (h d) -> b (h g) s t", sizes = ["h", 1 : i64, "d", 1 : i64], useful_macs = -1 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x3x4xf32>, !tx8be.vtensor<3x3x1xf32>) -> !tx8be.vtensor<3x4x3x3xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<3x4x3x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_conv", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x8x6x9xf32>, %1: !tx8be.vtensor<2x1x6x3xf32>):
    %2 = "tx8be.conv"(%0, %1) <{stride = array<i64: 3, 2>, dilation = array<i64: 2, 1>, pad_lo = array<i64: 1, 0>, pad_hi = array<i64: 1, 1>, groups = 3 : i64, act = "none", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x8x6x9xf32>, !tx8be.vtensor<2x1x6x3xf32>) -> !tx8be.vtensor<2x3x4x6xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<2x3x4x6xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_conv_transpose", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x4x3x4xf32>, %1: !tx8be.vtensor<2x2x1x4xf32>):
    %2 = "tx8be.conv_transpose"(%0, %1) <{stride = array<i64: 2, 3>, dilation = array<i64: 1, 1>, pad_lo = array<i64: 1, 0>, pad_hi = array<i64: 1, 1>, out_pad = array<i64: 0, 0>, groups = 2 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x4x3x4xf32>, !tx8be.vtensor<2x2x1x4xf32>) -> !tx8be.vtensor<1x6x7x2xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<1x6x7x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_add", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x2xf32>, %1: !tx8be.vtensor<5x3x2xf32>):
    %2 = "tx8be.add"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x2xf32>, !tx8be.vtensor<5x3x2xf32>) -> !tx8be.vtensor<5x3x2xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5x3x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sub", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x1xf32>, %1: !tx8be.vtensor<1x1xf32>):
    %2 = "tx8be.sub"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x1xf32>, !tx8be.vtensor<1x1xf32>) -> !tx8be.vtensor<5x1xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_mul", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3xf32>, %1: !tx8be.vtensor<1xf32>):
    %2 = "tx8be.mul"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3xf32>, !tx8be.vtensor<1xf32>) -> !tx8be.vtensor<3xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_div", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5xf32>, %1: !tx8be.vtensor<1xf32>):
    %2 = "tx8be.div"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5xf32>, !tx8be.vtensor<1xf32>) -> !tx8be.vtensor<5xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_max", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.max"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5xf32>, !tx8be.vtensor<f32>) -> !tx8be.vtensor<5xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_min", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x4x5xf32>, %1: !tx8be.vtensor<1x1x1xf32>):
    %2 = "tx8be.min"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4x5xf32>, !tx8be.vtensor<1x1x1xf32>) -> !tx8be.vtensor<2x4x5xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<2x4x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_pow", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x1x1xf32>, %1: !tx8be.vtensor<1x1xf32>):
    %2 = "tx8be.pow"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x1x1xf32>, !tx8be.vtensor<1x1xf32>) -> !tx8be.vtensor<4x1x1xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<4x1x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_mod", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x5x1xf32>, %1: !tx8be.vtensor<1x1x1xf32>):
    %2 = "tx8be.mod"(%0, %1) <{fmod = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x5x1xf32>, !tx8be.vtensor<1x1x1xf32>) -> !tx8be.vtensor<3x5x1xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<3x5x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_and", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x3xi32>, %1: !tx8be.vtensor<i32>):
    %2 = "tx8be.and"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x3xi32>, !tx8be.vtensor<i32>) -> !tx8be.vtensor<4x3xi32>
    "tx8be.return"(%2) : (!tx8be.vtensor<4x3xi32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_or", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x3xpred>, %1: !tx8be.vtensor<1x1xpred>):
    %2 = "tx8be.or"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x3xpred>, !tx8be.vtensor<1x1xpred>) -> !tx8be.vtensor<1x3xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<1x3xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_xor", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x5x3xi32>, %1: !tx8be.vtensor<i32>):
    %2 = "tx8be.xor"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x5x3xi32>, !tx8be.vtensor<i32>) -> !tx8be.vtensor<1x5x3xi32>
    "tx8be.return"(%2) : (!tx8be.vtensor<1x5x3xi32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_shl", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x2x5xi32>, %1: !tx8be.vtensor<5xi32>):
    %2 = "tx8be.shl"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x2x5xi32>, !tx8be.vtensor<5xi32>) -> !tx8be.vtensor<1x2x5xi32>
    "tx8be.return"(%2) : (!tx8be.vtensor<1x2x5xi32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_shr", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x1xi32>, %1: !tx8be.vtensor<1x1xi32>):
    %2 = "tx8be.shr"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x1xi32>, !tx8be.vtensor<1x1xi32>) -> !tx8be.vtensor<1x1xi32>
    "tx8be.return"(%2) : (!tx8be.vtensor<1x1xi32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_eq", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x3x3xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.eq"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x3x3xf32>, !tx8be.vtensor<f32>) -> !tx8be.vtensor<2x3x3xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<2x3x3xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_ne", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x4x5xf32>, %1: !tx8be.vtensor<4x5xf32>):
    %2 = "tx8be.ne"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x4x5xf32>, !tx8be.vtensor<4x5xf32>) -> !tx8be.vtensor<1x4x5xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<1x4x5xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_lt", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x1x4xf32>, %1: !tx8be.vtensor<4xf32>):
    %2 = "tx8be.lt"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x1x4xf32>, !tx8be.vtensor<4xf32>) -> !tx8be.vtensor<2x1x4xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<2x1x4xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_le", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.le"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4xf32>, !tx8be.vtensor<f32>) -> !tx8be.vtensor<4xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<4xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_gt", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x1x3xf32>, %1: !tx8be.vtensor<1x1xf32>):
    %2 = "tx8be.gt"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x1x3xf32>, !tx8be.vtensor<1x1xf32>) -> !tx8be.vtensor<4x1x3xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<4x1x3xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_ge", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4xf32>, %1: !tx8be.vtensor<4xf32>):
    %2 = "tx8be.ge"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4xf32>, !tx8be.vtensor<4xf32>) -> !tx8be.vtensor<4xpred>
    "tx8be.return"(%2) : (!tx8be.vtensor<4xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_neg", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1xf32>):
    %1 = "tx8be.neg"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1xf32>) -> !tx8be.vtensor<1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_abs", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x5xf32>):
    %1 = "tx8be.abs"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x5xf32>) -> !tx8be.vtensor<3x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_exp", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x3xf32>):
    %1 = "tx8be.exp"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x3xf32>) -> !tx8be.vtensor<4x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_log", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x1xf32>):
    %1 = "tx8be.log"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x1xf32>) -> !tx8be.vtensor<5x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sqrt", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2xf32>):
    %1 = "tx8be.sqrt"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2xf32>) -> !tx8be.vtensor<2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_rsqrt", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2xf32>):
    %1 = "tx8be.rsqrt"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2xf32>) -> !tx8be.vtensor<2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_recip", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x5xf32>):
    %1 = "tx8be.recip"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x5xf32>) -> !tx8be.vtensor<5x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_square", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x1x1xf32>):
    %1 = "tx8be.square"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x1x1xf32>) -> !tx8be.vtensor<2x1x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2x1x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sin", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x1x1xf32>):
    %1 = "tx8be.sin"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x1x1xf32>) -> !tx8be.vtensor<5x1x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x1x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_cos", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x3xf32>):
    %1 = "tx8be.cos"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x3xf32>) -> !tx8be.vtensor<3x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_tanh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x4x2xf32>):
    %1 = "tx8be.tanh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x4x2xf32>) -> !tx8be.vtensor<3x4x2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3x4x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sigmoid", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x2x2xf32>):
    %1 = "tx8be.sigmoid"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x2x2xf32>) -> !tx8be.vtensor<5x2x2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x2x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_erf", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1xf32>):
    %1 = "tx8be.erf"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1xf32>) -> !tx8be.vtensor<1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sign", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x3x1xf32>):
    %1 = "tx8be.sign"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x3x1xf32>) -> !tx8be.vtensor<4x3x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4x3x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_tan", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x5xf32>):
    %1 = "tx8be.tan"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x5xf32>) -> !tx8be.vtensor<1x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sinh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2xf32>):
    %1 = "tx8be.sinh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2xf32>) -> !tx8be.vtensor<2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_cosh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1xf32>):
    %1 = "tx8be.cosh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1xf32>) -> !tx8be.vtensor<1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_asin", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x4x2xf32>):
    %1 = "tx8be.asin"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4x2xf32>) -> !tx8be.vtensor<2x4x2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2x4x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_acos", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x1x4xf32>):
    %1 = "tx8be.acos"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x1x4xf32>) -> !tx8be.vtensor<3x1x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3x1x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_atan", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x5x3xf32>):
    %1 = "tx8be.atan"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x5x3xf32>) -> !tx8be.vtensor<1x5x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x5x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_asinh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x4xf32>):
    %1 = "tx8be.asinh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x4xf32>) -> !tx8be.vtensor<5x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_acosh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x4x3xf32>):
    %1 = "tx8be.acosh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4x3xf32>) -> !tx8be.vtensor<2x4x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2x4x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_atanh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1xf32>):
    %1 = "tx8be.atanh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1xf32>) -> !tx8be.vtensor<1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_floor", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x4x3xf32>):
    %1 = "tx8be.floor"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x4x3xf32>) -> !tx8be.vtensor<5x4x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x4x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_ceil", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x2x5xf32>):
    %1 = "tx8be.ceil"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x2x5xf32>) -> !tx8be.vtensor<5x2x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x2x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_round", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3xf32>):
    %1 = "tx8be.round"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3xf32>) -> !tx8be.vtensor<3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_not", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x4x5xpred>):
    %1 = "tx8be.not"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x4x5xpred>) -> !tx8be.vtensor<5x4x5xpred>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x4x5xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_isnan", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x3x2xf32>):
    %1 = "tx8be.isnan"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x3x2xf32>) -> !tx8be.vtensor<2x3x2xpred>
    "tx8be.return"(%1) : (!tx8be.vtensor<2x3x2xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_isinf", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x2xf32>):
    %1 = "tx8be.isinf"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x2xf32>) -> !tx8be.vtensor<1x2xpred>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x2xpred>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_relu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x5xf32>):
    %1 = "tx8be.relu"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x5xf32>) -> !tx8be.vtensor<4x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_leaky_relu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1xf32>):
    %1 = "tx8be.leaky_relu"(%0) <{alpha = 0.01 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1xf32>) -> !tx8be.vtensor<1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_gelu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2xf32>):
    %1 = "tx8be.gelu"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2xf32>) -> !tx8be.vtensor<2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_gelu_tanh", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x4xf32>):
    %1 = "tx8be.gelu_tanh"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x4xf32>) -> !tx8be.vtensor<5x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_silu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x3x1xf32>):
    %1 = "tx8be.silu"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x3x1xf32>) -> !tx8be.vtensor<4x3x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4x3x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_hswish", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4xf32>):
    %1 = "tx8be.hswish"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4xf32>) -> !tx8be.vtensor<4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_hsigmoid", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x4xf32>):
    %1 = "tx8be.hsigmoid"(%0) <{alpha = 0.2 : f64, beta = 0.5 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x4xf32>) -> !tx8be.vtensor<1x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_softplus", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5xf32>):
    %1 = "tx8be.softplus"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5xf32>) -> !tx8be.vtensor<5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_softsign", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x1xf32>):
    %1 = "tx8be.softsign"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x1xf32>) -> !tx8be.vtensor<5x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_mish", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x2xf32>):
    %1 = "tx8be.mish"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x2xf32>) -> !tx8be.vtensor<5x3x2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x3x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_elu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3xf32>):
    %1 = "tx8be.elu"(%0) <{alpha = 1.0 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3xf32>) -> !tx8be.vtensor<5x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_selu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2xf32>):
    %1 = "tx8be.selu"(%0) <{alpha = 1.6732632423543772 : f64, gamma = 1.0507009873554805 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2xf32>) -> !tx8be.vtensor<2xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_celu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x2x3xf32>):
    %1 = "tx8be.celu"(%0) <{alpha = 1.0 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x2x3xf32>) -> !tx8be.vtensor<3x2x3xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3x2x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_thresholded_relu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x5xf32>):
    %1 = "tx8be.thresholded_relu"(%0) <{alpha = 1.0 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x5xf32>) -> !tx8be.vtensor<1x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_prelu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.prelu"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1xf32>, !tx8be.vtensor<f32>) -> !tx8be.vtensor<1xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_clamp", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4xf32>):
    %1 = "tx8be.clamp"(%0) <{lo = 0.4 : f64, hi = 1.2 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4xf32>) -> !tx8be.vtensor<4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_select", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x4x1xpred>, %1: !tx8be.vtensor<f32>, %2: !tx8be.vtensor<3x4x1xf32>):
    %3 = "tx8be.select"(%0, %1, %2) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x4x1xpred>, !tx8be.vtensor<f32>, !tx8be.vtensor<3x4x1xf32>) -> !tx8be.vtensor<3x4x1xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<3x4x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_swiglu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.swiglu"(%0, %1) <{act = "silu", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4xf32>, !tx8be.vtensor<f32>) -> !tx8be.vtensor<4xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_convert", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x1x1xf32>):
    %1 = "tx8be.convert"(%0) <{dtype = "bf16", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x1x1xf32>) -> !tx8be.vtensor<1x1x1xbf16>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x1x1xbf16>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_rope", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x2x16xf32>, %1: !tx8be.vtensor<1x8xf32>, %2: !tx8be.vtensor<1x8xf32>):
    %3 = "tx8be.rope"(%0, %1, %2) <{heads = 2 : i64, style = "half", rotary_dim = -1 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x2x16xf32>, !tx8be.vtensor<1x8xf32>, !tx8be.vtensor<1x8xf32>) -> !tx8be.vtensor<2x2x16xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<2x2x16xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_add_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<4xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.add_"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<4xf32>, !tx8be.vtensor<f32>) -> !tx8be.tensor<4xf32>
    "tx8be.return"(%2) : (!tx8be.tensor<4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sub_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<4xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.sub_"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<4xf32>, !tx8be.vtensor<f32>) -> !tx8be.tensor<4xf32>
    "tx8be.return"(%2) : (!tx8be.tensor<4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_mul_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<4xf32>, %1: !tx8be.vtensor<f32>):
    %2 = "tx8be.mul_"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<4xf32>, !tx8be.vtensor<f32>) -> !tx8be.tensor<4xf32>
    "tx8be.return"(%2) : (!tx8be.tensor<4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_div_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<1x1x2xf32>, %1: !tx8be.vtensor<1x1xf32>):
    %2 = "tx8be.div_"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<1x1x2xf32>, !tx8be.vtensor<1x1xf32>) -> !tx8be.tensor<1x1x2xf32>
    "tx8be.return"(%2) : (!tx8be.tensor<1x1x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_tanh_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<3xf32>):
    %1 = "tx8be.tanh_"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<3xf32>) -> !tx8be.tensor<3xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_sigmoid_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<4x1x3xf32>):
    %1 = "tx8be.sigmoid_"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<4x1x3xf32>) -> !tx8be.tensor<4x1x3xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<4x1x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_relu_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<1x5xf32>):
    %1 = "tx8be.relu_"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<1x5xf32>) -> !tx8be.tensor<1x5xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<1x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_leaky_relu_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<1xf32>):
    %1 = "tx8be.leaky_relu_"(%0) <{alpha = 0.01 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<1xf32>) -> !tx8be.tensor<1xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_silu_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<3xf32>):
    %1 = "tx8be.silu_"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<3xf32>) -> !tx8be.tensor<3xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_hswish_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<2x4xf32>):
    %1 = "tx8be.hswish_"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<2x4xf32>) -> !tx8be.tensor<2x4xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<2x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_clamp_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<1x1x4xf32>):
    %1 = "tx8be.clamp_"(%0) <{lo = 0xFFF0000000000000 : f64, hi = 0x7FF0000000000000 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<1x1x4xf32>) -> !tx8be.tensor<1x1x4xf32>
    "tx8be.return"(%1) : (!tx8be.tensor<1x1x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_layernorm", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x4x4xf32>, %1: !tx8be.vtensor<4x4xf32>, %2: !tx8be.vtensor<4x4xf32>):
    %3 = "tx8be.layernorm"(%0, %1, %2) <{axes = array<i64: -2, -1>, eps = 1.0e-05 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x4x4xf32>, !tx8be.vtensor<4x4xf32>, !tx8be.vtensor<4x4xf32>) -> !tx8be.vtensor<1x4x4xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<1x4x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_rmsnorm", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x2xf32>, %1: !tx8be.vtensor<2xf32>):
    %2 = "tx8be.rmsnorm"(%0, %1) <{axes = array<i64: -1>, eps = 1.0e-05 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x2xf32>, !tx8be.vtensor<2xf32>) -> !tx8be.vtensor<5x3x2xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5x3x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_softmax", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x2x1xf32>):
    %1 = "tx8be.softmax"(%0) <{axis = -3 : i64, scale = 1.0 : f64, log = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x2x1xf32>) -> !tx8be.vtensor<2x2x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2x2x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_batchnorm_inference", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x3x3x3xf32>, %1: !tx8be.vtensor<3xf32>, %2: !tx8be.vtensor<3xf32>, %3: !tx8be.vtensor<3xf32>, %4: !tx8be.vtensor<3xf32>):
    %5 = "tx8be.batchnorm_inference"(%0, %1, %2, %3, %4) <{eps = 1.0e-06 : f64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x3x3x3xf32>, !tx8be.vtensor<3xf32>, !tx8be.vtensor<3xf32>, !tx8be.vtensor<3xf32>, !tx8be.vtensor<3xf32>) -> !tx8be.vtensor<1x3x3x3xf32>
    "tx8be.return"(%5) : (!tx8be.vtensor<1x3x3x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_reduce", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x4x1xf32>):
    %1 = "tx8be.reduce"(%0) <{op = "max", axes = array<i64: 2, 1, 0>, keepdims = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4x1xf32>) -> !tx8be.vtensor<f32>
    "tx8be.return"(%1) : (!tx8be.vtensor<f32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_arg_reduce", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x3x1xf32>):
    %1 = "tx8be.arg_reduce"(%0) <{op = "max", axis = 0 : i64, keepdims = true, select_last = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x3x1xf32>) -> !tx8be.vtensor<1x3x1xi64>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x3x1xi64>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_topk", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x2xf32>):
    %1:2 = "tx8be.topk"(%0) <{k = 2 : i64, axis = 1 : i64, largest = true, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x2xf32>) -> (!tx8be.vtensor<5x2x2xf32>, !tx8be.vtensor<5x2x2xi64>)
    "tx8be.return"(%1#0, %1#1) : (!tx8be.vtensor<5x2x2xf32>, !tx8be.vtensor<5x2x2xi64>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_cumsum", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x4x4xf32>):
    %1 = "tx8be.cumsum"(%0) <{axis = -2 : i64, exclusive = false, reverse = true, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x4x4xf32>) -> !tx8be.vtensor<4x4x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4x4x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_max_pool", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x9x9x5xf32>):
    %1 = "tx8be.max_pool"(%0) <{kernel = array<i64: 3, 2>, stride = array<i64: 2, 2>, dilation = array<i64: 2, 1>, pad_lo = array<i64: 1, 0>, pad_hi = array<i64: 1, 1>, ceil_mode = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x9x9x5xf32>) -> !tx8be.vtensor<2x4x5x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<2x4x5x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_avg_pool", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x8x6x4xf32>):
    %1 = "tx8be.avg_pool"(%0) <{kernel = array<i64: 3, 2>, stride = array<i64: 2, 1>, dilation = array<i64: 2, 2>, pad_lo = array<i64: 1, 0>, pad_hi = array<i64: 1, 1>, ceil_mode = false, count_pad = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x8x6x4xf32>) -> !tx8be.vtensor<3x3x5x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<3x3x5x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_transpose", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x1x5xf32>):
    %1 = "tx8be.transpose"(%0) <{perm = array<i64: 1, 0, 2>, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x1x5xf32>) -> !tx8be.vtensor<1x1x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x1x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_reshape", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x3x4xf32>):
    %1 = "tx8be.reshape"(%0) <{shape = array<i64: 1, 24, 1>, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x3x4xf32>) -> !tx8be.vtensor<1x24x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x24x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_broadcast", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<f32>):
    %1 = "tx8be.broadcast"(%0) <{shape = array<i64: 1, 4, 5>, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<f32>) -> !tx8be.vtensor<1x4x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x4x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_concat", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x2x2xf32>, %1: !tx8be.vtensor<1x3x2xf32>, %2: !tx8be.vtensor<1x2x2xf32>):
    %3 = "tx8be.concat"(%0, %1, %2) <{axis = 1 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x2x2xf32>, !tx8be.vtensor<1x3x2xf32>, !tx8be.vtensor<1x2x2xf32>) -> !tx8be.vtensor<1x7x2xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<1x7x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_slice", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x3xf32>):
    %1 = "tx8be.slice"(%0) <{start = array<i64: 0, 1, 1>, size = array<i64: 1, 1, 1>, step = array<i64: 2, -2, 2>, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x3xf32>) -> !tx8be.vtensor<1x1x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x1x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_pad", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x4x4xf32>):
    %1 = "tx8be.pad"(%0) <{lo = array<i64: 1, 1, 0>, hi = array<i64: 0, 1, 1>, value = 0.0 : f64, mode = "wrap", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x4x4xf32>) -> !tx8be.vtensor<4x6x5xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<4x6x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_trilu", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x2x4xf32>):
    %1 = "tx8be.trilu"(%0) <{k = 1 : i64, upper = true, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x2x4xf32>) -> !tx8be.vtensor<5x2x4xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<5x2x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_gather", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<2x2x4xf32>, %1: !tx8be.vtensor<i64>):
    %2 = "tx8be.gather"(%0, %1) <{axis = 0 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x2x4xf32>, !tx8be.vtensor<i64>) -> !tx8be.vtensor<2x4xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<2x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_embedding", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x2xf32>, %1: !tx8be.vtensor<3x1xi64>):
    %2 = "tx8be.embedding"(%0, %1) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x2xf32>, !tx8be.vtensor<3x1xi64>) -> !tx8be.vtensor<3x1x2xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<3x1x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_gather_elements", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x4xf32>, %1: !tx8be.vtensor<5x3x4xi64>):
    %2 = "tx8be.gather_elements"(%0, %1) <{axis = -3 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x4xf32>, !tx8be.vtensor<5x3x4xi64>) -> !tx8be.vtensor<5x3x4xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5x3x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_gather_nd", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x5xf32>, %1: !tx8be.vtensor<5x5x2xi64>):
    %2 = "tx8be.gather_nd"(%0, %1) <{batch_dims = 1 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x5xf32>, !tx8be.vtensor<5x5x2xi64>) -> !tx8be.vtensor<5x5xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_scatter", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x3x3xf32>, %1: !tx8be.vtensor<1x2x1xi64>, %2: !tx8be.vtensor<1x2x1xf32>):
    %3 = "tx8be.scatter"(%0, %1, %2) <{axis = 2 : i64, combine = "set", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x3x3xf32>, !tx8be.vtensor<1x2x1xi64>, !tx8be.vtensor<1x2x1xf32>) -> !tx8be.vtensor<4x3x3xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<4x3x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_scatter_nd", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x4x5xf32>, %1: !tx8be.vtensor<1x1xi64>, %2: !tx8be.vtensor<1x4x5xf32>):
    %3 = "tx8be.scatter_nd"(%0, %1, %2) <{combine = "add", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x4x5xf32>, !tx8be.vtensor<1x1xi64>, !tx8be.vtensor<1x4x5xf32>) -> !tx8be.vtensor<3x4x5xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<3x4x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_kv_update", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<3x3x2xf32>, %1: !tx8be.vtensor<3x1x2xf32>, %2: !tx8be.vtensor<1xi64>):
    %3 = "tx8be.kv_update"(%0, %1, %2) <{axis = -2 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<3x3x2xf32>, !tx8be.vtensor<3x1x2xf32>, !tx8be.vtensor<1xi64>) -> !tx8be.vtensor<3x3x2xf32>
    "tx8be.return"(%3) : (!tx8be.vtensor<3x3x2xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_kv_update_", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.tensor<5x2x5xf32>, %1: !tx8be.vtensor<5x1x5xf32>, %2: !tx8be.vtensor<1xi64>):
    %3 = "tx8be.kv_update_"(%0, %1, %2) <{axis = -2 : i64, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.tensor<5x2x5xf32>, !tx8be.vtensor<5x1x5xf32>, !tx8be.vtensor<1xi64>) -> !tx8be.tensor<5x2x5xf32>
    "tx8be.return"(%3) : (!tx8be.tensor<5x2x5xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_quantize", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x4x5xf32>, %1: !tx8be.vtensor<4x1x5xf32>):
    %2 = "tx8be.quantize"(%0, %1) <{axis = 1 : i64, dtype = "i8", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<4x4x5xf32>, !tx8be.vtensor<4x1x5xf32>) -> !tx8be.vtensor<4x4x5xi8>
    "tx8be.return"(%2) : (!tx8be.vtensor<4x4x5xi8>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_dequantize", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<5x3x3xi8>, %1: !tx8be.vtensor<3xf32>):
    %2 = "tx8be.dequantize"(%0, %1) <{axis = 1 : i64, dtype = "f32", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<5x3x3xi8>, !tx8be.vtensor<3xf32>) -> !tx8be.vtensor<5x3x3xf32>
    "tx8be.return"(%2) : (!tx8be.vtensor<5x3x3xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_channel_norm", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<1x4x1xf32>):
    %1 = "tx8be.channel_norm"(%0) <{to = "align", layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<1x4x1xf32>) -> !tx8be.vtensor<1x4x1xf32>
    "tx8be.return"(%1) : (!tx8be.vtensor<1x4x1xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "kind_iota", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
    %0 = "tx8be.iota"() <{shape = array<i64: 2, 4>, dtype = "i64", axis = 1 : i64, layout_str = "Unknown", mem_layout = ""}> : () -> !tx8be.vtensor<2x4xi64>
    "tx8be.return"(%0) : (!tx8be.vtensor<2x4xi64>) -> ()
  }) : () -> ()
  "tx8be.subgraph"() <{sym_name = "layer", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>, repeat_key = "ab"}> ({
  ^bb0(%0: !tx8be.vtensor<2x4xf32>):
    %1 = "tx8be.relu"(%0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
    "tx8be.subgraph_return"(%1) : (!tx8be.vtensor<2x4xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "main", arg_names = ["x"], result_names = ["y", "z"], donated = array<i64: 0, 0>}> ({
  ^bb0(%0: !tx8be.vtensor<2x4xf32>):
    %1 = "tx8be.call"(%0) <{callee = "layer"}> : (!tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
    %2 = "tx8be.get_param"() <{key = "w"}> : () -> !tx8be.vtensor<2x4xf32>
    %3:2 = "tx8be.get_params"() <{keys = ["p", "q"]}> : () -> (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>)
    %4 = "tx8be.constant"() <{value = dense<"0x0000C03F000000C0000000000000E0400000C03F000000C0000000000000E040"> : tensor<2x4xf32>}> : () -> !tx8be.vtensor<2x4xf32>
    %5 = "tx8be.add"(%2, %3#0) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
    %6 = "tx8be.add"(%3#1, %4) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
    %7 = "tx8be.tuple"(%5, %6) : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>) -> !tx8be.tuple<!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>>
    %8 = "tx8be.get_element"(%7) <{index = 1 : i64}> : (!tx8be.tuple<!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>>) -> !tx8be.vtensor<2x4xf32>
    %9 = "tx8be.to_tensor"(%8) : (!tx8be.vtensor<2x4xf32>) -> !tx8be.tensor<2x4xf32>
    %10 = "tx8be.reshape_view"(%9) <{shape = array<i64: 8>}> : (!tx8be.tensor<2x4xf32>) -> !tx8be.tensor<8xf32>
    %11 = "tx8be.to_vtensor"(%10) : (!tx8be.tensor<8xf32>) -> !tx8be.vtensor<8xf32>
    "tx8be.set_param"(%1) <{key = "w"}> : (!tx8be.vtensor<2x4xf32>) -> ()
    "tx8be.set_params"(%3#0, %3#1) <{keys = ["q", "p"]}> : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>) -> ()
    %12 = "tx8be.barrier"() : () -> !tx8be.token
    %13 = "tx8be.barrier"(%12) : (!tx8be.token) -> !tx8be.token
    %14 = "tx8be.group"(%1) <{pipeline_parallel = false, sp_stage_num = 1 : i64, dev_region = #tx8be.region<x = 1, dx = 2>, spm_alloc_size = -1 : i64, group_tag = 0 : i64, stream_online_check = array<i64>, stream_offline = array<i64>, need_barrier = true, group_id = 3 : i64, template_id = -1 : i64}> ({
    ^bb0(%15: !tx8be.vtensor<2x4xf32>):
      %16 = "tx8be.load_var"(%15) <{shape_buf = -1 : i64, layout_str = "Unknown", mem_layout = "dense"}> : (!tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
      %17 = "tx8be.load_const"() <{const_map_id = 7 : i64, bypass_codegen = false, layout_str = "Unknown", mem_layout = "dense"}> : () -> !tx8be.vtensor<2x4xf32>
      %18 = "tx8be.none"() : () -> !tx8be.none
      %19 = "tx8be.add"(%16, %17) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
      %20 = "tx8be.softmax"(%19, %18) <{axis = -1 : i64, scale = 1.0 : f64, log = false, layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>, !tx8be.none) -> !tx8be.vtensor<2x4xf32>
      %21 = "tx8be.mul"(%16, %17) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
      %22 = "tx8be.store_var"(%21) <{layout_str = "Unknown", mem_layout = ""}> : (!tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
      "tx8be.group_return"(%22) : (!tx8be.vtensor<2x4xf32>) -> ()
    }) : (!tx8be.vtensor<2x4xf32>) -> !tx8be.vtensor<2x4xf32>
    "tx8be.return"(%14, %11) : (!tx8be.vtensor<2x4xf32>, !tx8be.vtensor<8xf32>) -> ()
  }) : () -> ()
  "tx8be.func"() <{sym_name = "transfers", arg_names = array<i64>, result_names = array<i64>, donated = array<i64>}> ({
  ^bb0(%0: !tx8be.vtensor<4x8xbf16>):
    %1 = "tx8be.all_reduce"(%0) <{axis_name = "x", combine = "add"}> : (!tx8be.vtensor<4x8xbf16>) -> !tx8be.vtensor<4x8xbf16>
    %2 = "tx8be.reduce_scatter"(%1) <{axis_name = "x", dim = 0 : i64, combine = "add", parts = 2 : i64}> : (!tx8be.vtensor<4x8xbf16>) -> !tx8be.vtensor<2x8xbf16>
    %3 = "tx8be.all_gather"(%2) <{axis_name = "x", dim = 0 : i64, parts = 2 : i64}> : (!tx8be.vtensor<2x8xbf16>) -> !tx8be.vtensor<4x8xbf16>
    %4 = "tx8be.all_to_all"(%3) <{axis_name = "x", split_dim = 0 : i64, concat_dim = 1 : i64, parts = 2 : i64}> : (!tx8be.vtensor<4x8xbf16>) -> !tx8be.vtensor<2x16xbf16>
    %5 = "tx8be.permute"(%4) <{axis_name = "x", pairs = array<i64: 0, 1, 1, 0>}> : (!tx8be.vtensor<2x16xbf16>) -> !tx8be.vtensor<2x16xbf16>
    %6 = "tx8be.broadcast_dev"(%5) <{axis_name = "x", root = 0 : i64}> : (!tx8be.vtensor<2x16xbf16>) -> !tx8be.vtensor<2x16xbf16>
    %7 = "tx8be.send"(%6) <{peer = 1 : i64, channel = 0 : i64}> : (!tx8be.vtensor<2x16xbf16>) -> !tx8be.token
    %8 = "tx8be.recv"(%7) <{peer = 1 : i64, channel = 0 : i64}> : (!tx8be.token) -> !tx8be.vtensor<2x16xbf16>
    %9 = "tx8be.gather_scatter"(%8) <{strides = array<i64: 16, 1>, counts = array<i64: 2, 16>}> : (!tx8be.vtensor<2x16xbf16>) -> !tx8be.vtensor<2x16xbf16>
    "tx8be.return"(%9) : (!tx8be.vtensor<2x16xbf16>) -> ()
  }) : () -> ()
}) : () -> ()
