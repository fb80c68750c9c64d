// Two dense layers as JAX lowers them, arguments named by location.
module @jit_mlp attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<16x24xf32> loc("params['w1']"), %arg1: tensor<24xf32> loc("params['b1']"), %arg2: tensor<24x8xf32> loc("params['w2']"), %arg3: tensor<4x16xf32> loc("x")) -> (tensor<4x8xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg3, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x16xf32>, tensor<16x24xf32>) -> tensor<4x24xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<24xf32>) -> tensor<1x24xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x24xf32>) -> tensor<4x24xf32>
    %3 = stablehlo.add %0, %2 : tensor<4x24xf32>
    %4 = call @relu(%3) : (tensor<4x24xf32>) -> tensor<4x24xf32>
    %5 = stablehlo.dot_general %4, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x24xf32>, tensor<24x8xf32>) -> tensor<4x8xf32>
    return %5 : tensor<4x8xf32>
  }
  func.func private @relu(%arg0: tensor<4x24xf32>) -> tensor<4x24xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x24xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<4x24xf32>
    return %1 : tensor<4x24xf32>
  }
}
