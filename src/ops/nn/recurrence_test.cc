// What recurrences promise beyond the op harness.
#include "ops/nn/recurrence.h"

#include <gtest/gtest.h>

#include "lockstep/ops/array.h"
#include "ops/run_kernel_test.h"

namespace lockstep {
namespace {

using testing::random_tensor;
using testing::run_kernel;
using testing::same_bits;

constexpr int64_t kTime = 6, kBatch = 23, kUnits = 37;

// Examples [from, from + count) of an input: of (time, batch, ...), (batch, units) or, where all share it,
// the whole.
Tensor examples(const Tensor& x, int64_t from, int64_t count) {
  const Shape& shape = x.shape();
  if (shape.rank() == 3) return slice(x, {0, from, 0}, {-1, count, -1});
  if (shape == Shape{kTime, kBatch}) return slice(x, {0, from}, {-1, count});
  if (shape == Shape{kBatch, kUnits}) return slice(x, {from, 0}, {count, -1});
  return x;
}

void expect_rows_alone(const OpDef& op, const TensorList& inputs, const RecurrenceAttrs& attrs) {
  const TensorList whole = run_kernel(op, inputs, attrs, 2);
  for (const auto& [from, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 5}, {6, 17}}) {
    TensorList part;
    for (const Tensor& input : inputs) part.push_back(examples(input, from, count));
    const TensorList alone = run_kernel(op, part, attrs, 1);
    for (size_t k = 0; k < alone.size(); ++k)
      EXPECT_TRUE(same_bits(alone[k], examples(whole[k], from, count)))
          << op.name << " of kind " << static_cast<int>(attrs.kind) << ", result " << k << ", examples from "
          << from;
  }
}

TEST(Recurrence, BitsDoNotDependOnOtherExamples) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64})
    for (const RecurrentKind kind : {RecurrentKind::simple, RecurrentKind::lstm, RecurrentKind::gru}) {
      RecurrenceAttrs attrs{.kind = kind, .mask = true};
      unsigned seed = 1;
      const auto make = [&](const Shape& shape) { return random_tensor(dtype, shape, seed++); };
      const Shape state{kBatch, kUnits}, states{kTime, kBatch, kUnits};
      const int64_t gates = attrs.gates() * kUnits;
      const Tensor mask = random_tensor(DType::boolean, {kTime, kBatch}, seed++);
      TensorList inputs = {make({kTime, kBatch, gates}), make({kUnits, gates}), make(state)};
      if (attrs.lstm()) inputs.push_back(make(state));
      if (attrs.gru()) inputs.push_back(make({gates}));
      inputs.push_back(mask);
      expect_rows_alone(kRecurrence, inputs, attrs);

      attrs.steps = attrs.last = true;
      inputs = {make({kUnits, gates}), make(state), make(states)};
      if (attrs.kept_parts() > 0) inputs.push_back(make({kTime, kBatch, 4 * kUnits}));
      inputs.push_back(mask);
      inputs.push_back(make(states));
      inputs.push_back(make(state));
      expect_rows_alone(kRecurrenceGrad, inputs, attrs);
    }
}

}  // namespace
}  // namespace lockstep
