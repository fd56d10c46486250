#include "keras/training/dataset_source.h"

#include <algorithm>
#include <numeric>

#include "data/node.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "observe/activity.h"

namespace lockstep::keras {
namespace {

using data::Structure;

// Which tensors of an element are what, for elements of one structure.
class Arrangement {
 public:
  Arrangement(const Structure& structure, const ModelArrays& model, std::source_location where)
      : structure_(structure) {
    const bool parts = structure.kind() == Structure::Kind::tuple;
    require(!parts || (!structure.parts().empty() && structure.parts().size() <= 3),
            ErrorCode::invalid_argument, where,
            "the dataset must give x, (x, y) or (x, y, sample_weight), it gives ", structure.to_string(),
            "; several inputs are a tuple inside: ((a, b), y)");
    size_t leaf = 0;
    x_ = leaves(parts ? structure.parts()[0] : structure, leaf, model.inputs, NamedPart::input, where);
    // Only inputs by name can be missing.
    if (const auto missing = std::find(x_.begin(), x_.end(), kNone); missing != x_.end())
      fail(ErrorCode::invalid_argument, where, "the dataset has no input named \"",
           model.inputs[static_cast<size_t>(missing - x_.begin())], "\"");
    if (parts && structure.parts().size() > 1)
      y_ = leaves(structure.parts()[1], leaf, model.outputs, NamedPart::output, where);
    if (parts && structure.parts().size() > 2)
      weights_ = leaves(structure.parts()[2], leaf, model.outputs, NamedPart::weight, where);
  }

  bool describes(const Structure& structure) const { return structure == structure_; }
  void fill(const TensorList& tensors, Batch& batch) const {
    const auto pick = [&](const std::vector<size_t>& leaves, TensorList& list) {
      list.resize(leaves.size());
      for (size_t i = 0; i < leaves.size(); ++i) list[i] = leaves[i] == kNone ? Tensor() : tensors[leaves[i]];
    };
    pick(x_, batch.x);
    pick(y_, batch.y);
    pick(weights_, batch.sample_weight);
  }
  const std::vector<size_t>& x() const { return x_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  // Numbers of the leaves of `given`, of which the first is number `leaf`; that becomes the one behind.
  static std::vector<size_t> leaves(const Structure& given, size_t& leaf,
                                    const std::vector<std::string>& names, NamedPart part,
                                    std::source_location where) {
    std::vector<size_t> numbers(given.leaves());
    std::iota(numbers.begin(), numbers.end(), leaf);
    leaf += given.leaves();
    if (given.kind() != Structure::Kind::dict) return numbers;
    require(given.leaves() == given.parts().size(), ErrorCode::invalid_argument, where, "the dataset's ",
            text_of(part), "s by name must be tensors, received ", given.to_string());
    require(!names.empty(), ErrorCode::invalid_argument, where,
            "data by name needs a model with named inputs (Sequential with an input, or the functional API)");
    std::vector<size_t> sorted;
    for (const size_t position : in_order_of(names, given.names(), part, where))
      sorted.push_back(position == kMissing ? kNone : numbers[position]);
    return sorted;
  }

  Structure structure_;
  std::vector<size_t> x_, y_, weights_;
};

// Whether `shape` is that of one example of an input.
bool is_one_example(const Shape& shape, const Shape& input) {
  if (shape.rank() + 1 != input.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (input[i + 1] >= 0 && shape[i] != input[i + 1]) return false;
  return true;
}

// `model`: for whose inputs an element may be one example; null: it is not looked at.
void check_batch(const Batch& batch, const data::Element& element, const ModelArrays* model,
                 std::source_location where) {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorCode::shape_mismatch, where, "an element of the dataset is ", element.spec(), ", ", why...,
         "; fit, evaluate and predict take batches: dataset.batch(batch_size)");
  };
  int64_t examples = -1;
  each_array(batch, [&](const Tensor& tensor) {
    if (tensor.rank() == 0) refuse("and a scalar is no batch");
    if (examples < 0) examples = tensor.shape()[0];
    if (tensor.shape()[0] != examples) refuse("whose first dimensions, the number of examples, differ");
  });
  for (size_t i = 0; model && i < std::min(batch.x.size(), model->shapes.size()); ++i)
    if (is_one_example(batch.x[i].shape(), model->shapes[i]))
      refuse("one example for the model's input ", model->shapes[i]);
}

class DatasetReader final : public BatchReader {
 public:
  DatasetReader(const data::Dataset& dataset, const ModelArrays& model, std::source_location where)
      : model_(model), where_(where), iterator_(dataset, where) {}

  bool next(Batch& batch) override {
    const observe::ActivityScope activity("Dataset::next");
    data::Element element;
    if (!iterator_.next(element)) return false;
    if (!arrangement_ || !arrangement_->describes(element.structure()))
      arrangement_.emplace(element.structure(), model_, where_);
    arrangement_->fill(element.flat(), batch);
    // A column without a second dimension whose last batch has one row looks like an example of one number.
    check_batch(batch, element, gives_batches_ ? nullptr : &model_, where_);
    gives_batches_ = true;
    return true;
  }
  data::IteratorState save() override { return iterator_.save(); }
  void restore(const data::IteratorState& state) override {
    iterator_.restore(state, where_);
    gives_batches_ = true;
  }
  std::optional<data::Explanation> explain() const override { return data::explain(iterator_); }

 private:
  const ModelArrays& model_;
  std::source_location where_;
  data::Iterator iterator_;
  std::optional<Arrangement> arrangement_;
  bool gives_batches_ = false;  // as its first element has shown
};

class DatasetSource final : public Data::Source {
 public:
  DatasetSource(data::Dataset dataset, ModelArrays model)
      : dataset_(std::move(dataset)), model_(std::move(model)) {}

  std::unique_ptr<BatchReader> read(const data::RowBatchOptions&) const override {
    return std::make_unique<DatasetReader>(dataset_, model_, dataset_.node()->where());
  }
  int64_t batches(int64_t) const override {
    const int64_t cardinality = dataset_.cardinality();
    return cardinality == data::INFINITE_CARDINALITY  ? kEndless
           : cardinality == data::UNKNOWN_CARDINALITY ? kUnknown
                                                      : cardinality;
  }
  std::vector<TensorSpec> input_specs() const override {
    const std::source_location where = dataset_.node()->where();
    const data::ElementSpec spec = dataset_.element_spec(where);
    std::vector<TensorSpec> specs;
    for (const TensorSpec& tensor : spec.tensors)
      if (tensor.shape.rank() == 0) return specs;  // no batches: the first one will be refused
    const Arrangement arrangement(spec.structure, model_, where);
    for (const size_t leaf : arrangement.x()) {
      specs.push_back(spec.tensors[leaf]);
      specs.back().shape[0] = -1;
    }
    return specs;
  }
  std::shared_ptr<const Source> in_order(const ModelArrays& model, std::source_location) const override {
    return std::make_shared<DatasetSource>(dataset_, model);
  }
  std::shared_ptr<const Source> with_dataset(const DatasetChange& change) const override {
    return std::make_shared<DatasetSource>(change(dataset_), model_);
  }

 private:
  data::Dataset dataset_;
  ModelArrays model_;
};

}  // namespace

std::shared_ptr<const Data::Source> dataset_source(const data::Dataset& dataset, const ModelArrays& model) {
  require(dataset.defined(), ErrorCode::invalid_argument, std::source_location::current(),
          "the dataset is empty: it was never made");
  return std::make_shared<DatasetSource>(dataset, model);
}

Data::Data(const data::Dataset& dataset, std::source_location where) {
  const CallSite site(where);
  source_ = dataset_source(dataset);
}

}  // namespace lockstep::keras
