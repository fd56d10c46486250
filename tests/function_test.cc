// tf::function: what a traced function promises its caller, whatever the compiler makes of it.
#include "lockstep/execute/function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error_of_test.h"
#include "devices.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/graph/variable.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Floats = std::vector<float>;

Tensor floats(const Floats& values) { return Tensor::from(values, {static_cast<int64_t>(values.size())}); }
Tensor matrix(int64_t rows, int64_t columns, const Floats& values) {
  return Tensor::from(values, {rows, columns});
}
Floats read(const Tensor& tensor) { return tensor.to_vector<float>(); }
Floats read(const Variable& variable) { return variable.value().to_vector<float>(); }

// --- tracing and caching -----------------------------------------------------------------------------------

TEST(Function, IsTracedOncePerSignature) {
  int calls = 0;
  auto f = function([&](const Tensor& x) {
    ++calls;
    return x + x;
  });
  EXPECT_EQ(f.traces(), 0);
  for (const float value : {1.0f, 2.0f, 3.0f})
    EXPECT_THAT(read(f(floats({value, 0}))), ElementsAre(2 * value, 0));
  EXPECT_EQ(f.traces(), 1);
  f(floats({1, 2, 3}));
  EXPECT_EQ(f.traces(), 2);
  f(Tensor::from<int32_t>({1, 2}, {2}));
  EXPECT_EQ(f.traces(), 3);
  f(matrix(1, 2, {1, 2}));
  EXPECT_EQ(f.traces(), 4);
  // Everything seen before is still there.
  f(floats({1, 2}));
  f(floats({1, 2, 3}));
  EXPECT_EQ(f.traces(), 4);
  EXPECT_EQ(calls, 4) << "C++ side effects happen while tracing alone";
}

TEST(Function, WarnsOfRepeatedTracingAndNamesTheArgument) {
  std::vector<std::string> warnings;
  const LogSink previous = set_log_sink([&](const LogMessage& m) {
    if (m.level == LogLevel::warning) warnings.emplace_back(m.text);
  });
  auto f = function([](const Tensor& a, const Tensor& b) { return a + reduce_sum(b); }, {.name = "grows"});
  const Tensor a = floats({1});
  for (int64_t n = 1; n <= 5; ++n) f(a, zeros({n}));
  EXPECT_THAT(warnings, IsEmpty());
  f(a, zeros({6}));
  set_log_sink(previous);
  EXPECT_THAT(warnings,
              ElementsAre(AllOf(HasSubstr("\"grows\""), HasSubstr("6th time"), HasSubstr("argument 1"),
                                HasSubstr("float32(6,)"), HasSubstr("float32(5,)"))));
}

TEST(Function, CapturesTensorsWithTheValueTheyHave) {
  Tensor scale = floats({2, 3});
  auto f = function([&](const Tensor& x) { return x * scale; });
  EXPECT_THAT(read(f(floats({1, 1}))), ElementsAre(2, 3));
  scale = floats({10, 10});  // another tensor: the compiled program keeps the one it saw
  EXPECT_THAT(read(f(floats({1, 1}))), ElementsAre(2, 3));
}

TEST(Function, CapturesStridedViews) {
  const Tensor square = matrix(2, 2, {1, 2, 3, 4});
  const Tensor across = transpose(square);
  const Tensor column = slice(square, {0, 1}, {2, 1});
  auto f = function([&](const Tensor& x) { return TensorList{matmul(across, x), x + column, across}; });
  const TensorList out = f(matrix(2, 2, {1, 0, 0, 1}));
  EXPECT_THAT(read(out[0]), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(read(out[1]), ElementsAre(3, 2, 4, 5));
  EXPECT_THAT(read(out[2]), ElementsAre(1, 3, 2, 4));
}

TEST(Function, NestedFunctionsJoinTheOuterTrace) {
  const Variable count(Tensor::scalar(0.0f), {.name = "count"});
  auto inner = function([&](const Tensor& x) {
    count.assign_add(ones({}));
    return x * 2.0;
  });
  auto outer = function([&](const Tensor& x) { return inner(inner(x)) + 1.0; });
  EXPECT_THAT(read(outer(floats({1, 2}))), ElementsAre(5, 9));
  EXPECT_THAT(read(outer(floats({1, 3}))), ElementsAre(5, 13));
  EXPECT_EQ(inner.traces(), 0);
  EXPECT_EQ(outer.traces(), 1);
  EXPECT_EQ(count.value().item<float>(), 4);
}

// --- arguments ---------------------------------------------------------------------------------------------

TEST(Function, UnusedArgumentsMayComeInAnyPlace) {
  auto f = function([](const Tensor&, const Tensor& x, const Tensor&) { return x + 1.0; });
  EXPECT_THAT(read(f(Tensor::from<int32_t>({7}, {1}), floats({1, 2}), Tensor::scalar(1.0))),
              ElementsAre(2, 3));
  auto g = function([](const Tensor&) { return ones({2}); });
  EXPECT_THAT(read(g(floats({5, 6, 7}))), ElementsAre(1, 1));
}

TEST(Function, TakesNoArguments) {
  const Variable v(floats({1, 2}));
  auto f = function([&] { return v * 3.0; });
  EXPECT_THAT(read(f()), ElementsAre(3, 6));
  v.assign(floats({2, 2}));
  EXPECT_THAT(read(f()), ElementsAre(6, 6));
}

TEST(Function, StridedArgumentsAreReadInTheirOrder) {
  auto f = function([](const Tensor& a, const Tensor& b) { return std::pair(a - b, matmul(a, b)); });
  const Tensor m = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  const Tensor columns = slice(m, {0, 1}, {2, 2});            // 2 3 / 5 6
  const Tensor across = transpose(slice(m, {0, 0}, {2, 2}));  // 1 4 / 2 5
  const auto [difference, product] = f(columns, across);
  EXPECT_THAT(read(difference), ElementsAre(1, -1, 3, 1));
  EXPECT_THAT(read(product), ElementsAre(8, 23, 17, 50));
  // The same signature with contiguous arguments afterwards.
  const auto [second, ignored] = f(matrix(2, 2, {1, 1, 1, 1}), matrix(2, 2, {0, 0, 0, 1}));
  EXPECT_THAT(read(second), ElementsAre(1, 1, 1, 0));
}

TEST(Function, TheSameTensorForEveryArgument) {
  auto f = function([](const Tensor& a, const Tensor& b) { return a * b; });
  const Tensor x = floats({2, 3});
  EXPECT_THAT(read(f(x, x)), ElementsAre(4, 9));
  EXPECT_THAT(read(f(x, floats({1, 1}))), ElementsAre(2, 3));
}

TEST(Function, RunsWhereItsArgumentsAreAndCopiesThemIntoAScope) {
  auto f = function([](const Tensor& x) { return x + 1.0; });
  EXPECT_THAT(read(f(floats({1}))), ElementsAre(2));
  const Tensor remote = floats({41}).to(*first_devices(2)[1]);
  EXPECT_EQ(&f(remote).device(), first_devices(2)[1]);
  const DeviceScope scope(*first_devices(1)[0]);
  const Tensor result = f(remote);
  EXPECT_THAT(read(result), ElementsAre(42));
  EXPECT_EQ(&result.device(), first_devices(1)[0]);
}

TEST(Function, ZeroSizeTensors) {
  const Variable v(zeros({0, 3}));
  auto f = function([&](const Tensor& x) {
    v.assign(v + 1.0);
    return std::tuple(x * 2.0 + 1.0, reduce_sum(x), transpose(x), concat(TensorList{x, ones({2, 3})}, 0));
  });
  for (int run = 0; run < 2; ++run) {
    const auto [same, sum, across, longer] = f(zeros({0, 3}));
    EXPECT_EQ(same.shape(), Shape({0, 3}));
    EXPECT_EQ(sum.item<float>(), 0);
    EXPECT_EQ(across.shape(), Shape({3, 0}));
    EXPECT_THAT(read(longer), ElementsAre(1, 1, 1, 1, 1, 1));
  }
}

TEST(Function, ProductsOverNothingAreZeroButForTheirBias) {
  auto f = function(
      [](const Tensor& x, const Tensor& w, const Tensor& bias) { return relu(matmul(x, w) + bias); });
  const Tensor bias = floats({1, -2, 3});
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(read(f(zeros({2, 0}), zeros({0, 3}), bias)), ElementsAre(1, 0, 3, 1, 0, 3));
    EXPECT_EQ(f(zeros({0, 4}), zeros({4, 3}), bias).shape(), Shape({0, 3}));
  }
}

TEST(Function, RunsOnTheDeviceThatIsCurrentAtTheCall) {
  auto f = function([](const Tensor& x) { return x * 2.0; });
  const auto devices = first_devices(2);
  EXPECT_EQ(&f(floats({1})).device(), devices[0]);
  const DeviceScope scope(*devices[1]);
  devices[1]->reset_counters();
  EXPECT_EQ(&f(floats({1})).device(), devices[1]);
  EXPECT_GT(devices[1]->counters().kernels, 0);
}

// --- results -----------------------------------------------------------------------------------------------

TEST(Function, ReturnsNothing) {
  const Variable v(floats({1}));
  auto f = function([&](const Tensor& x) { v.assign_add(x); });
  f(floats({2}));
  f(floats({3}));
  EXPECT_THAT(read(v), ElementsAre(6));
}

TEST(Function, ReturnsTuplesPairsAndLists) {
  auto tuple = function([](const Tensor& x) { return std::tuple(x, x + 1.0, x + 2.0); });
  const auto [a, b, c] = tuple(floats({1}));
  EXPECT_THAT((Floats{read(a)[0], read(b)[0], read(c)[0]}), ElementsAre(1, 2, 3));
  auto pair = function([](const Tensor& x, const Tensor& y) { return std::pair(x - y, y - x); });
  const auto [d, e] = pair(floats({5}), floats({3}));
  EXPECT_THAT((Floats{read(d)[0], read(e)[0]}), ElementsAre(2, -2));
  auto list = function([](const Tensor& x) {
    TensorList all;
    for (int i = 0; i < 5; ++i) all.push_back(x * static_cast<double>(i));
    return all;
  });
  const TensorList results = list(floats({2}));
  ASSERT_EQ(results.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_THAT(read(results[i]), ElementsAre(2.0f * static_cast<float>(i)));
}

TEST(Function, ReturnsAnArrayOfTensors) {
  auto f = function([](const Tensor& x) -> TensorList { return {x, x}; });
  const TensorList both = f(floats({3}));
  EXPECT_THAT(read(both[0]), ElementsAre(3));
  EXPECT_THAT(read(both[1]), ElementsAre(3));
}

TEST(Function, ResultsMayBeArgumentsConstantsCapturesVariablesViewsAndDuplicates) {
  const Tensor outside = floats({9, 8});
  const Variable v(floats({7, 6}));
  auto f = function([&](const Tensor& x) {
    const Tensor doubled = x * 2.0;
    return TensorList{x,
                      ones({2}),
                      outside,
                      v.value(),
                      transpose(x),
                      reshape(doubled, {4}),
                      doubled,
                      doubled,
                      slice(x, {1, 0}, {1, 2}),
                      broadcast_to(slice(doubled, {0, 1}, {1, 1}), {2, 2})};
  });
  const Tensor x = matrix(2, 2, {1, 2, 3, 4});
  for (int run = 0; run < 3; ++run) {
    const TensorList out = f(x);
    EXPECT_THAT(read(out[0]), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(read(out[1]), ElementsAre(1, 1));
    EXPECT_THAT(read(out[2]), ElementsAre(9, 8));
    EXPECT_THAT(read(out[3]), ElementsAre(7, 6));
    EXPECT_THAT(read(out[4]), ElementsAre(1, 3, 2, 4));
    EXPECT_THAT(read(out[5]), ElementsAre(2, 4, 6, 8));
    EXPECT_EQ(out[5].shape(), Shape({4}));
    EXPECT_THAT(read(out[6]), ElementsAre(2, 4, 6, 8));
    EXPECT_THAT(read(out[7]), ElementsAre(2, 4, 6, 8));
    EXPECT_EQ(out[7].shape(), Shape({2, 2}));
    EXPECT_THAT(read(out[8]), ElementsAre(3, 4));
    EXPECT_THAT(read(out[9]), ElementsAre(4, 4, 4, 4));
  }
}

TEST(Function, ResultsThatAreHeldAreNotOverwritten) {
  auto f = function([](const Tensor& x) { return std::pair(x + 1.0, x * 10.0); });
  std::vector<std::pair<Tensor, Tensor>> held;
  for (int i = 0; i < 9; ++i) held.push_back(f(floats({static_cast<float>(i)})));
  for (int i = 0; i < 9; ++i) {
    EXPECT_THAT(read(held[static_cast<size_t>(i)].first), ElementsAre(static_cast<float>(i + 1)));
    EXPECT_THAT(read(held[static_cast<size_t>(i)].second), ElementsAre(static_cast<float>(10 * i)));
  }
}

TEST(Function, AViewOfAResultKeepsItsMemory) {
  auto f = function([](const Tensor& x) { return x + 1.0; });
  Tensor result = f(matrix(2, 2, {1, 2, 3, 4}));
  const Tensor row = slice(result, {1, 0}, {1, 2});
  result = Tensor();
  for (int i = 0; i < 6; ++i) f(matrix(2, 2, {0, 0, 0, 0}));
  EXPECT_THAT(read(row), ElementsAre(4, 5));
}

TEST(Function, AResultFedBackAsArgumentIsRead) {
  auto f = function([](const Tensor& x) { return x * 2.0; });
  Tensor x = floats({1, 3});
  for (int i = 0; i < 10; ++i) x = f(x);
  EXPECT_THAT(read(x), ElementsAre(1024, 3072));
}

TEST(Function, AResultThatBecameAVariableIsNotOverwritten) {
  auto f = function([](const Tensor& x) { return x + 1.0; });
  const Variable v(zeros({1}));
  v.assign(f(floats({4})));
  for (int i = 0; i < 6; ++i) f(floats({100}));
  EXPECT_THAT(read(v), ElementsAre(5));
}

// --- variables ---------------------------------------------------------------------------------------------

TEST(FunctionVariables, AreReadAtEveryCall) {
  const Variable v(floats({1}));
  auto f = function([&](const Tensor& x) { return x + v; });
  EXPECT_THAT(read(f(floats({1}))), ElementsAre(2));
  v.assign(floats({10}));
  EXPECT_THAT(read(f(floats({1}))), ElementsAre(11));
  EXPECT_EQ(f.traces(), 1);
}

TEST(FunctionVariables, AssignmentsHappenInProgramOrder) {
  const Variable v(floats({1}));
  auto f = function([&](const Tensor& x) {
    const Tensor before = v.value();
    v.assign(v * 2.0);
    const Tensor between = v.value();
    v.assign_add(x);
    const Tensor after = v.value();
    v.assign_sub(ones({1}));
    return TensorList{before, between, after, before + between + after};
  });
  TensorList out = f(floats({5}));
  EXPECT_THAT(read(out[0]), ElementsAre(1));
  EXPECT_THAT(read(out[1]), ElementsAre(2));
  EXPECT_THAT(read(out[2]), ElementsAre(7));
  EXPECT_THAT(read(out[3]), ElementsAre(10));
  EXPECT_THAT(read(v), ElementsAre(6));
  out = f(floats({0}));
  EXPECT_THAT(read(out[3]), ElementsAre(6 + 12 + 12));
  EXPECT_THAT(read(v), ElementsAre(11));
}

TEST(FunctionVariables, TheOldValueMayBeUsedAfterTheUpdate) {
  const Variable w(matrix(2, 2, {1, 2, 3, 4}));
  auto f = function([&](const Tensor& x) {
    const Tensor old = w.value();
    w.assign(w + 1.0);
    // Neither reader is elementwise, so neither can share a pass with the update.
    return std::pair(matmul(x, old), matmul(x, w.value()));
  });
  const Tensor x = matrix(1, 2, {1, 1});
  for (const float start : {0.0f, 1.0f, 2.0f}) {
    const auto [before, after] = f(x);
    EXPECT_THAT(read(before), ElementsAre(4 + 2 * start, 6 + 2 * start));
    EXPECT_THAT(read(after), ElementsAre(6 + 2 * start, 8 + 2 * start));
  }
}

TEST(FunctionVariables, TwoVariablesAreSwapped) {
  const Variable a(floats({1, 2})), b(floats({3, 4}));
  auto swap = function([&] {
    const Tensor old = a.value();
    a.assign(b.value());
    b.assign(old);
  });
  swap();
  EXPECT_THAT(read(a), ElementsAre(3, 4));
  EXPECT_THAT(read(b), ElementsAre(1, 2));
  swap();
  EXPECT_THAT(read(a), ElementsAre(1, 2));
  EXPECT_THAT(read(b), ElementsAre(3, 4));
}

TEST(FunctionVariables, ThreeVariablesRotate) {
  const Variable a(floats({1})), b(floats({2})), c(floats({3}));
  auto rotate = function([&] {
    const Tensor first = a.value();
    a.assign(b.value());
    b.assign(c.value());
    c.assign(first);
  });
  rotate();
  EXPECT_THAT((Floats{read(a)[0], read(b)[0], read(c)[0]}), ElementsAre(2, 3, 1));
  rotate();
  EXPECT_THAT((Floats{read(a)[0], read(b)[0], read(c)[0]}), ElementsAre(3, 1, 2));
}

TEST(FunctionVariables, SwappedWithArithmetic) {
  const Variable a(floats({1, 2})), b(floats({3, 4}));
  auto f = function([&] {
    const Tensor old = a.value();
    a.assign(b * 10.0);
    b.assign(old * 100.0);
  });
  f();
  EXPECT_THAT(read(a), ElementsAre(30, 40));
  EXPECT_THAT(read(b), ElementsAre(100, 200));
}

TEST(FunctionVariables, AnotherVariableTakesTheOldValueAfterTheUpdate) {
  const Variable v(floats({1, 2})), previous(zeros({2}));
  auto f = function([&](const Tensor& x) {
    const Tensor old = v.value();
    v.assign(v + x);
    previous.assign(old);
  });
  f(floats({10, 10}));
  EXPECT_THAT(read(v), ElementsAre(11, 12));
  EXPECT_THAT(read(previous), ElementsAre(1, 2));
  f(floats({1, 1}));
  EXPECT_THAT(read(v), ElementsAre(12, 13));
  EXPECT_THAT(read(previous), ElementsAre(11, 12));
}

TEST(FunctionVariables, AVariableIsUpdatedFromViewsOfItself) {
  const Variable v(matrix(2, 2, {1, 2, 3, 4}));
  auto flip = function([&] { v.assign(transpose(v)); });
  flip();
  EXPECT_THAT(read(v), ElementsAre(1, 3, 2, 4));

  Floats numbers;
  for (int i = 0; i < 40 * 40; ++i) numbers.push_back(static_cast<float>(i));
  const Variable large(matrix(40, 40, numbers));
  auto symmetric = function([&] { large.assign(large + transpose(large)); });
  symmetric();
  const Floats sums = read(large);
  for (int i = 0; i < 40; ++i)
    for (int j = 0; j < 40; ++j)
      ASSERT_EQ(sums[static_cast<size_t>(i * 40 + j)], static_cast<float>(41 * (i + j))) << i << ' ' << j;

  const Variable rows(matrix(40, 40, numbers));
  auto relative = function([&] { rows.assign(rows - slice(rows, {0, 0}, {1, 40})); });
  relative();
  const Floats differences = read(rows);
  for (int i = 0; i < 40; ++i)
    for (int j = 0; j < 40; ++j)
      ASSERT_EQ(differences[static_cast<size_t>(i * 40 + j)], static_cast<float>(40 * i)) << i << ' ' << j;
}

TEST(FunctionVariables, TakeViewsArgumentsConstantsAndCaptures) {
  const Tensor outside = matrix(2, 2, {5, 6, 7, 8});
  const Variable a(zeros({2, 2})), b(zeros({2, 2})), c(zeros({2, 2})), d(zeros({2, 2})), e(zeros({2, 2}));
  auto f = function([&](const Tensor& x) {
    a.assign(transpose(x));
    b.assign(x);
    c.assign(ones({2, 2}));
    d.assign(outside);
    e.assign(broadcast_to(slice(x, {0, 0}, {1, 2}), {2, 2}));
  });
  const Tensor x = matrix(2, 2, {1, 2, 3, 4});
  f(x);
  EXPECT_THAT(read(a), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(read(b), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read(c), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(read(d), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(read(e), ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(read(x), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read(outside), ElementsAre(5, 6, 7, 8));
}

TEST(FunctionVariables, OneValueGoesToTwoVariablesAndTheCaller) {
  const Variable a(zeros({2})), b(zeros({2}));
  auto f = function([&](const Tensor& x) {
    const Tensor y = x * 3.0;
    a.assign(y);
    b.assign(y);
    return std::pair(y, y + 1.0);
  });
  const auto [y, z] = f(floats({1, 2}));
  EXPECT_THAT(read(y), ElementsAre(3, 6));
  EXPECT_THAT(read(z), ElementsAre(4, 7));
  EXPECT_THAT(read(a), ElementsAre(3, 6));
  EXPECT_THAT(read(b), ElementsAre(3, 6));
  a.assign_add(ones({2}));
  EXPECT_THAT(read(b), ElementsAre(3, 6));
}

TEST(FunctionVariables, AssignedTheirOwnValueStayAsTheyAre) {
  const Variable v(floats({1, 2}));
  auto f = function([&] {
    v.assign(v.value());
    return v.value();
  });
  EXPECT_THAT(read(f()), ElementsAre(1, 2));
  EXPECT_THAT(read(v), ElementsAre(1, 2));
}

TEST(FunctionVariables, WhatWasReadBeforeAStepKeepsItsValue) {
  const Variable v(floats({1, 2}));
  auto f = function([&](const Tensor& x) { v.assign_add(x); });
  const Tensor first = v.value();
  const Tensor view = reshape(v, {2, 1});
  f(floats({1, 1}));
  const Tensor second = v.value();
  f(floats({1, 1}));
  EXPECT_THAT(read(first), ElementsAre(1, 2));
  EXPECT_THAT(read(view), ElementsAre(1, 2));
  EXPECT_THAT(read(second), ElementsAre(2, 3));
  EXPECT_THAT(read(v), ElementsAre(3, 4));
}

TEST(FunctionVariables, AnArgumentThatIsTheVariablesValueIsNotOverwritten) {
  const Variable v(floats({1, 2}));
  auto f = function([&](const Tensor& x) {
    v.assign(v * 10.0);
    return x + 1.0;
  });
  EXPECT_THAT(read(f(v.value())), ElementsAre(2, 3));
  EXPECT_THAT(read(v), ElementsAre(10, 20));
}

TEST(FunctionVariables, TheTensorAVariableWasMadeFromIsNotOverwritten) {
  const Tensor initial = floats({1, 2});
  const Variable v(initial), twin(initial);
  auto f = function([&] { v.assign(v + 1.0); });
  f();
  EXPECT_THAT(read(initial), ElementsAre(1, 2));
  EXPECT_THAT(read(twin), ElementsAre(1, 2));
  EXPECT_THAT(read(v), ElementsAre(2, 3));
  twin.assign(v.value());
  f();
  EXPECT_THAT(read(twin), ElementsAre(2, 3));
}

TEST(FunctionVariables, AssignedAStridedValueOutsideAreReadRightInside) {
  const Variable v(zeros({2, 2}));
  auto f = function([&] { return v + 0.5; });
  v.assign(transpose(matrix(2, 2, {1, 2, 3, 4})));
  EXPECT_THAT(read(f()), ElementsAre(1.5, 3.5, 2.5, 4.5));
  v.assign(slice(matrix(2, 3, {1, 2, 3, 4, 5, 6}), {0, 1}, {2, 2}));
  EXPECT_THAT(read(f()), ElementsAre(2.5, 3.5, 5.5, 6.5));
}

TEST(FunctionVariables, OnAnotherDeviceAreMirroredAndWrittenBack) {
  Device& far = *first_devices(2)[1];
  const Variable v(floats({1, 2}).to(far));
  auto f = function([&](const Tensor& x) {
    v.assign(v + x);
    return v.value();
  });
  EXPECT_THAT(read(f(floats({1, 1}))), ElementsAre(2, 3));
  EXPECT_THAT(read(f(floats({1, 1}))), ElementsAre(3, 4));
  EXPECT_THAT(read(v), ElementsAre(3, 4));
  EXPECT_EQ(&v.value().device(), &far);
  v.assign(floats({10, 10}).to(far));
  EXPECT_THAT(read(f(floats({1, 1}))), ElementsAre(11, 11));
}

TEST(FunctionVariables, KeepTheirDeviceWhenAssignedAValueFromAnother) {
  const auto devices = first_devices(2);
  const Variable v(floats({1, 2}));
  v.assign(floats({3, 4}).to(*devices[1]));
  EXPECT_EQ(&v.value().device(), devices[0]);
  EXPECT_THAT(read(v), ElementsAre(3, 4));
}

// --- under tapes -------------------------------------------------------------------------------------------

TEST(FunctionUnderTapes, RunsOpByOpAndCanBeDifferentiated) {
  const Variable w(floats({3}));
  auto f = function([&](const Tensor& x) { return square(x * w); });
  const Tensor x = floats({2});
  f(x);
  GradientTape tape;
  tape.watch(x);
  const Tensor y = f(x);
  const std::vector<GradientSource> sources = {w, x};
  const TensorList gradients = tape.gradient(y, sources);
  EXPECT_THAT(read(y), ElementsAre(36));
  EXPECT_THAT(read(gradients[0]), ElementsAre(2 * 6 * 2));
  EXPECT_THAT(read(gradients[1]), ElementsAre(2 * 6 * 3));
  EXPECT_EQ(f.traces(), 1);
}

// --- wrong use ---------------------------------------------------------------------------------------------

TEST(FunctionErrors, ReadingAValueWhileTracingNamesTheLine) {
  const uint32_t line = std::source_location::current().line() + 1;
  auto f = function([](const Tensor& x) { return x.item<float>() > 0 ? x : -x; }, {.name = "branches"});
  const Error error = error_of([&] { f(floats({1})); });
  EXPECT_EQ(error.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("while tracing"), HasSubstr("float32(1,)")));
  EXPECT_EQ(error.where().line(), line);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("\"branches\""), HasSubstr("function_test.cc")));
  // to_vector, data and device are no better.
  EXPECT_THROW(function([](const Tensor& x) { return x.to_vector<float>().empty() ? x : -x; })(floats({1})),
               Error);
  EXPECT_THROW(function([](const Tensor& x) { return x.data<float>().empty() ? x : -x; })(floats({1})),
               Error);
  EXPECT_THROW(function([](const Tensor& x) { return x.to(*first_devices(2)[1]); })(floats({1})), Error);
}

TEST(FunctionErrors, ATensorThatLeakedOutOfTheTraceIsOfNoUse) {
  Tensor leaked;
  auto f = function([&](const Tensor& x) {
    leaked = x * 2.0;
    return x;
  });
  f(floats({1}));
  ASSERT_TRUE(leaked.symbolic());
  const Error used = error_of([&] { leaked + 1.0; });
  EXPECT_EQ(used.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(used.message(), HasSubstr("traced function that has ended"));
  EXPECT_THROW(leaked.item<float>(), Error);
  EXPECT_THROW(f(leaked), Error);
  const Variable v(zeros({1}));
  EXPECT_THROW(v.assign(leaked), Error);
  auto g = function([&](const Tensor& x) { return x + leaked; }, {.name = "second"});
  const Error captured = error_of([&] { g(floats({1})); });
  EXPECT_EQ(captured.code(), ErrorCode::failed_precondition);
  EXPECT_THAT(captured.what(), AllOf(HasSubstr("another traced function"), HasSubstr("\"second\"")));
}

TEST(FunctionErrors, ReturningNoneIsRefused) {
  auto f = function([](const Tensor&) { return Tensor(); }, {.name = "empty_handed"});
  const Error error = error_of([&] { f(floats({1})); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("returned an undefined tensor"), HasSubstr("\"empty_handed\"")));
}

TEST(FunctionErrors, NoneAsArgumentIsRefused) {
  auto f = function([](const Tensor& x, const Tensor& y) { return x + y; }, {.name = "sum"});
  const Error error = error_of([&] { f(floats({1}), Tensor()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"sum\""), HasSubstr("argument 1")));
}

TEST(FunctionErrors, VariablesAreNotMadeFromTracedTensors) {
  auto f = function([](const Tensor& x) { return Variable(x).value(); });
  EXPECT_EQ(error_of([&] { f(floats({1})); }).code(), ErrorCode::failed_precondition);
}

TEST(FunctionErrors, AFailedTraceLeavesNothingBehind) {
  bool fails = true;
  const Variable v(floats({1}));
  auto f = function([&](const Tensor& x) {
    v.assign_add(x);
    if (fails) return x + zeros({2, 7});
    return x * 2.0;
  });
  EXPECT_EQ(error_of([&] { f(floats({1, 2, 3})); }).code(), ErrorCode::shape_mismatch);
  EXPECT_THAT(read(v), ElementsAre(1));
  EXPECT_THAT(read(floats({1}) + 1.0), ElementsAre(2)) << "ops outside run eagerly again";
  fails = false;
  EXPECT_THAT(read(f(floats({5}))), ElementsAre(10));
  EXPECT_THAT(read(v), ElementsAre(6));
}

// --- figures, explanations, random numbers -----------------------------------------------------------------

TEST(FunctionFigures, CountFlopsLaunchesAndMemory) {
  auto f = function([](const Tensor& a, const Tensor& b) {
    const Tensor hidden = tanh(matmul(a, b)) * 2.0;
    return matmul(hidden, b, {.transpose_b = true});
  });
  const Tensor a = zeros({8, 16}), b = zeros({16, 32});
  const ProgramStatistics figures = f.statistics(a, b);
  EXPECT_EQ(f.traces(), 1);
  const int64_t products = 2 * (2 * 8 * 16 * 32);
  EXPECT_GE(figures.flops, products);
  EXPECT_LE(figures.flops, products + 8 * 8 * 32);
  EXPECT_GE(figures.launches, 2);
  EXPECT_LE(figures.launches, 3);
  EXPECT_GE(figures.bytes_accessed, 4 * (2 * (8 * 16 + 16 * 32) + 2 * 8 * 32));
  EXPECT_GE(figures.peak_bytes, 8 * 32 * 4);
  EXPECT_GE(figures.arena_bytes, figures.peak_bytes);
  EXPECT_GE(figures.unplanned_bytes, 8 * 32 * 4);
  f(a, b);
  EXPECT_EQ(f.traces(), 1);
  first_devices(1)[0]->reset_counters();
  f(a, b);
  EXPECT_EQ(first_devices(1)[0]->counters().flops, figures.flops);
  EXPECT_EQ(first_devices(1)[0]->counters().kernels, figures.launches);
}

TEST(FunctionFigures, AChainNeedsTheMemoryOfTwoLinks) {
  auto f = function([](const Tensor& x, const Tensor& w) {
    Tensor y = x;
    for (int i = 0; i < 20; ++i) y = matmul(y, w);
    return y;
  });
  const Tensor x = zeros({64, 64});
  const ProgramStatistics figures = f.statistics(x, x);
  constexpr int64_t kLink = 64 * 64 * 4;
  EXPECT_GE(figures.unplanned_bytes, 19 * kLink);
  EXPECT_LE(figures.arena_bytes, 3 * kLink);
}

TEST(FunctionFigures, ExplainNamesTheLaunchesInOrder) {
  const Variable v(zeros({4, 4}), {.name = "weights"});
  auto f = function([&](const Tensor& x) {
    const Tensor y = matmul(x, v);
    v.assign(v + reduce_sum(y) * 2.0);
    return softplus(y) + 1.0;
  });
  const std::string text = f.explain(zeros({4, 4}));
  EXPECT_THAT(text, AllOf(HasSubstr("matmul"), HasSubstr("sum"), HasSubstr("fused"), HasSubstr("variable0"),
                          HasSubstr("parameter0"), HasSubstr("output0"), HasSubstr("arena")));
  EXPECT_LT(text.find("matmul"), text.find("fused"));
  EXPECT_THAT(text, Not(HasSubstr("softplus"))) << "it is part of a fused launch";
}

TEST(Function, WhatTheStandardLibraryThrowsIsAnError) {
  auto f = function([](const Tensor&) -> Tensor { throw std::bad_alloc(); }, {.name = "greedy"});
  const Error error = error_of([&] { f(zeros({2})); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.message(), HasSubstr("greedy: there is not enough memory"));
  auto own = function([](const Tensor&) -> Tensor { throw std::runtime_error("mine"); });
  EXPECT_THROW(own(zeros({2})), std::runtime_error);
}

TEST(FunctionRandom, EveryRunDrawsAnew) {
  const random::Generator generator(5);
  auto f = function([&] {
    return std::tuple(random::uniform({8}, {.generator = &generator}),
                      random::uniform({8}, {.generator = &generator}),
                      random::normal({8}, {.generator = &generator}));
  });
  const auto state = [&] { return generator.state().value().item<int64_t>(); };
  const int64_t start = state();
  const auto [a, b, c] = f();
  EXPECT_EQ(state(), start + 1) << "a run is one step, however many draws it makes";
  const auto [d, e, g] = f();
  EXPECT_EQ(state(), start + 2);
  EXPECT_NE(read(a), read(b)) << "two draws of one run";
  EXPECT_NE(read(a), read(d)) << "one draw of two runs";
  EXPECT_NE(read(c), read(g));
  generator.reset(5);
  const auto [h, i, j] = f();
  EXPECT_EQ(read(a), read(h));
  EXPECT_EQ(read(b), read(i));
  EXPECT_EQ(read(c), read(j));
}

TEST(FunctionRandom, OnlyTheGeneratorsThatAreUsedMoveOn) {
  const random::Generator used(1), unused(1);
  const int64_t before = unused.state().value().item<int64_t>();
  auto f = function([&](const Tensor& x) { return dropout(x, 0.5, {.generator = &used}); });
  f(ones({4}));
  EXPECT_EQ(unused.state().value().item<int64_t>(), before);
  EXPECT_EQ(used.state().value().item<int64_t>(), before + 1);
}

}  // namespace
}  // namespace lockstep
