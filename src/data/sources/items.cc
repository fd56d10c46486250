#include "data/sources/items.h"

#include "data/node.h"

namespace lockstep::data {
namespace {

using Items = std::shared_ptr<const std::vector<Item>>;

class ItemsCursor final : public Cursor {
 public:
  ItemsCursor(Stage& stage, Items items) : Cursor(stage), items_(std::move(items)) {}
  void save(StateWriter& state) override { state.number("at", static_cast<int64_t>(at_)); }
  void restore(const StateReader& state) override { at_ = static_cast<size_t>(state.number("at")); }

 private:
  bool advance(Item& item) override {
    if (at_ >= items_->size()) return false;
    item = (*items_)[at_++];
    return true;
  }

  Items items_;
  size_t at_ = 0;
};

class ItemsNode final : public NodeOf<ItemsNode> {
 public:
  ItemsNode(std::vector<Item> items, std::source_location where)
      : NodeOf("elements", {}, where), items_(std::make_shared<const std::vector<Item>>(std::move(items))) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ItemsCursor>(opening.stage, items_);
  }
  std::optional<ElementSpec> spec() const override { return {}; }
  int64_t cardinality() const override { return static_cast<int64_t>(items_->size()); }

 private:
  Items items_;
};

}  // namespace

Dataset items_dataset(std::vector<Item> items, std::source_location where) {
  return Dataset(std::make_shared<ItemsNode>(std::move(items), where));
}

}  // namespace lockstep::data
