// A scan over three stacked matrices, written as a while loop with a known number of rounds; bf16 constants.
module @jit_scan {
  func.func public @main(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %w = stablehlo.constant dense<[0.5, 1.0, 2.0]> : tensor<3xbf16>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %c, %h = %arg0) : tensor<i32>, tensor<4x8xf32>
    cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.dynamic_slice %w, %i, sizes = [1] : (tensor<3xbf16>, tensor<i32>) -> tensor<1xbf16>
      %2 = stablehlo.reshape %1 : (tensor<1xbf16>) -> tensor<bf16>
      %3 = stablehlo.convert %2 : (tensor<bf16>) -> tensor<f32>
      %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<4x8xf32>
      %5 = stablehlo.multiply %h, %4 : tensor<4x8xf32>
      %6 = chlo.square %5 : tensor<4x8xf32> -> tensor<4x8xf32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %7 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %7, %6 : tensor<i32>, tensor<4x8xf32>
    }
    return %0#1 : tensor<4x8xf32>
  }
}
