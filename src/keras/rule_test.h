// Examples for the tests of losses and metrics.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "execute/compile_test.h"
#include "lockstep/base/json.h"
#include "lockstep/ops/array.h"
#include "lockstep/tensor/tensor.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras::testing {

using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;

enum class Kind { regression, binary, labels, categorical, sparse, classes };

struct Batch {
  Tensor y_true;
  Tensor y_pred;
};

// Six examples of each kind.
inline Batch examples(Kind kind) {
  const auto floats = [](std::initializer_list<float> values, int64_t width) {
    return Tensor::from(values, {6, width});
  };
  const Tensor classes = Tensor::from<int32_t>({0, 2, 1, 3, 2, 0}, {6});
  const Tensor scores =
      floats({0.807, 0.546, 0.488, 0.789, 0.893, 0.691, 0.81,  0.942, 0.089, 0.882, 0.313, 0.502,
              0.807, 0.731, 0.19,  0.676, 0.116, 0.389, 0.822, 0.456, 0.62,  0.742, 0.83,  0.772},
             4);
  switch (kind) {
    case Kind::regression:
      return {floats({0.245, 1.582, 0.933, 1.475, 1.958, 1.123, 1.052, 0.237, 0.61, 1.05, 1.391, 1.627, 0.824,
                      0.225, 0.647, 1.828, 0.505, 0.959},
                     3),
              floats({1.869, 0.147, 1.241, 1.905, 0.538, 1.142, 1.827, 0.353, 1.094, 1.526, 1.371, 0.989,
                      0.489, 1.032, 0.808, 1.007, 0.795, 1.692},
                     3)};
    case Kind::binary:
      return {floats({1, 0, 1, 0, 0, 0}, 1), floats({0.651, 0.376, 0.461, 0.711, 0.416, 0.89}, 1)};
    case Kind::labels:
      return {floats({0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0}, 3),
              floats({0.946, 0.927, 0.834, 0.473, 0.828, 0.146, 0.316, 0.464, 0.732, 0.486, 0.151, 0.35,
                      0.331, 0.308, 0.179, 0.418, 0.45, 0.764},
                     3)};
    case Kind::categorical: return {one_hot(classes, 4), scores};
    case Kind::sparse: return {classes, scores};
    case Kind::classes: break;
  }
  return {classes, Tensor::from<int32_t>({0, 2, 3, 3, 1, 0}, {6})};
}

inline Tensor example_weights() { return Tensor::from<float>({1, 0.5, 2, 0, 1.5, 0.25}, {6}); }

// These rows of a tensor.
inline Tensor rows(const Tensor& x, int64_t begin, int64_t end) {
  Dims from = Dims::filled(x.rank(), 0), size = Dims::filled(x.rank(), -1);
  from[0] = begin;
  size[0] = end - begin;
  return slice(x, from, size);
}

// As a layer would attach it.
inline Tensor masked(const Tensor& x, const Tensor& mask) {
  x.impl()->mask = mask.impl();
  return x;
}

inline std::vector<double> doubles(const Tensor& x) {
  if (x.dtype() == DType::float64) return x.to_vector<double>();
  const std::vector<float> values = x.to_vector<float>();
  return {values.begin(), values.end()};
}

inline ::testing::AssertionResult near(const Tensor& received, const std::vector<double>& expected,
                                       double tolerance = 5e-6) {
  const std::vector<double> values = doubles(received);
  if (values.size() != expected.size())
    return ::testing::AssertionFailure() << values.size() << " values for " << expected.size();
  for (size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))))
      return ::testing::AssertionFailure() << "value " << i << " is " << values[i] << ", not " << expected[i];
  return ::testing::AssertionSuccess();
}

// What Keras wrote in a configuration must come back: an absent setting stands for null.
inline void expect_written(const Json& written, const Json& original) {
  EXPECT_EQ(written.at("class_name"), original.at("class_name"));
  for (const auto& [name, value] : original.at("config").members()) {
    const Json* found = written.at("config").find(name);
    if (value.is_number() && found && found->is_number())
      EXPECT_EQ(found->as_double(), value.as_double()) << name;
    else if (value.is_null())
      EXPECT_TRUE(!found || found->is_null() || *found == Json("none")) << name;
    else if (value.is_list() && value.items().size() == 1 && found && !found->is_list())
      EXPECT_EQ(*found, value.at(0)) << name;
    else
      EXPECT_TRUE(found && *found == value) << name;
  }
}

}  // namespace lockstep::keras::testing
