#include "keras/training/reshaped_data.h"

#include <cmath>

#include "keras/training/source.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

const Batch& arrays_of(const Data& data, const char* argument, std::source_location where) {
  const Batch* arrays = data.source()->arrays();
  require(arrays != nullptr, ErrorCode::unsupported, where, "fit: ", argument,
          " needs arrays in memory; split or weight the dataset itself");
  return *arrays;
}

TensorList rows(const TensorList& list, int64_t begin, int64_t count) {
  TensorList cut;
  for (const Tensor& tensor : list) {
    if (!tensor.defined()) {
      cut.emplace_back();
      continue;
    }
    Dims from = Dims::filled(tensor.rank(), 0);
    Dims size = Dims::filled(tensor.rank(), -1);
    from[0] = begin;
    size[0] = count;
    cut.push_back(slice(tensor, from, size));
  }
  return cut;
}

}  // namespace

std::pair<Data, Data> split_off(const Data& data, double fraction, std::source_location where) {
  const Batch& arrays = arrays_of(data, "validation_split", where);
  const int64_t examples = examples_in(arrays);
  const auto kept = static_cast<int64_t>(std::floor(static_cast<double>(examples) * (1 - fraction)));
  require(kept > 0 && kept<examples, ErrorCode::invalid_argument, where, "fit: validation_split ", fraction,
                           " of ", examples, " examples leaves nothing to ", kept> 0
              ? "validate on"
              : "train on");
  const auto part = [&](int64_t begin, int64_t count) {
    return Data(array_source({rows(arrays.x, begin, count), rows(arrays.y, begin, count),
                              rows(arrays.sample_weight, begin, count)},
                             {}, {}, where));
  };
  return {part(0, kept), part(kept, examples - kept)};
}

Data with_class_weight(const Data& data, const std::map<int64_t, double>& class_weight,
                       std::source_location where) {
  Batch arrays = arrays_of(data, "class_weight", where);
  require(arrays.y.size() == 1, ErrorCode::unsupported, where,
          "fit: class_weight is for models of one output, the data has ", arrays.y.size(),
          " labels; use sample_weight");
  Tensor y = arrays.y[0];
  if (y.rank() > 1 && y.shape()[-1] > 1) {
    y = argmax(y);
  } else if (y.rank() > 1) {
    y = squeeze(y, {-1});
  }
  const std::vector<int64_t> classes = cast(y, DType::int64).to_vector<int64_t>();
  std::vector<float> weights;
  weights.reserve(classes.size());
  for (const int64_t c : classes) {
    const auto found = class_weight.find(c);
    weights.push_back(found == class_weight.end() ? 1.0F : static_cast<float>(found->second));
  }
  Tensor all = Tensor::from(weights, y.shape());
  if (!arrays.sample_weight.empty() && arrays.sample_weight[0].defined())
    all = all * cast(arrays.sample_weight[0], DType::float32);
  arrays.sample_weight = {all};
  return Data(array_source(std::move(arrays), {}, {}, where));
}

}  // namespace lockstep::keras
