// What fit, evaluate and predict go through: arrays whose first dimension runs over the examples, or a
// Dataset.
//
// Data is a handle to what never changes: copies are cheap, and may be used from several threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

#include "lockstep/tensor/tensor.h"

namespace lockstep::data {
class Dataset;
}

namespace lockstep::keras {

namespace datasets {
struct Examples;
}

// One batch, or all examples.
struct Batch {
  TensorList x;
  TensorList y;              // empty for predict
  TensorList sample_weight;  // one for each output, undefined or missing where it has none
  // Where this is a worker's part of a global batch: the number of examples of each worker, by rank; empty:
  // not known.
  std::vector<int64_t> worker_rows = {};
};

class Data {
 public:
  class Source;
  using Named = std::map<std::string, Tensor>;

  Data() = default;
  // Arrays are held, not copied, unless they are not contiguous or lie on several devices. An undefined y (or
  // weight) stands for an output without one. Error(shape_mismatch) where the numbers of examples differ.
  // NOLINTBEGIN(google-explicit-constructor): model.fit({x, y}, ...)
  Data(const Tensor& x, const Tensor& y = {}, const Tensor& sample_weight = {},
       std::source_location where = std::source_location::current());
  Data(const TensorList& x, const TensorList& y = {}, const TensorList& sample_weight = {},
       std::source_location where = std::source_location::current());
  Data(const datasets::Examples& examples, std::source_location where = std::source_location::current());
  // Inputs and outputs by the names of the model's.
  Data(const Named& x, const Named& y, const Named& sample_weight = {},
       std::source_location where = std::source_location::current());
  // Batches: x, (x, y) or (x, y, sample_weight), each a tensor, a tuple, or a dictionary by the names of the
  // model's inputs and outputs. batch_size and shuffle of fit are for arrays: the dataset has its own.
  Data(const data::Dataset& dataset, std::source_location where = std::source_location::current());
  // Anything that gives batches.
  Data(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return source_ != nullptr; }
  const std::shared_ptr<const Source>& source() const { return source_; }

 private:
  std::shared_ptr<const Source> source_;
};

// What fit does with FitOptions::validation_split and class_weight, for training loops of one's own.
//
// All but the last `fraction` of the examples, floor(examples * (1 - fraction)), and those: views.
// Error(invalid_argument) where one of them has none.
std::pair<Batch, Batch> split_off(const Batch& arrays, double fraction,
                                  std::source_location where = std::source_location::current());
// With sample weights multiplied by the weight of each example's class; classes that are not named weigh 1.
// Labels are class numbers, or one-hot rows, of one output.
Batch with_class_weight(Batch batch, const std::map<int64_t, double>& class_weight,
                        std::source_location where = std::source_location::current());

}  // namespace lockstep::keras
