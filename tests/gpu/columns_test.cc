// Sums over the rows of matrices of all widths and heights, which GPUs make chunk by chunk, against the CPU's
// in float64, and sums by row.
#include "gpu/gpu.h"
#include "gpu/numbers.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/nn.h"

namespace lockstep::testing {
namespace {

class GpuColumns : public Gpu {
 protected:
  // What `results` makes of operands that are rounded to a dtype: on the GPU of these, on the CPU of their
  // exact values.
  template <class F>
  static void expect_equal(const TensorList& operands, F results) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
      SCOPED_TRACE(name(dtype));
      const auto run = [&](Device& device, DType computed) {
        const DeviceScope scope(device);
        TensorList in;
        for (const Tensor& operand : operands)
          in.push_back(cast(cast(operand.to(cpu()), dtype), computed).to(device));
        return results(in);
      };
      const TensorList want = run(cpu(), DType::float64), got = run(gpu(), dtype), again = run(gpu(), dtype);
      const double most = dtype == DType::float64 ? 1e-12 : 1e-5;
      for (size_t i = 0; i < want.size(); ++i) {
        const bool narrow = got[i].dtype() == DType::bfloat16;
        EXPECT_LT(relative_error(got[i].to(cpu()), want[i]), narrow ? 4e-3 : most) << "result " << i;
        EXPECT_EQ(relative_error(got[i], again[i]), 0) << "another call gave other bits, result " << i;
      }
    }
  }
  static TensorList gradients(const TensorList& in) {
    GradientTape tape;
    tape.watch(in[1]);
    tape.watch(in[2]);
    const Tensor y = layer_norm(in[0], in[1], in[2]);
    const std::vector<GradientSource> sources = {in[1], in[2]};
    return tape.gradient(reduce_sum(y * in[3]), sources);
  }
};

TEST_F(GpuColumns, SumsAndExtrema) {
  for (const int64_t columns : {2, 7, 8, 40, 64, 250, 256, 1000, 3072})
    for (const int64_t rows : {2, 63, 1000, 20001}) {
      if (columns * rows > 25'000'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      expect_equal({numbers({rows, columns}, 1)}, [](const TensorList& in) {
        return TensorList{reduce_sum(in[0], {0}), reduce_max(in[0], {0}), reduce_min(in[0], {0})};
      });
    }
}

TEST_F(GpuColumns, StatisticsOfBatchNormalisation) {
  for (const int64_t columns : {1, 7, 8, 64, 100, 256, 1000, 2048})
    for (const int64_t rows : {2, 33, 1000, 20001}) {
      if (columns * rows > 10'000'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      // Far from 0, where sums of squares would cancel; sums of what is given do not.
      expect_equal({numbers({rows, columns}, 1) + 3.0, numbers({rows, columns}, 2) + 3.0},
                   [&](const TensorList& in) {
                     const Moments moments = batch_moments(in[0]);
                     const Tensor mean = Tensor::full(moments.mean.dtype(), {columns}, 1, current_device());
                     const BatchNormSums sums = batch_norm_sums(in[0], mean, in[1]);
                     return TensorList{moments.mean, moments.variance, sums.sum, sums.product};
                   });
    }
}

TEST_F(GpuColumns, GradientsOfLayerNormalisationsWeights) {
  for (const int64_t columns : {40, 100, 768, 1500})
    for (const int64_t rows : {33, 5000}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      expect_equal({numbers({rows, columns}, 1), numbers({columns}, 2), numbers({columns}, 3),
                    numbers({rows, columns}, 4) + 0.5},
                   gradients);
    }
}

// A column more than a grid has blocks of 32 for; 40 values of a row are more than one chunk.
TEST_F(GpuColumns, SumsOfRowsThatAreWiderThanAGrid) {
  const DeviceScope scope(gpu());
  constexpr int64_t kWidth = 65535 * 32 + 1;
  const Tensor one = Tensor::full(DType::float32, {40, kWidth}, 1.0);
  const Tensor sums = scatter_add(one, Tensor::full(DType::int32, {40}, 1.0), 3);
  for (const int64_t row : {0, 1, 2}) {
    const Tensor of_row = slice(sums, {row, 0}, {1, kWidth});
    EXPECT_EQ(reduce_min(of_row).item<float>(), row == 1 ? 40 : 0) << "row " << row;
    EXPECT_EQ(reduce_max(of_row).item<float>(), row == 1 ? 40 : 0) << "row " << row;
  }
}

}  // namespace
}  // namespace lockstep::testing
