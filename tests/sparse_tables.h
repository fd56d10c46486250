// A table of which a step reads few rows, trained in several ways: for tests on all kinds of devices.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::testing {

// dense: something else reads the gradient, so that it is made.
enum class How { sparse, dense, eager };

// A table, and an optimizer with what it remembers of it.
class TrainedTable {
 public:
  static constexpr int64_t kRows = 32 << 10, kWidth = 32, kLookups = 64;  // 4 MiB of float32

  explicit TrainedTable(const std::string& optimizer)
      : table_(Tensor::from(numbers(kRows, 1), {kRows, kWidth}), {.name = "table"}), optimizer_(optimizer) {
    optimizer_.build({table_});
  }

  // Makes three steps, with rows that are looked up once, several times and never, and returns all state.
  std::vector<std::vector<float>> train(How how) {
    const auto step = [&](const Tensor& rows, const Tensor& wanted) {
      GradientTape tape;
      const Tensor loss = reduce_sum(square(gather(table_, rows) - wanted));
      const Tensor gradient = tape.gradient(loss, table_);
      const Tensor result = how == How::dense ? loss + 0.0 * reduce_max(abs(gradient)) : loss;
      optimizer_.apply_gradients(std::array{gradient}, {table_});
      return result;
    };
    auto compiled = function(step);
    std::vector<std::vector<float>> results;
    for (int64_t i = 0; i < 3; ++i) {
      std::vector<int64_t> rows(kLookups);
      for (int64_t k = 0; k < kLookups; ++k)
        rows[static_cast<size_t>(k)] = k % 3 == 0 ? 5 : (k * 977 + i * 31) % kRows;
      const Tensor x = Tensor::from(rows, {kLookups}),
                   y = Tensor::from(numbers(kLookups, i), {kLookups, kWidth});
      if (how != How::eager) explained_ = compiled.explain(x, y);
      results.push_back((how == How::eager ? step(x, y) : compiled(x, y)).to_vector<float>());
    }
    results.push_back(table_.value().to_vector<float>());
    for (const Variable& v : optimizer_.variables())
      if (v.dtype() == DType::float32) results.push_back(v.value().to_vector<float>());
    return results;
  }
  const std::string& explained() const { return explained_; }

 private:
  static std::vector<float> numbers(int64_t rows, int64_t seed) {
    std::vector<float> values(static_cast<size_t>(rows * kWidth));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 0.01f * static_cast<float>((i * 7919 + static_cast<size_t>(seed) * 104729) % 199) - 1;
    return values;
  }

  Variable table_;
  keras::optimizers::Optimizer optimizer_;
  std::string explained_;
};

}  // namespace lockstep::testing
