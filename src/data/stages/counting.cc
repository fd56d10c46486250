// take, skip, repeat, shard, enumerate: which elements, by their number.
#include "data/stages/counting.h"

#include <algorithm>
#include <limits>

namespace lockstep::data {
namespace {

// --- take ---

class TakeCursor final : public CountingStage {
 public:
  TakeCursor(const Opening& opening, const Node& input, int64_t count)
      : CountingStage(opening, input), count_(count) {}

 private:
  bool advance(Item& item) override {
    if (at_ == count_ || !input_->next(item)) return false;
    ++at_;
    return true;
  }
  int64_t count_;
};

class TakeNode final : public FilteringNode<TakeNode> {
 public:
  TakeNode(NodePtr input, int64_t count, std::source_location where)
      : FilteringNode("take", {std::move(input)}, where), count_(count) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<TakeCursor>(opening, input(), count_);
  }
  int64_t cardinality() const override {
    const int64_t inputs = input().cardinality();
    if (count_ < 0 || inputs == kUnknown) return inputs;
    return inputs == kInfinite ? count_ : std::min(inputs, count_);
  }
  std::string arguments() const override { return std::to_string(count_); }

 private:
  int64_t count_;
};

// --- skip ---

class SkipCursor final : public CountingStage {
 public:
  SkipCursor(const Opening& opening, const Node& input, int64_t count)
      : CountingStage(opening, input), count_(count) {}

 private:
  bool advance(Item& item) override {
    if (count_ < 0) return false;
    for (; at_ < count_; ++at_)
      if (!input_->next(item)) return false;
    return input_->next(item);
  }
  int64_t count_;
};

class SkipNode final : public FilteringNode<SkipNode> {
 public:
  SkipNode(NodePtr input, int64_t count, std::source_location where)
      : FilteringNode("skip", {std::move(input)}, where), count_(count) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<SkipCursor>(opening, input(), count_);
  }
  int64_t cardinality() const override {
    if (count_ < 0) return 0;
    const int64_t inputs = input().cardinality();
    return inputs < 0 ? inputs : std::max<int64_t>(0, inputs - count_);
  }
  std::string arguments() const override { return std::to_string(count_); }

 private:
  int64_t count_;
};

// --- shard ---

class ShardCursor final : public CountingStage {
 public:
  ShardCursor(const Opening& opening, const Node& input, int64_t count, int64_t index)
      : CountingStage(opening, input), count_(count), index_(index) {}

 private:
  bool advance(Item& item) override {
    // An element that fails has its number too, or the others' shares would shift.
    for (int64_t number = at_++; input_->next(item); number = at_++)
      if (number % count_ == index_) return true;
    return false;
  }
  int64_t count_, index_;
};

class ShardNode final : public FilteringNode<ShardNode> {
 public:
  ShardNode(NodePtr input, int64_t count, int64_t index, std::source_location where)
      : FilteringNode("shard", {std::move(input)}, where), count_(count), index_(index) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ShardCursor>(opening, input(), count_, index_);
  }
  int64_t cardinality() const override {
    const int64_t inputs = input().cardinality();
    return inputs < 0 ? inputs : (inputs - index_ + count_ - 1) / count_;
  }
  std::string arguments() const override { return std::to_string(count_) + ", " + std::to_string(index_); }

 private:
  int64_t count_, index_;
};

// --- enumerate ---

class EnumerateCursor final : public CountingStage {
 public:
  EnumerateCursor(const Opening& opening, const Node& input, int64_t start)
      : CountingStage(opening, input), start_(start) {}

 private:
  bool advance(Item& item) override {
    if (!input_->next(item)) return false;
    item = Item(Element(Tensor::scalar<int64_t>(start_ + at_++), item.element()));
    return true;
  }
  int64_t start_;
};

class EnumerateNode final : public NodeOf<EnumerateNode> {
 public:
  EnumerateNode(NodePtr input, int64_t start, std::source_location where)
      : NodeOf("enumerate", {std::move(input)}, where), start_(start) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<EnumerateCursor>(opening, input(), start_);
  }
  std::optional<ElementSpec> spec() const override {
    std::optional<ElementSpec> spec = input().spec();
    if (!spec) return spec;
    spec->structure = Structure::tuple({{}, spec->structure});
    spec->tensors.insert(spec->tensors.begin(), {DType::int64, {}});
    return spec;
  }
  int64_t cardinality() const override { return input().cardinality(); }

 private:
  int64_t start_;
};

// --- repeat ---

class RepeatCursor final : public Cursor {
 public:
  RepeatCursor(const Opening& opening, const Node& input, int64_t count)
      : Cursor(opening.stage),
        opening_(opening),
        node_(input),
        count_(count),
        input_(opening.of(0).open(input)),
        ended_(count == 0) {}
  void save(StateWriter& state) override {
    state.number("pass", pass_);
    state.number("empty", empty_);
    state.number("ended", ended_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    pass_ = state.number("pass");
    input_ = opening_.of(pass_).open(node_);
    empty_ = state.number("empty") != 0;
    ended_ = state.number("ended") != 0;
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override {
    while (!ended_) {
      if (input_->next(item)) {
        empty_ = false;
        return true;
      }
      // A dataset without an element would be repeated for ever.
      ended_ = empty_ || ++pass_ == count_;
      if (ended_) break;
      // Behind it, filter() may look for ever for an element that it lets pass.
      if (opening_.stop.stop_requested()) throw Cancelled();
      empty_ = true;
      input_.reset();
      input_ = opening_.of(pass_).open(node_);
    }
    return false;
  }

  Opening opening_;
  const Node& node_;
  int64_t count_;
  std::unique_ptr<Cursor> input_;
  int64_t pass_ = 0;
  bool empty_ = true;  // nothing came in this pass
  bool ended_;
};

class RepeatNode final : public FilteringNode<RepeatNode> {
 public:
  RepeatNode(NodePtr input, int64_t count, std::source_location where)
      : FilteringNode("repeat", {std::move(input)}, where), count_(count) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<RepeatCursor>(opening, input(), count_);
  }
  bool shares_files() const override { return true; }
  int64_t cardinality() const override {
    const int64_t inputs = input().cardinality();
    if (inputs == 0 || count_ == 0) return 0;
    if (count_ < 0) return kInfinite;
    if (inputs < 0) return inputs;
    return count_ > std::numeric_limits<int64_t>::max() / inputs ? kInfinite : inputs * count_;
  }
  std::string arguments() const override { return count_ < 0 ? "" : std::to_string(count_); }

 private:
  int64_t count_;
};

}  // namespace

// A number that came out below 0 is a mistake of a calculation more often than a wish for all.
static void check_count(const char* stage, int64_t count, const char* all, std::source_location where) {
  require(count >= -1, ErrorCode::invalid_argument, where, stage, ": count must be at least 0, or -1 ", all,
          ", received ", count);
}

Dataset Dataset::take(int64_t count, std::source_location where) const {
  check_count("take", count, "for all elements", where);
  return Dataset(std::make_shared<TakeNode>(node_, count, where));
}
Dataset Dataset::skip(int64_t count, std::source_location where) const {
  check_count("skip", count, "for all elements", where);
  return Dataset(std::make_shared<SkipNode>(node_, count, where));
}
Dataset Dataset::repeat(int64_t count, std::source_location where) const {
  check_count("repeat", count, "for ever", where);
  return Dataset(std::make_shared<RepeatNode>(node_, count, where));
}
Dataset Dataset::enumerate(int64_t start, std::source_location where) const {
  return Dataset(std::make_shared<EnumerateNode>(node_, start, where));
}
Dataset Dataset::shard(int64_t count, int64_t index, std::source_location where) const {
  require(count > 0 && index >= 0 && index < count, ErrorCode::invalid_argument, where,
          "shard: index must be from 0 to count - 1, received count ", count, " and index ", index);
  return Dataset(std::make_shared<ShardNode>(node_, count, index, where));
}

}  // namespace lockstep::data
