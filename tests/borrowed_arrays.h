// Models that are trained on memory of somebody else's, and on their own copies of it.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep::testing {

inline constexpr int64_t kRows = 1000, kColumns = 40;

struct HostArrays {
  std::vector<float> x = random::uniform({kRows * kColumns}).to_vector<float>();
  std::vector<float> y = random::uniform({kRows}).to_vector<float>();

  keras::Data copied() const { return {Tensor::from(x, {kRows, kColumns}), Tensor::from(y, {kRows, 1})}; }
  keras::Data borrowed() const {
    return {from_blob(x.data(), {DType::float32, {kRows, kColumns}}),
            from_blob(y.data(), {DType::float32, {kRows, 1}})};
  }
};

inline keras::Sequential compiled_model() {
  random::set_seed(7);
  keras::Sequential model(
      {keras::layers::Dense(8, {.activation = "relu", .input_shape = {kColumns}}), keras::layers::Dense(1)});
  model.compile({.optimizer = "adam", .loss = "mse"});
  return model;
}

// What training, evaluation and prediction make of the data.
inline std::vector<float> results_of(const keras::Model& model, const keras::Data& data, bool shuffle) {
  model.fit(data, {.batch_size = 32, .epochs = 2, .verbose = 0, .shuffle = shuffle});
  std::vector<float> all{static_cast<float>(*model.evaluate(data, {.verbose = 0}).find("loss"))};
  const std::vector<float> predicted = model.predict(data, {.verbose = 0}).to_vector<float>();
  all.insert(all.end(), predicted.begin(), predicted.end());
  return all;
}

// The same bits come out of both.
inline void expect_borrowed_trains_as_copied() {
  const HostArrays arrays;
  for (const bool shuffle : {true, false})
    EXPECT_EQ(results_of(compiled_model(), arrays.borrowed(), shuffle),
              results_of(compiled_model(), arrays.copied(), shuffle));
}

}  // namespace lockstep::testing
