// unbatch, rebatch: batches are cut and joined, single elements are never made.
#include <cstring>
#include <deque>

#include "data/node.h"
#include "data/stack.h"
#include "graph/eager.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// A batch as the arrays that it is.
std::shared_ptr<const Rows> rows_of(Item batch, const Stage& stage) {
  const Element& element = batch.element();
  TensorList arrays;
  for (const Tensor& tensor : element.flat()) {
    require(tensor.rank() > 0 && tensor.shape()[0] == element.flat()[0].shape()[0], ErrorCode::shape_mismatch,
            stage.where, stage.name, ": a batch's tensors must agree in their first dimension, received ",
            element.spec());
    const Tensor host = tensor.device().kind() == DeviceKind::cpu ? tensor : tensor.to(current_device());
    arrays.push_back(contiguous(host, stage.where));
  }
  require(!arrays.empty(), ErrorCode::invalid_argument, stage.where, stage.name, ": there is no tensor in ",
          element.structure().to_string());
  return std::make_shared<const Rows>(element.shared_structure(), std::move(arrays));
}

// The number of rows in every batch of a node, where it is known and the same.
std::optional<int64_t> rows_in_batch(const Node& node) {
  const std::optional<ElementSpec> spec = node.spec();
  if (!spec || spec->tensors.empty() || spec->tensors[0].shape.empty() || spec->tensors[0].shape[0] < 0)
    return {};
  return spec->tensors[0].shape[0];
}

int64_t rows_in_all(const Node& node) {
  const int64_t batches = node.cardinality();
  if (batches <= 0) return batches;
  const std::optional<int64_t> rows = rows_in_batch(node);
  return rows ? batches * *rows : kUnknown;
}

// --- unbatch ---

class UnbatchCursor final : public Cursor {
 public:
  UnbatchCursor(const Opening& opening, const Node& input)
      : Cursor(opening.stage), input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    const bool inside = rows_ && at_ < rows_->size();
    state.items("batch", std::span(&batch_, inside ? 1 : 0));
    state.number("at", at_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    at_ = state.number("at");
    for (Item& batch : state.items("batch")) {
      batch_ = std::move(batch);
      rows_ = rows_of(batch_, stage());
    }
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override {
    while (!rows_ || at_ >= rows_->size()) {
      rows_.reset();
      if (!input_->next(batch_)) return false;
      at_ = 0;
      rows_ = rows_of(batch_, stage());
    }
    item.set_row(rows_, at_++);
    return true;
  }

  std::unique_ptr<Cursor> input_;
  Item batch_;
  std::shared_ptr<const Rows> rows_;
  int64_t at_ = 0;
};

class UnbatchNode final : public NodeOf<UnbatchNode> {
 public:
  UnbatchNode(NodePtr input, std::source_location where) : NodeOf("unbatch", {std::move(input)}, where) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<UnbatchCursor>(opening, input());
  }
  std::optional<ElementSpec> spec() const override {
    std::optional<ElementSpec> spec = input().spec();
    if (!spec) return spec;
    for (TensorSpec& tensor : spec->tensors) {
      if (tensor.shape.empty()) return {};
      tensor.shape.erase(0);
    }
    return spec;
  }
  int64_t cardinality() const override { return rows_in_all(input()); }
  bool shares_files() const override { return true; }
};

// --- rebatch ---

class RebatchCursor final : public Cursor {
 public:
  RebatchCursor(const Opening& opening, const Node& input, int64_t size, bool drop_remainder)
      : Cursor(opening.stage), size_(size), drop_remainder_(drop_remainder), input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    std::vector<Item> batches;
    for (const Piece& piece : pieces_) batches.push_back(piece.batch);
    state.items("batches", batches);
    state.number("begin", begin_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    for (Item& batch : state.items("batches")) add(std::move(batch));
    begin_ = state.number("begin");
    waiting_ -= begin_;
    state.cursor("input", *input_);
  }

 private:
  struct Piece {
    Item batch;
    std::shared_ptr<const Rows> rows;
  };

  void add(Item batch) {
    std::shared_ptr<const Rows> rows = rows_of(batch, stage());
    if (rows->size() == 0) return;
    if (!pieces_.empty()) check_alike(*pieces_.front().rows, *rows);
    waiting_ += rows->size();
    pieces_.push_back({std::move(batch), std::move(rows)});
  }
  void check_alike(const Rows& a, const Rows& b) const {
    const auto specs = [](const Rows& rows) { return rows.size() > 0 ? rows.row(0).spec() : ElementSpec(); };
    require(specs(a) == specs(b), ErrorCode::shape_mismatch, stage().where,
            "rebatch: batches that are joined must have rows of one kind, received ", specs(a), " and ",
            specs(b));
  }
  bool advance(Item& item) override {
    for (Item batch; waiting_ < size_ && input_->next(batch);) add(std::move(batch));
    const int64_t count = std::min(waiting_, size_);
    if (count == 0 || (count < size_ && drop_remainder_)) return false;
    item = Item(cut(count));
    return true;
  }
  Element cut(int64_t count) {
    const Rows& front = *pieces_.front().rows;
    const bool one = front.size() - begin_ >= count;
    TensorList tensors;
    for (const Tensor& array : front.arrays()) {
      Shape shape = array.shape();
      shape[0] = count;
      const int64_t row = array.size() / front.size();
      tensors.push_back(one ? make_view(*array.impl(), {array.dtype(), shape}, contiguous_strides(shape),
                                        array.impl()->offset + begin_ * row)
                            : Tensor::empty(array.dtype(), shape));
    }
    const std::shared_ptr<const Structure> structure = front.structure();
    waiting_ -= count;
    for (int64_t done = 0; done < count;) {
      const Rows& rows = *pieces_.front().rows;
      const int64_t taken = std::min(rows.size() - begin_, count - done);
      for (size_t leaf = 0; leaf < tensors.size() && !one; ++leaf) {
        const auto bytes = static_cast<int64_t>(tensors[leaf].spec().bytes()) / count;
        std::memcpy(static_cast<char*>(tensors[leaf].impl()->data()) + done * bytes,
                    static_cast<const char*>(rows.arrays()[leaf].impl()->data()) + begin_ * bytes,
                    static_cast<size_t>(taken * bytes));
      }
      done += taken;
      begin_ += taken;
      if (begin_ < rows.size()) break;
      pieces_.pop_front();
      begin_ = 0;
    }
    return {structure, std::move(tensors)};
  }

  int64_t size_;
  bool drop_remainder_;
  std::unique_ptr<Cursor> input_;
  std::deque<Piece> pieces_;
  int64_t begin_ = 0;    // rows of the first piece that have been given
  int64_t waiting_ = 0;  // rows that have not
};

class RebatchNode final : public NodeOf<RebatchNode> {
 public:
  RebatchNode(NodePtr input, int64_t size, bool drop_remainder, std::source_location where)
      : NodeOf("rebatch", {std::move(input)}, where), size_(size), drop_remainder_(drop_remainder) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<RebatchCursor>(opening, input(), size_, drop_remainder_);
  }
  std::optional<ElementSpec> spec() const override {
    std::optional<ElementSpec> spec = input().spec();
    if (!spec) return spec;
    const bool whole = batches_are_whole(rows_in_all(input()), size_, drop_remainder_);
    for (TensorSpec& tensor : spec->tensors) {
      if (tensor.shape.empty()) return {};
      tensor.shape[0] = whole ? size_ : -1;
    }
    return spec;
  }
  int64_t cardinality() const override { return batches_of(rows_in_all(input()), size_, drop_remainder_); }
  std::string arguments() const override { return std::to_string(size_); }

 private:
  int64_t size_;
  bool drop_remainder_;
};

}  // namespace

Dataset Dataset::unbatch(std::source_location where) const {
  return Dataset(std::make_shared<UnbatchNode>(node_, where));
}

Dataset Dataset::rebatch(int64_t batch_size, bool drop_remainder, std::source_location where) const {
  require(batch_size > 0, ErrorCode::invalid_argument, where,
          "rebatch: batch_size must be positive, received ", batch_size);
  return Dataset(std::make_shared<RebatchNode>(node_, batch_size, drop_remainder, where));
}

}  // namespace lockstep::data
