// from_tensor_slices, from_tensors, range, from_generator.
#include <algorithm>
#include <mutex>

#include "data/host.h"
#include "data/node.h"
#include "data/sources/counting_cursor.h"
#include "data/sources/rows.h"
#include "graph/eager.h"

namespace lockstep::data {
namespace {

// --- from_tensor_slices ---

class SlicesCursor final : public CountingCursor {
 public:
  SlicesCursor(Stage& stage, std::shared_ptr<const Rows> rows)
      : CountingCursor(stage), rows_(std::move(rows)) {}

 private:
  bool advance(Item& item) override {
    if (at_ >= rows_->size()) return false;
    item.set_row(rows_, at_++);
    return true;
  }
  std::shared_ptr<const Rows> rows_;
};

ElementSpec of_row(ElementSpec arrays) {
  for (TensorSpec& array : arrays.tensors) array.shape.erase(0);
  return arrays;
}

class SlicesNode final : public NodeOf<SlicesNode> {
 public:
  SlicesNode(std::shared_ptr<const Rows> rows, std::source_location where)
      : NodeOf("from_tensor_slices", {}, where), rows_(std::move(rows)) {}

  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<SlicesCursor>(opening.stage, rows_);
  }
  std::optional<ElementSpec> spec() const override {
    ElementSpec spec{rows_->structure() ? *rows_->structure() : Structure(), {}};
    for (const Tensor& array : rows_->arrays()) spec.tensors.push_back(array.spec());
    return of_row(std::move(spec));
  }
  int64_t cardinality() const override { return rows_->size(); }
  std::string arguments() const override { return std::to_string(rows_->size()) + " rows"; }
  std::shared_ptr<const Rows> rows() const override { return rows_; }

 private:
  std::shared_ptr<const Rows> rows_;
};

// Arrays that are not in memory before they are needed.
class StoredRows {
 public:
  StoredRows(const StoredArrays& arrays, std::source_location where) : arrays_(arrays), where_(where) {}

  const ElementSpec& spec() const { return arrays_.spec; }
  int64_t size() const { return arrays_.spec.tensors[0].shape[0]; }
  std::shared_ptr<const Rows> rows() {
    const std::lock_guard lock(mutex_);
    if (!rows_) rows_ = read();
    return rows_;
  }

 private:
  std::shared_ptr<const Rows> read() const {
    const DeviceScope host(host_device());
    const auto& [structure, specs] = arrays_.spec;
    TensorList arrays = arrays_.read();
    for (size_t i = 0; i < arrays.size(); ++i)
      require(arrays[i].spec() == specs[i], ErrorCode::io, where_, arrays_.name, ": part ", structure.path(i),
              " is ", arrays[i].spec(), " and was ", specs[i], "; its file was changed meanwhile");
    return std::make_shared<const Rows>(
        structure.kind() == Structure::Kind::leaf ? nullptr : std::make_shared<const Structure>(structure),
        std::move(arrays));
  }

  const StoredArrays arrays_;
  const std::source_location where_;
  std::mutex mutex_;
  std::shared_ptr<const Rows> rows_;
};

class StoredRowsCursor final : public CountingCursor {
 public:
  StoredRowsCursor(Stage& stage, std::shared_ptr<StoredRows> stored)
      : CountingCursor(stage), stored_(std::move(stored)) {}

 private:
  bool advance(Item& item) override {
    if (at_ >= stored_->size()) return false;
    const int64_t row = std::exchange(at_, stored_->size());
    if (!rows_) rows_ = stored_->rows();  // where that throws there is nothing behind it
    item.set_row(rows_, row);
    at_ = row + 1;
    return true;
  }
  std::shared_ptr<StoredRows> stored_;
  std::shared_ptr<const Rows> rows_;
};

class StoredRowsNode final : public NodeOf<StoredRowsNode> {
 public:
  StoredRowsNode(const StoredArrays& arrays, std::source_location where)
      : NodeOf(arrays.name, {}, where), stored_(std::make_shared<StoredRows>(arrays, where)) {}

  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<StoredRowsCursor>(opening.stage, stored_);
  }
  std::optional<ElementSpec> spec() const override { return of_row(stored_->spec()); }
  int64_t cardinality() const override { return stored_->size(); }
  std::string arguments() const override { return std::to_string(cardinality()) + " rows"; }
  std::shared_ptr<const Rows> rows() const override {
    try {
      return stored_->rows();
    } catch (const Error&) {
      return nullptr;  // the first next() says it
    }
  }

 private:
  std::shared_ptr<StoredRows> stored_;
};

// --- from_tensors, range ---

class TensorsCursor final : public CountingCursor {
 public:
  TensorsCursor(Stage& stage, Element element) : CountingCursor(stage), element_(std::move(element)) {}

 private:
  bool advance(Item& item) override {
    if (at_ > 0) return false;
    ++at_;
    item = Item(element_);
    return true;
  }
  Element element_;
};

class TensorsNode final : public NodeOf<TensorsNode> {
 public:
  TensorsNode(Element element, std::source_location where)
      : NodeOf("from_tensors", {}, where), element_(std::move(element)) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<TensorsCursor>(opening.stage, element_);
  }
  std::optional<ElementSpec> spec() const override { return element_.spec(); }
  int64_t cardinality() const override { return 1; }

 private:
  Element element_;
};

struct Range {
  int64_t start, stop, step;
  int64_t size() const {
    const int64_t span = step > 0 ? stop - start : start - stop, pace = std::abs(step);
    return std::max<int64_t>(0, (span + pace - 1) / pace);
  }
};

class RangeCursor final : public CountingCursor {
 public:
  RangeCursor(Stage& stage, const Range& range) : CountingCursor(stage), range_(range), size_(range.size()) {}

 private:
  bool advance(Item& item) override {
    if (at_ >= size_) return false;
    item = Item(Tensor::scalar<int64_t>(range_.start + at_++ * range_.step));
    return true;
  }
  Range range_;
  int64_t size_;
};

class RangeNode final : public NodeOf<RangeNode> {
 public:
  RangeNode(const Range& range, std::source_location where) : NodeOf("range", {}, where), range_(range) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<RangeCursor>(opening.stage, range_);
  }
  std::optional<ElementSpec> spec() const override { return ElementSpec{{}, {{DType::int64, {}}}}; }
  int64_t cardinality() const override { return range_.size(); }
  std::string arguments() const override { return std::to_string(range_.size()); }

 private:
  Range range_;
};

// --- from_generator ---

class GeneratorCursor final : public CountingCursor {
 public:
  GeneratorCursor(Stage& stage, const std::function<Dataset::Generator()>& make)
      : CountingCursor(stage), make_(make) {}
  void restore(const StateReader& state) override {
    const int64_t given = state.number("at");
    // A function's position is not to be had: it is called until it stands there.
    for (Item skipped; at_ < given;)
      if (!advance(skipped)) return;
  }

 private:
  bool advance(Item& item) override {
    if (ended_) return false;
    if (!generator_) {
      // Without one there is nothing to go on with behind the error.
      ended_ = true;
      generator_ = in_element(stage(), at_, [&] { return make_(); });
      ended_ = false;
    }
    std::optional<Element> element = in_element(stage(), at_, [&] { return generator_(); });
    if (!element) {
      ended_ = true;
      return false;
    }
    ++at_;
    item = Item(*std::move(element));
    return true;
  }
  const std::function<Dataset::Generator()>& make_;
  Dataset::Generator generator_;
  bool ended_ = false;
};

class GeneratorNode final : public NodeOf<GeneratorNode> {
 public:
  GeneratorNode(std::function<Dataset::Generator()> make, std::optional<ElementSpec> spec,
                std::source_location where)
      : NodeOf("from_generator", {}, where), make_(std::move(make)), spec_(std::move(spec)) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<GeneratorCursor>(opening.stage, make_);
  }
  std::optional<ElementSpec> spec() const override { return spec_; }
  int64_t cardinality() const override { return kUnknown; }

 private:
  std::function<Dataset::Generator()> make_;
  std::optional<ElementSpec> spec_;
};

}  // namespace

Dataset Dataset::from_tensor_slices(const Element& arrays, std::source_location where) {
  require(!arrays.flat().empty(), ErrorCode::invalid_argument, where,
          "from_tensor_slices: there is no array");
  TensorList flat;
  for (size_t i = 0; i < arrays.flat().size(); ++i) {
    const Tensor& array = arrays.flat()[i];
    require(array.defined() && array.rank() > 0, ErrorCode::shape_mismatch, where,
            "from_tensor_slices: an array's first dimension runs over the elements, received ",
            array.defined() ? "a scalar" : "none", " as part ", arrays.structure().path(i));
    require(array.shape()[0] == arrays.flat()[0].shape()[0], ErrorCode::shape_mismatch, where,
            "from_tensor_slices: the arrays must agree in their first dimension, received ",
            arrays.flat()[0].shape(), " and ", array.shape());
    const Tensor host = array.device().kind() == DeviceKind::cpu ? array : array.to(device_by_name("/CPU:0"));
    flat.push_back(contiguous(host, where));
  }
  return Dataset(std::make_shared<SlicesNode>(
      std::make_shared<const Rows>(arrays.shared_structure(), std::move(flat)), where));
}

Dataset stored_rows_dataset(const StoredArrays& arrays, std::source_location where) {
  const std::vector<TensorSpec>& specs = arrays.spec.tensors;
  for (size_t i = 0; i < specs.size(); ++i)
    require(specs[i].shape.rank() > 0 && specs[i].shape[0] == specs[0].shape[0], ErrorCode::shape_mismatch,
            where, arrays.name,
            ": the arrays must agree in their first dimension, which runs over the rows; ",
            arrays.spec.structure.path(0), " is ", specs[0], " and ", arrays.spec.structure.path(i), " is ",
            specs[i]);
  return Dataset(std::make_shared<StoredRowsNode>(arrays, where));
}

Dataset Dataset::from_tensors(const Element& element, std::source_location where) {
  require(element.defined(), ErrorCode::invalid_argument, where, "from_tensors: there is no element");
  return Dataset(std::make_shared<TensorsNode>(element, where));
}

Dataset Dataset::range(int64_t stop, std::source_location where) { return range(0, stop, 1, where); }

Dataset Dataset::range(int64_t start, int64_t stop, int64_t step, std::source_location where) {
  require(step != 0, ErrorCode::invalid_argument, where, "range: step must not be 0");
  return Dataset(std::make_shared<RangeNode>(Range{start, stop, step}, where));
}

Dataset Dataset::from_generator(std::function<Generator()> make, std::optional<ElementSpec> spec,
                                std::source_location where) {
  require(make != nullptr, ErrorCode::invalid_argument, where, "from_generator: there is no function");
  return Dataset(std::make_shared<GeneratorNode>(std::move(make), std::move(spec), where));
}

}  // namespace lockstep::data
