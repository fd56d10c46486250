#include <algorithm>

#include "data/node.h"
#include "data/stack.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// The shape that all of a batch's tensors are brought to: what was asked for, or the longest of them.
Shape padded_shape(std::span<Item> items, size_t leaf, const PaddedBatchOptions& options,
                   const Stage& stage) {
  const Element& first = items[0].element();
  const Shape asked = options.padded_shapes.empty() ? Shape(Dims::filled(first.flat()[leaf].rank(), -1))
                                                    : options.padded_shapes[leaf];
  Shape target = asked;
  for (size_t i = 0; i < items.size(); ++i) {
    const Element& element = items[i].element();
    require(element.structure() == first.structure() &&
                element.flat()[leaf].dtype() == first.flat()[leaf].dtype(),
            ErrorCode::dtype_mismatch, stage.where,
            "padded_batch: elements must be of one kind, element 0 of the "
            "batch is ",
            first.spec(), " and element ", i, " is ", element.spec());
    const Shape& shape = element.flat()[leaf].shape();
    require(shape.rank() == target.rank(), ErrorCode::shape_mismatch, stage.where, "padded_batch: part ",
            first.structure().path(leaf), " of element ", i, " of the batch is ", element.flat()[leaf].spec(),
            ", which cannot be padded to ", asked, ": another rank");
    for (int axis = 0; axis < shape.rank(); ++axis) {
      require(asked[axis] < 0 || shape[axis] <= asked[axis], ErrorCode::shape_mismatch, stage.where,
              "padded_batch: part ", first.structure().path(leaf), " of element ", i, " of the batch is ",
              element.flat()[leaf].spec(), ", larger than the padded shape ", asked,
              "; a map() before it may crop");
      target[axis] = std::max(target[axis], shape[axis]);
    }
  }
  return target;
}

Element pad(std::span<Item> items, const PaddedBatchOptions& options, const Stage& stage) {
  const Element& first = items[0].element();
  const size_t leaves = first.flat().size();
  require(options.padded_shapes.empty() || options.padded_shapes.size() == leaves,
          ErrorCode::invalid_argument, stage.where,
          "padded_batch: there must be one padded shape a tensor, received ", options.padded_shapes.size(),
          " for ", first.spec());
  require(options.padding_values.size() <= 1 || options.padding_values.size() == leaves,
          ErrorCode::invalid_argument, stage.where,
          "padded_batch: there must be one padding value a tensor, or one for all, received ",
          options.padding_values.size(), " for ", first.spec());
  TensorList tensors;
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    const Shape target = padded_shape(items, leaf, options, stage);
    const DType dtype = first.flat()[leaf].dtype();
    Shape whole = target;
    whole.insert(0, static_cast<int64_t>(items.size()));
    const Tensor batch = Tensor::empty(dtype, whole);
    const std::vector<double>& values = options.padding_values;
    const double value = values.empty() ? 0 : values[values.size() == 1 ? 0 : leaf];
    const size_t bytes = TensorSpec{dtype, target}.bytes();
    auto* place = static_cast<char*>(batch.impl()->data());
    for (Item& item : items) {
      const Tensor& given = item.element().flat()[leaf];
      const Tensor tensor = given.device().kind() == DeviceKind::cpu ? given : given.to(current_device());
      const TensorImpl& impl = *tensor.impl();
      if (tensor.shape() != target) fill_elements(dtype, target.size(), value, place);
      if (tensor.size() > 0)
        copy_strided(dtype, tensor.shape(), impl.data(), impl.strides, place, contiguous_strides(target));
      place += bytes;
    }
    tensors.push_back(batch);
  }
  return {first.shared_structure(), std::move(tensors)};
}

class PaddedBatchCursor final : public Cursor {
 public:
  PaddedBatchCursor(const Opening& opening, const Node& input, int64_t size,
                    const PaddedBatchOptions& options)
      : Cursor(opening.stage), size_(size), options_(options), input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    state.items("kept", kept_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    kept_ = state.items("kept");
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override {
    if (!collect(*input_, size_, options_.drop_remainder, kept_, parts_)) return false;
    item = Item(pad(parts_, options_, stage()));
    return true;
  }

  int64_t size_;
  const PaddedBatchOptions& options_;
  std::unique_ptr<Cursor> input_;
  std::vector<Item> kept_, parts_;
};

class PaddedBatchNode final : public NodeOf<PaddedBatchNode> {
 public:
  PaddedBatchNode(NodePtr input, int64_t size, PaddedBatchOptions options, std::source_location where)
      : NodeOf("padded_batch", {std::move(input)}, where), size_(size), options_(std::move(options)) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<PaddedBatchCursor>(opening, input(), size_, options_);
  }
  std::optional<ElementSpec> spec() const override {
    std::optional<ElementSpec> spec = input().spec();
    if (!spec || (!options_.padded_shapes.empty() && options_.padded_shapes.size() != spec->tensors.size()))
      return {};
    for (size_t leaf = 0; leaf < spec->tensors.size(); ++leaf) {
      Shape& shape = spec->tensors[leaf].shape;
      // A size that is known is the longest as well.
      for (int axis = 0; !options_.padded_shapes.empty() && axis < shape.rank(); ++axis)
        if (axis < options_.padded_shapes[leaf].rank() && options_.padded_shapes[leaf][axis] >= 0)
          shape[axis] = options_.padded_shapes[leaf][axis];
      shape.insert(0, batches_are_whole(input().cardinality(), size_, options_.drop_remainder) ? size_ : -1);
    }
    return spec;
  }
  int64_t cardinality() const override {
    return batches_of(input().cardinality(), size_, options_.drop_remainder);
  }
  bool shares_files() const override { return true; }
  std::string arguments() const override { return std::to_string(size_); }

 private:
  int64_t size_;
  PaddedBatchOptions options_;
};

}  // namespace

Dataset Dataset::padded_batch(int64_t batch_size, const PaddedBatchOptions& options,
                              std::source_location where) const {
  require(batch_size > 0, ErrorCode::invalid_argument, where,
          "padded_batch: batch_size must be positive, received ", batch_size);
  return Dataset(std::make_shared<PaddedBatchNode>(node_, batch_size, options, where));
}

}  // namespace lockstep::data
