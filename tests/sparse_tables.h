// A table of which a step reads few rows, trained in several ways: for tests on all kinds of devices.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/optimizers.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::testing {

// dense: something else reads the gradient, so that it is made.
enum class How { sparse, dense, eager };

inline Tensor squares(const Variable& table, const Tensor& rows, const Tensor& wanted) {
  return reduce_sum(square(gather(table, rows) - wanted));
}

struct TableCase {
  std::string name;
  std::function<keras::optimizers::Optimizer()> optimizer;
  // Of the rows that are looked up, and what they are wanted to be.
  std::function<Tensor(const Variable& table, const Tensor& rows, const Tensor& wanted)> loss = squares;
  bool sparse = true;      // no gradient of the table's size is made
  bool converted = false;  // the gradient is more than one sum by row: the update makes it, whoever reads it
};

inline std::vector<TableCase> table_cases() {
  namespace o = keras::optimizers;
  const auto adam = [] { return o::Adam(); };
  std::vector<TableCase> cases;
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "nadam", "lion"})
    cases.push_back({name, [name] { return o::Optimizer(name); }});
  const std::vector<TableCase> settings = {
      {"nesterov", [] { return o::SGD({.momentum = 0.9, .nesterov = true}); }},
      {"amsgrad", [] { return o::Adam({.amsgrad = true}); }},
      {"average", [] { return o::Adam({.use_ema = true, .ema_overwrite_frequency = 2}); }},
      {"clipped_values", [] { return o::Adam({.clipvalue = 0.1}); }},
      {"clipped_norm", [] { return o::Adam({.clipnorm = 0.1}); }, squares, false},
      {"decayed", [] { return o::Adam({.weight_decay = 0.1}); }},
      {"scaled_loss", [] { return o::Adam({.loss_scale_factor = 128.0}); }},
      {"accumulated", [] { return o::Adam({.gradient_accumulation_steps = 2}); }},
      {"looked_up_twice", adam,
       [](const Variable& table, const Tensor& rows, const Tensor& wanted) {
         const Tensor others = floormod(rows * 3 + 1, table.spec().shape[0]);
         return reduce_sum(square(gather(table, rows) - wanted + gather(table, others)));
       },
       true, true},
      {"tied", adam,
       [](const Variable& table, const Tensor& rows, const Tensor& wanted) {
         const Tensor some = slice(gather(table, rows) - wanted, {0, 0}, {8, -1});
         return 1e-6 * reduce_sum(square(matmul(some, transpose(table))));
       },
       true, true},
      {"penalized", adam,
       [](const Variable& table, const Tensor& rows, const Tensor& wanted) {
         return squares(table, rows, wanted) + 1e-4 * reduce_sum(square(table));
       },
       true, true},
      {"in_16_bits", adam,
       [](const Variable& table, const Tensor& rows, const Tensor& wanted) {
         const Tensor found = gather(cast(table, DType::bfloat16), rows);
         return cast(reduce_sum(square(found - cast(wanted, DType::bfloat16))), DType::float32);
       },
       true, true}};
  cases.insert(cases.end(), settings.begin(), settings.end());
  return cases;
}

// A table, and an optimizer with what it remembers of it.
class TrainedTable {
 public:
  static constexpr int64_t kRows = 64 << 10, kWidth = 32;  // 4 MiB in 16 bits
  static constexpr int64_t kLookups = 256;  // a row that has a third of them is summed in parts

  explicit TrainedTable(const TableCase& c)
      : loss_(c.loss),
        table_(Tensor::from(numbers(kRows, 1), {kRows, kWidth}), {.name = "table"}),
        optimizer_(c.optimizer()) {
    optimizer_.build({table_});
  }

  // Makes three steps, with rows that are looked up once, several times and never, and returns all state.
  std::vector<std::vector<float>> train(How how) {
    const auto step = [&](const Tensor& rows, const Tensor& wanted) {
      GradientTape tape;
      const Tensor loss = optimizer_.scale_loss(loss_(table_, rows, wanted));
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

  decltype(TableCase::loss) loss_;
  Variable table_;
  keras::optimizers::Optimizer optimizer_;
  std::string explained_;
};

}  // namespace lockstep::testing
