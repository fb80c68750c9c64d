// One attention head group with a causal choice, softmax in primitives, and a cache that is updated in place.
module @jit_attention {
  func.func public @main(%arg0: tensor<1x4x2x8xf32> loc("q"), %arg1: tensor<1x4x2x8xf32> loc("k"), %arg2: tensor<1x4x2x8xf32> loc("v"), %arg3: tensor<1x6x2x8xf32> {tf.aliasing_output = 1 : i32} loc("cache"), %arg4: tensor<i32> loc("position")) -> (tensor<1x4x2x8xf32>, tensor<1x6x2x8xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>) -> tensor<1x2x4x4xf32>
    %cst = stablehlo.constant dense<2.500000e-01> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x2x4x4xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<1x2x4x4xf32>
    %3 = stablehlo.iota dim = 0 : tensor<4x4xi32>
    %4 = stablehlo.iota dim = 1 : tensor<4x4xi32>
    %5 = stablehlo.compare GE, %3, %4, SIGNED : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi1>
    %6 = stablehlo.broadcast_in_dim %5, dims = [2, 3] : (tensor<4x4xi1>) -> tensor<1x2x4x4xi1>
    %cst_0 = stablehlo.constant dense<-1.000000e+30> : tensor<1x2x4x4xf32>
    %7 = stablehlo.select %6, %2, %cst_0 : tensor<1x2x4x4xi1>, tensor<1x2x4x4xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %8 = stablehlo.reduce(%7 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x2x4xf32>) -> tensor<1x2x4x4xf32>
    %10 = stablehlo.subtract %7, %9 : tensor<1x2x4x4xf32>
    %11 = stablehlo.exponential %10 : tensor<1x2x4x4xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.reduce(%11 init: %cst_2) applies stablehlo.add across dimensions = [3] : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1, 2] : (tensor<1x2x4xf32>) -> tensor<1x2x4x4xf32>
    %14 = stablehlo.divide %11, %13 : tensor<1x2x4x4xf32>
    %15 = stablehlo.dot_general %arg2, %14, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3] : (tensor<1x4x2x8xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x8x4xf32>
    %16 = stablehlo.transpose %15, dims = [0, 3, 1, 2] : (tensor<1x2x8x4xf32>) -> tensor<1x4x2x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %17 = stablehlo.slice %arg1 [0:1, 3:4, 0:2, 0:8] : (tensor<1x4x2x8xf32>) -> tensor<1x1x2x8xf32>
    %18 = stablehlo.dynamic_update_slice %arg3, %17, %c, %arg4, %c, %c : (tensor<1x6x2x8xf32>, tensor<1x1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2x8xf32>
    return %16, %18 : tensor<1x4x2x8xf32>, tensor<1x6x2x8xf32>
  }
}
