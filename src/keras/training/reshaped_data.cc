#include "keras/training/reshaped_data.h"

#include <cmath>
#include <utility>

#include "keras/training/array_source.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras {
namespace {

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

std::pair<Batch, Batch> split_off(const Batch& given, double fraction, std::source_location where) {
  require(fraction >= 0 && fraction < 1, ErrorCode::invalid_argument, where,
          "fit: validation_split must be in [0, 1), received ", fraction);
  const std::shared_ptr<const Data::Source> checked = array_source(given, {}, {}, where);
  const Batch& arrays = *checked->arrays();
  const int64_t examples = examples_in(arrays);
  const auto kept = static_cast<int64_t>(std::floor(static_cast<double>(examples) * (1 - fraction)));
  require(kept > 0 && kept<examples, ErrorCode::invalid_argument, where, "fit: validation_split ", fraction,
                           " of ", examples, " examples leaves nothing to ", kept> 0
              ? "validate on"
              : "train on");
  const auto part = [&](int64_t begin, int64_t count) {
    return Batch{rows(arrays.x, begin, count), rows(arrays.y, begin, count),
                 rows(arrays.sample_weight, begin, count)};
  };
  return {part(0, kept), part(kept, examples - kept)};
}

std::pair<Data, Data> split_off(const Data& data, double fraction, std::source_location where) {
  require(data.source()->arrays() != nullptr, ErrorCode::unsupported, where,
          "fit: validation_split needs arrays in memory; split the dataset itself with take(n) and skip(n)");
  auto [train, validation] = split_off(*data.source()->arrays(), fraction, where);
  return {Data(array_source(std::move(train), {}, {}, where)),
          Data(array_source(std::move(validation), {}, {}, where))};
}

Batch with_class_weight(Batch batch, const std::map<int64_t, double>& class_weight,
                        std::source_location where) {
  require(batch.y.size() == 1, ErrorCode::unsupported, where,
          "fit: class_weight is for models of one output, the data has ", batch.y.size(),
          " labels; use sample_weight");
  for (const auto& [label, weight] : class_weight)
    require(label >= 0 && std::isfinite(weight), ErrorCode::invalid_argument, where,
            "fit: class_weight has finite numbers by class numbers from 0 on, received ", weight,
            " for class ", label);
  Tensor y = batch.y[0];
  if (y.rank() > 1 && y.shape()[-1] > 1) {
    y = argmax(y);
  } else if (y.rank() > 1) {
    y = squeeze(y, {-1});
  }
  if (is_floating(y.dtype())) {
    const std::vector<double> labels = cast(y, DType::float64).to_vector<double>();
    for (size_t i = 0; i < labels.size(); ++i)
      require(std::isfinite(labels[i]) && labels[i] == std::floor(labels[i]), ErrorCode::invalid_argument,
              where, "fit: class_weight goes by class numbers, from 0 on; label number ", i, " is ",
              labels[i]);
  }
  const std::vector<int64_t> classes = cast(y, DType::int64).to_vector<int64_t>();
  std::vector<double> weights;
  weights.reserve(classes.size());
  for (const int64_t c : classes) {
    const auto found = class_weight.find(c);
    weights.push_back(found == class_weight.end() ? 1.0 : found->second);
  }
  // The weights of float64 data are not rounded.
  DType dtype = DType::float32;
  each_array(batch, [&](const Tensor& tensor) {
    if (tensor.dtype() == DType::float64) dtype = DType::float64;
  });
  Tensor all = cast(Tensor::from(weights, y.shape()), dtype);
  if (!batch.sample_weight.empty() && batch.sample_weight[0].defined())
    all = all * cast(batch.sample_weight[0], dtype);
  batch.sample_weight = {all};
  return batch;
}

namespace {

class WeightedSource final : public Data::Source {
 public:
  WeightedSource(std::shared_ptr<const Data::Source> source, std::map<int64_t, double> class_weight,
                 std::source_location where)
      : source_(std::move(source)), class_weight_(std::move(class_weight)), where_(where) {}

  std::unique_ptr<BatchReader> read(const data::RowBatchOptions& options) const override {
    return std::make_unique<Reader>(*this, source_->read(options));
  }
  int64_t batches(int64_t batch_size) const override { return source_->batches(batch_size); }
  std::vector<TensorSpec> input_specs() const override { return source_->input_specs(); }
  std::shared_ptr<const Source> with_dataset(const DatasetChange& change) const override {
    return std::make_shared<WeightedSource>(source_->with_dataset(change), class_weight_, where_);
  }

 private:
  class Reader final : public BatchReader {
   public:
    Reader(const WeightedSource& source, std::unique_ptr<BatchReader> reader)
        : source_(source), reader_(std::move(reader)) {}
    bool next(Batch& batch) override {
      if (!reader_->next(batch)) return false;
      batch = with_class_weight(std::move(batch), source_.class_weight_, source_.where_);
      return true;
    }
    data::IteratorState save() override { return reader_->save(); }
    void restore(const data::IteratorState& state) override { reader_->restore(state); }
    std::optional<data::Explanation> explain() const override { return reader_->explain(); }

   private:
    const WeightedSource& source_;
    std::unique_ptr<BatchReader> reader_;
  };

  std::shared_ptr<const Data::Source> source_;
  std::map<int64_t, double> class_weight_;
  std::source_location where_;
};

}  // namespace

Data with_class_weight(const Data& data, const std::map<int64_t, double>& class_weight,
                       std::source_location where) {
  const Batch* arrays = data.source()->arrays();
  if (!arrays) return Data(std::make_shared<WeightedSource>(data.source(), class_weight, where));
  return Data(array_source(with_class_weight(*arrays, class_weight, where), {}, {}, where));
}

}  // namespace lockstep::keras
