#include <algorithm>

#include "base/philox.h"
#include "data/node.h"
#include "lockstep/ops/random.h"
#include "ops/random/random.h"

namespace lockstep::data {
namespace {

// Items that wait to be drawn. Rows of one array, the common case, are kept as numbers.
class Pool {
 public:
  size_t size() const { return rows_ ? numbers_.size() : items_.size(); }
  void add(Item& item) {
    if (size() == 0 && item.rows()) rows_ = item.rows();
    if (rows_ && rows_ != item.rows()) spell_out();
    if (rows_)
      numbers_.push_back(item.row());
    else
      items_.push_back(std::move(item));
  }
  // Hands out number `drawn` and puts the last one in its place.
  void draw(size_t drawn, Item& item) {
    if (rows_) {
      item.set_row(rows_, numbers_[drawn]);
      numbers_[drawn] = numbers_.back();
      numbers_.pop_back();
    } else {
      item = std::move(items_[drawn]);
      if (drawn + 1 < items_.size()) items_[drawn] = std::move(items_.back());
      items_.pop_back();
    }
  }
  // The same, and `item` takes its place.
  void exchange(size_t drawn, Item& item) {
    if (rows_ && rows_ != item.rows()) spell_out();
    if (rows_) {
      const int64_t number = numbers_[drawn];
      numbers_[drawn] = item.row();
      item.set_row(rows_, number);
    } else {
      std::swap(items_[drawn], item);
    }
  }
  void reserve(size_t count) { numbers_.reserve(count); }
  // All of them as items.
  std::vector<Item> items() const {
    Pool copy = *this;
    copy.spell_out();
    return std::move(copy.items_);
  }

 private:
  void spell_out() {
    if (!rows_) return;
    items_.reserve(numbers_.size());
    for (const int64_t number : numbers_) items_.emplace_back(rows_, number);
    numbers_.clear();
    rows_.reset();
  }

  std::shared_ptr<const Rows> rows_;
  std::vector<int64_t> numbers_;
  std::vector<Item> items_;
};

struct Order {
  int64_t buffer_size;
  uint64_t seed;
  bool reshuffles;
  bool seeded;  // by the program: the same in every process
};

class ShuffleCursor final : public Cursor {
 public:
  ShuffleCursor(const Opening& opening, const Node& input, const Order& order)
      : Cursor(opening.stage),
        order_(order),
        pass_(order.reshuffles ? opening.pass : 0),
        input_(opening.open(input)) {
    const int64_t expected = input.cardinality();
    if (expected >= 0) pool_.reserve(static_cast<size_t>(std::min(expected, order.buffer_size)));
  }
  void save(StateWriter& state) override {
    state.number("drawn", static_cast<int64_t>(drawn_));
    state.number("ended", ended_);
    std::vector<Item> items = pool_.items();
    state.items("pool", items);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    drawn_ = static_cast<uint64_t>(state.number("drawn"));
    ended_ = state.number("ended") != 0;
    for (Item& item : state.items("pool")) pool_.add(item);
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override {
    while (!ended_ && pool_.size() < static_cast<size_t>(order_.buffer_size)) {
      if (input_->next(item))
        pool_.add(item);
      else
        ended_ = true;
    }
    if (pool_.size() == 0) return false;
    // The next one comes in before one is drawn: an error out of the input leaves everything in its place.
    if (!ended_ && input_->next(item)) {
      pool_.exchange(random(), item);
      return true;
    }
    ended_ = true;
    pool_.draw(random(), item);
    return true;
  }
  size_t random() {
    if (drawn_ / kWords != block_number_) {
      block_number_ = drawn_ / kWords;
      block_ = Philox::block(order_.seed, pass_, block_number_);
    }
    const uint64_t word = block_[drawn_++ % kWords];
    return static_cast<size_t>(word * pool_.size() >> 32);
  }

  static constexpr uint64_t kWords = 4;
  Order order_;
  uint64_t pass_;
  std::unique_ptr<Cursor> input_;
  Pool pool_;
  uint64_t drawn_ = 0;
  uint64_t block_number_ = ~uint64_t{0};
  std::array<uint32_t, kWords> block_{};
  bool ended_ = false;
};

class ShuffleNode final : public FilteringNode<ShuffleNode> {
 public:
  ShuffleNode(NodePtr input, const Order& order, std::source_location where)
      : FilteringNode("shuffle", {std::move(input)}, where), order_(order) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ShuffleCursor>(opening, input(), order_);
  }
  int64_t cardinality() const override { return input().cardinality(); }
  bool shares_files() const override { return true; }
  std::string order_hazard(const Options&) const override { return order_.seeded ? "" : "has no seed"; }
  std::optional<uint64_t> order_seed() const override { return order_.seed; }
  std::string arguments() const override { return std::to_string(order_.buffer_size); }

 private:
  Order order_;
};

constexpr int64_t kMostDrawn = int64_t{1} << 32;  // what one random word reaches

}  // namespace

Dataset Dataset::shuffle(int64_t buffer_size, const ShuffleOptions& options,
                         std::source_location where) const {
  require(buffer_size > 0 && buffer_size <= kMostDrawn, ErrorCode::invalid_argument, where,
          "shuffle: buffer_size must be positive and at most ", kMostDrawn, ", received ", buffer_size);
  const uint64_t seed =
      options.seed ? *options.seed : static_cast<uint64_t>(random::default_generator().advance());
  return Dataset(std::make_shared<ShuffleNode>(
      node_, Order{buffer_size, seed, options.reshuffle_each_iteration, options.seed || random::seeded()},
      where));
}

}  // namespace lockstep::data
