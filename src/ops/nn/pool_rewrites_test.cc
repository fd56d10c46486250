#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "compile/passes/rewrite_test.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"
#include "ops/array/array.h"
#include "ops/array/join.h"
#include "ops/elementwise/ops.h"
#include "ops/nn/pool.h"

namespace lockstep {
namespace {

using lockstep::testing::count_ops;
using lockstep::testing::expect_same_results;
using lockstep::testing::results_of;
using lockstep::testing::rewritten;
using lockstep::testing::traced;

// A pooling of padded images behind a ReLU, with its gradient.
TensorList padded_pooling(const Tensor& x, bool behind_relu) {
  GradientTape tape;
  tape.watch(x);
  const Tensor images = behind_relu ? relu(x) : x * 2.0;
  const Tensor y = max_pool2d(pad(images, {0, 1, 1, 0}, {0, 1, 1, 0}), {.pool_size = {3}, .strides = {2}});
  return {y, tape.gradient(reduce_sum(y * y), x)};
}

TEST(PadInPooling, BehindARelu) {
  const SpecList specs{{DType::float32, {1, 5, 6, 2}}};
  const Graph graph = compile::simplify(
      traced(specs, [](const TensorList& in) { return padded_pooling(in[0], true); }), false);
  const Graph folded = rewritten("pad_in_pooling", graph);
  EXPECT_EQ(count_ops(graph, kPad), 1);
  EXPECT_EQ(count_ops(folded, kPad), 0);
  EXPECT_EQ(count_ops(folded, kStridedSlice), 0);
  expect_same_results(graph, folded, specs);
}

TEST(PadInPooling, NotOfWhatMayBeBelowZero) {
  const SpecList specs{{DType::float32, {1, 5, 6, 2}}};
  const Graph graph = compile::simplify(
      traced(specs, [](const TensorList& in) { return padded_pooling(in[0], false); }), false);
  EXPECT_EQ(count_ops(rewritten("pad_in_pooling", graph), kPad), 1);
}

// What a convolutional network does to a volume or an image, with the gradients of both operands.
TensorList pooled_convolution(const Tensor& x, const Tensor& filter, const Tensor& bias) {
  const bool volume = x.shape().rank() == 5;
  GradientTape tape;
  tape.watch(x);
  tape.watch(filter);
  tape.watch(bias);
  const Tensor images = relu((volume ? conv3d : conv2d)(x, filter, {.padding = "same"}) + bias);
  const Tensor y = (volume ? max_pool3d : max_pool2d)(images, {.pool_size = {2}});
  TensorList results = tape.gradient(reduce_sum(y * y), std::vector<GradientSource>{x, filter, bias});
  results.push_back(y);
  return results;
}

TEST(ReluBehindPooling, WithItsGradient) {
  const SpecList images{
      {DType::float32, {1, 5, 6, 2}}, {DType::float32, {3, 3, 2, 4}}, {DType::float32, {4}}},
      volumes{{DType::float32, {1, 4, 4, 6, 2}}, {DType::float32, {3, 3, 3, 2, 4}}, {DType::float32, {4}}};
  for (const SpecList& specs : {images, volumes}) {
    const Graph graph = compile::simplify(
        traced(specs, [](const TensorList& in) { return pooled_convolution(in[0], in[1], in[2]); }), false);
    const Graph moved = rewritten("relu_behind_pooling", graph, DeviceKind::cpu);
    const auto smallest = [](const Graph& g, const OpDef& op) {
      int64_t elements = std::numeric_limits<int64_t>::max();
      for (const Node& node : g.nodes)
        if (node.op == &op) elements = std::min(elements, node.outputs[0].shape.size());
      return elements;
    };
    const int64_t pooled = graph.spec(graph.outputs.back()).shape.size();
    EXPECT_EQ(count_ops(graph, kRelu), 0);  // the convolution does it
    EXPECT_EQ(count_ops(moved, kRelu), 1);
    EXPECT_EQ(smallest(moved, kRelu), pooled);
    EXPECT_GT(smallest(graph, kGreater), pooled);
    EXPECT_EQ(smallest(moved, kGreater), pooled);
    expect_same_results(graph, moved, specs);
  }
}

TEST(ReluBehindPooling, NotWhereItIsReadOtherwise) {
  const SpecList specs{{DType::float32, {1, 4, 6, 2}}};
  const auto with = [&](const std::function<Tensor(const Tensor& images, const Tensor& pooled)>& also) {
    return compile::simplify(traced(specs,
                                    [&](const TensorList& in) {
                                      const Tensor images = relu(in[0]);
                                      const Tensor y = max_pool2d(images, {.pool_size = {2}});
                                      return TensorList{y, also(images, y)};
                                    }),
                             false);
  };
  const auto moves = [](const Graph& graph) {
    const Graph after = rewritten("relu_behind_pooling", graph, DeviceKind::cpu);
    for (const Node& node : after.nodes)
      if (node.op == &kRelu) return node.outputs[0] != graph.nodes[0].outputs[0];
    return false;
  };
  EXPECT_TRUE(moves(with([](const Tensor&, const Tensor& y) { return y + 1.0; })));
  EXPECT_FALSE(moves(with([](const Tensor& images, const Tensor&) { return images; })));
  EXPECT_FALSE(moves(with([](const Tensor& images, const Tensor&) { return reduce_sum(images); })));
  EXPECT_FALSE(
      moves(with([](const Tensor& images, const Tensor&) { return cast(images > 0.0, DType::float32); })));
}

// Numbers of every kind: windows without a positive one, with ties and with NaN.
TEST(ReluBehindPooling, ComputesTheSame) {
  const auto pooled = [](const Tensor& x, const Pool2dOptions& options, bool two_readers) {
    GradientTape tape;
    tape.watch(x);
    const Tensor images = relu(x);
    Tensor y = max_pool2d(images, options);
    if (two_readers) y = y * max_pool2d(images, {.pool_size = {2}});
    return TensorList{y, tape.gradient(reduce_sum(y * y), x)};
  };
  const Shape shape{2, 8, 8, 3};
  std::vector<float> numbers(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = i % 7 == 0 ? 1.0f : -0.5f * static_cast<float>(i % 5);  // equal largest ones
  for (size_t i = 0; i < 48; ++i) numbers[i] = -1;
  for (const size_t i : {100U, 101U, 200U}) numbers[i] = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const auto& [options, two_readers] :
         {std::pair(Pool2dOptions{.pool_size = {2}}, false),
          std::pair(Pool2dOptions{.pool_size = {3}, .strides = {2}, .padding = "same"}, false),
          std::pair(Pool2dOptions{.pool_size = {2}}, true)}) {
      const Graph graph = compile::simplify(
          traced({{dtype, shape}}, [&, &options = options, &two_readers = two_readers](
                                       const TensorList& in) { return pooled(in[0], options, two_readers); }),
          false);
      const Graph moved = rewritten("relu_behind_pooling", graph, DeviceKind::cpu);
      const Tensor x = cast(Tensor::from(numbers, shape), dtype);
      const TensorList before = results_of(graph, {x}), after = results_of(moved, {x});
      for (size_t k = 0; k < before.size(); ++k) {
        const auto a = cast(before[k], DType::float32).to_vector<float>(),
                   b = cast(after[k], DType::float32).to_vector<float>();
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
              << name(dtype) << (two_readers ? ", two readers" : "") << ", result " << k << ", element " << i
              << ": " << a[i] << " and " << b[i];
      }
    }
}

// No smaller: there is nothing to gain.
TEST(ReluBehindPooling, NotWhereNothingGetsSmaller) {
  const SpecList specs{{DType::float32, {1, 5, 5, 1}}};
  const Graph graph =
      compile::simplify(traced(specs,
                               [](const TensorList& in) {
                                 return TensorList{max_pool2d(
                                     relu(in[0]), {.pool_size = {3}, .strides = {1}, .padding = "same"})};
                               }),
                        false);
  EXPECT_EQ(rewritten("relu_behind_pooling", graph, DeviceKind::cpu).nodes.size(), graph.nodes.size());
  EXPECT_EQ(graph.nodes[1].op, &kRelu);
  EXPECT_EQ(rewritten("relu_behind_pooling", graph, DeviceKind::cpu).nodes[1].op, &kRelu);
}

}  // namespace
}  // namespace lockstep
