// filter, take_while: which elements, by what they hold.
#include "data/function.h"
#include "data/stages/counting.h"

namespace lockstep::data {
namespace {

struct Condition {
  Predicate predicate;
  FunctionCaller caller;

  // A row stays one: a copy is looked at.
  bool operator()(const Stage& stage, uint64_t pass, int64_t index, Item item) const {
    return caller(stage, pass, index, [&] { return predicate(item.element()); });
  }
};

class FilterCursor final : public CountingStage {
 public:
  FilterCursor(const Opening& opening, const Node& input, const Condition& holds)
      : CountingStage(opening, input), holds_(holds), pass_(opening.pass) {}

 private:
  bool advance(Item& item) override {
    while (input_->next(item))
      if (holds_(stage(), pass_, at_++, item)) return true;
    return false;
  }

  Condition holds_;
  uint64_t pass_;
};

class FilterNode final : public FilteringNode<FilterNode> {
 public:
  FilterNode(NodePtr input, Predicate predicate, std::source_location where)
      : FilteringNode("filter", {std::move(input)}, where), holds_{std::move(predicate), {}} {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<FilterCursor>(opening, input(), holds_);
  }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  bool shares_files() const override { return true; }

 private:
  Condition holds_;
};

class TakeWhileCursor final : public CountingStage {
 public:
  TakeWhileCursor(const Opening& opening, const Node& input, const Condition& holds)
      : CountingStage(opening, input), holds_(holds), pass_(opening.pass) {}

 private:
  static constexpr int64_t kEnded = -1;

  bool advance(Item& item) override {
    if (at_ == kEnded || !input_->next(item)) return false;
    if (holds_(stage(), pass_, at_++, item)) return true;
    at_ = kEnded;
    return false;
  }

  Condition holds_;
  uint64_t pass_;
};

class TakeWhileNode final : public FilteringNode<TakeWhileNode> {
 public:
  TakeWhileNode(NodePtr input, Predicate predicate, std::source_location where)
      : FilteringNode("take_while", {std::move(input)}, where), holds_{std::move(predicate), {}} {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<TakeWhileCursor>(opening, input(), holds_);
  }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }

 private:
  Condition holds_;
};

}  // namespace

Dataset Dataset::filter_elements(Predicate f, std::source_location where) const {
  return Dataset(std::make_shared<FilterNode>(node_, std::move(f), where));
}
Dataset Dataset::take_while_elements(Predicate f, std::source_location where) const {
  return Dataset(std::make_shared<TakeWhileNode>(node_, std::move(f), where));
}

}  // namespace lockstep::data
