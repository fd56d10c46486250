// window, group_by_window, bucket_by_sequence_length: elements are collected, and a function makes a dataset
// of each collection, of which the elements are given.
#include <algorithm>
#include <deque>

#include "data/function.h"
#include "data/node.h"
#include "data/sources/items.h"

namespace lockstep::data {
namespace {

struct Reducer {
  Dataset::WindowFunction function;
  FunctionCaller caller;
};

class CollectingCursor : public Cursor {
 public:
  CollectingCursor(const Opening& opening, const Node& input, const Reducer& reduce)
      : Cursor(opening.stage), opening_(opening), input_(opening.open(input)), reduce_(reduce) {}
  void save(StateWriter& state) override {
    state.number("at", at_);
    state.number("open", group_ != nullptr);
    state.cursor("input", *input_);
    if (!group_) return;
    state.number("key", key_);
    state.items("items", items_);
    state.cursor("group", *group_);
  }
  void restore(const StateReader& state) override {
    at_ = state.number("at");
    state.cursor("input", *input_);
    if (state.number("open") == 0) return;
    key_ = state.number("key");
    items_ = state.items("items");
    open_group(at_ - 1);
    state.cursor("group", *group_);
  }

 protected:
  // The next collection, false where there is none. May be called again after that.
  virtual bool collect(int64_t& key, std::vector<Item>& items) = 0;
  Cursor& input() { return *input_; }
  uint64_t pass() const { return opening_.pass; }

 private:
  bool advance(Item& item) override {
    while (true) {
      if (group_) {
        if (group_->next(item)) return true;
        group_.reset();
        node_.reset();
      }
      items_.clear();
      if (!collect(key_, items_)) return false;
      open_group(at_++);
    }
  }
  void open_group(int64_t index) {
    node_ = reduce_.caller(stage(), opening_.pass, index, [&] {
      const Dataset made = reduce_.function(key_, items_dataset(items_, stage().where));
      require(made.defined(), ErrorCode::invalid_argument, stage().where, stage().name,
              ": the function must return a dataset");
      return made.node();
    });
    group_ = opening_.of(index).open(*node_, 1);
  }

  Opening opening_;
  std::unique_ptr<Cursor> input_;
  Reducer reduce_;
  int64_t at_ = 0;  // collections so far
  // The collection that is being read.
  int64_t key_ = 0;
  std::vector<Item> items_;
  NodePtr node_;
  std::unique_ptr<Cursor> group_;
};

// --- window ---

struct Windows {
  int64_t size, shift, stride;
  bool drop_remainder;
  int64_t span() const { return (size - 1) * stride + 1; }
};

class WindowCursor final : public CollectingCursor {
 public:
  WindowCursor(const Opening& opening, const Node& input, const Reducer& reduce, const Windows& windows)
      : CollectingCursor(opening, input, reduce), windows_(windows) {}
  void save(StateWriter& state) override {
    CollectingCursor::save(state);
    std::vector<Item> ahead(ahead_.begin(), ahead_.end());
    state.items("ahead", ahead);
    state.number("gap", gap_);
  }
  void restore(const StateReader& state) override {
    CollectingCursor::restore(state);
    const std::vector<Item> ahead = state.items("ahead");
    ahead_.assign(ahead.begin(), ahead.end());
    gap_ = state.number("gap");
  }

 private:
  bool collect(int64_t& /*key*/, std::vector<Item>& items) override {
    Item item;
    for (; gap_ > 0; --gap_)
      if (!input().next(item)) return false;
    const auto span = static_cast<size_t>(windows_.span());
    while (ahead_.size() < span && input().next(item)) ahead_.push_back(std::move(item));
    if (ahead_.empty() || (windows_.drop_remainder && ahead_.size() < span)) return false;
    for (size_t i = 0; i < std::min(span, ahead_.size()); i += static_cast<size_t>(windows_.stride))
      items.push_back(ahead_[i]);
    const int64_t passed = std::min(windows_.shift, static_cast<int64_t>(ahead_.size()));
    ahead_.erase(ahead_.begin(), ahead_.begin() + passed);
    gap_ = windows_.shift - passed;
    return true;
  }

  Windows windows_;
  std::deque<Item> ahead_;  // from the start of the next window on
  int64_t gap_ = 0;         // elements up to there that have not been read yet
};

class WindowNode final : public NodeOf<WindowNode> {
 public:
  WindowNode(NodePtr input, const Windows& windows, Dataset::WindowFunction f, std::source_location where)
      : NodeOf("window", {std::move(input)}, where), windows_(windows), reduce_{std::move(f), {}} {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<WindowCursor>(opening, input(), reduce_, windows_);
  }
  std::optional<ElementSpec> spec() const override { return {}; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  std::string arguments() const override {
    return detail::concat(windows_.size, ", shift=", windows_.shift, ", stride=", windows_.stride);
  }

 private:
  Windows windows_;
  Reducer reduce_;
};

// --- group_by_window ---

struct Grouping {
  Dataset::KeyFunction key;
  std::function<int64_t(int64_t key)> size;
  FunctionCaller caller;
};

class GroupCursor final : public CollectingCursor {
 public:
  GroupCursor(const Opening& opening, const Node& input, const Reducer& reduce, const Grouping& grouping)
      : CollectingCursor(opening, input, reduce), grouping_(grouping) {}
  void save(StateWriter& state) override {
    CollectingCursor::save(state);
    std::vector<int64_t> keys;
    for (auto& [key, items] : groups_) {
      state.items("waiting." + std::to_string(keys.size()), items);
      keys.push_back(key);
    }
    state.numbers("keys", keys);
    state.number("read", read_);
  }
  void restore(const StateReader& state) override {
    CollectingCursor::restore(state);
    const std::vector<int64_t> keys = state.numbers("keys");
    for (size_t i = 0; i < keys.size(); ++i) groups_[keys[i]] = state.items("waiting." + std::to_string(i));
    read_ = state.number("read");
  }

 private:
  bool collect(int64_t& key, std::vector<Item>& items) override {
    for (Item item; input().next(item);) {
      key = grouping_.caller(stage(), pass(), read_++, [&] {
        Item look = item;
        return grouping_.key(look.element());
      });
      std::vector<Item>& group = groups_[key];
      group.push_back(std::move(item));
      if (static_cast<int64_t>(group.size()) == grouping_.size(key))
        return hand_out(groups_.find(key), key, items);
    }
    // What is left, by key.
    return !groups_.empty() && hand_out(groups_.begin(), key, items);
  }
  bool hand_out(std::map<int64_t, std::vector<Item>>::iterator group, int64_t& key,
                std::vector<Item>& items) {
    key = group->first;
    items = std::move(group->second);
    groups_.erase(group);
    return true;
  }

  Grouping grouping_;
  std::map<int64_t, std::vector<Item>> groups_;
  int64_t read_ = 0;
};

class GroupNode final : public NodeOf<GroupNode> {
 public:
  GroupNode(const char* name, NodePtr input, Grouping grouping, Dataset::WindowFunction f,
            std::source_location where)
      : NodeOf(name, {std::move(input)}, where), grouping_(std::move(grouping)), reduce_{std::move(f), {}} {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<GroupCursor>(opening, input(), reduce_, grouping_);
  }
  std::optional<ElementSpec> spec() const override { return {}; }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  bool shares_files() const override { return true; }

 private:
  Grouping grouping_;
  Reducer reduce_;
};

// --- bucket_by_sequence_length ---

// What the longest sequence of each bucket, one below its boundary, makes of the dimensions that are left
// open.
std::vector<Shape> closed(std::vector<Shape> shapes, int64_t longest) {
  for (Shape& shape : shapes)
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] < 0) shape[i] = longest;
  return shapes;
}

std::vector<Shape> open_shapes(const Node& input, const BucketOptions& options, std::source_location where) {
  if (!options.padded_shapes.empty()) return options.padded_shapes;
  const std::optional<ElementSpec> spec = input.spec();
  require(
      spec.has_value(), ErrorCode::invalid_argument, where,
      "bucket_by_sequence_length: pad_to_bucket_boundary needs to know which dimensions are lengths; give "
      "padded_shapes with -1 for them, or MapOptions::output to the map() before");
  std::vector<Shape> shapes;
  for (const TensorSpec& tensor : spec->tensors) shapes.push_back(tensor.shape);
  return shapes;
}

}  // namespace

Dataset Dataset::window_elements(int64_t size, DatasetReducer f, const WindowOptions& options,
                                 std::source_location where) const {
  require(size > 0 && options.shift >= 0 && options.stride > 0, ErrorCode::invalid_argument, where,
          "window: size and stride must be positive and shift not negative, received ", size, ", ",
          options.stride, " and ", options.shift);
  const Windows windows{size, options.shift > 0 ? options.shift : size, options.stride,
                        options.drop_remainder};
  return Dataset(std::make_shared<WindowNode>(
      node_, windows, [f = std::move(f)](int64_t, const Dataset& window) { return f(window); }, where));
}

Dataset Dataset::group_by_window(KeyFunction key, WindowFunction reduce, int64_t window_size,
                                 std::source_location where) const {
  require(window_size > 0, ErrorCode::invalid_argument, where,
          "group_by_window: window_size must be positive, received ", window_size);
  return Dataset(std::make_shared<GroupNode>(
      "group_by_window", node_, Grouping{std::move(key), [window_size](int64_t) { return window_size; }, {}},
      std::move(reduce), where));
}

Dataset Dataset::bucket_by_sequence_length(KeyFunction length, const std::vector<int64_t>& boundaries,
                                           const std::vector<int64_t>& batch_sizes,
                                           const BucketOptions& options, std::source_location where) const {
  require(!boundaries.empty() && std::is_sorted(boundaries.begin(), boundaries.end(), std::less_equal<>()) &&
              batch_sizes.size() == boundaries.size() + 1,
          ErrorCode::invalid_argument, where,
          "bucket_by_sequence_length: boundaries must grow and there must be one batch size more than "
          "boundaries, received ",
          boundaries.size(), " boundaries and ", batch_sizes.size(), " batch sizes");
  require(*std::min_element(batch_sizes.begin(), batch_sizes.end()) > 0, ErrorCode::invalid_argument, where,
          "bucket_by_sequence_length: batch sizes must be positive");
  std::vector<PaddedBatchOptions> padding;
  for (size_t bucket = 0; bucket < batch_sizes.size(); ++bucket) {
    std::vector<Shape> shapes = options.padded_shapes;
    if (options.pad_to_bucket_boundary && bucket < boundaries.size())
      shapes = closed(open_shapes(*node_, options, where), boundaries[bucket] - 1);
    padding.push_back({std::move(shapes), options.padding_values, options.drop_remainder});
  }
  auto bucket_of = [length = std::move(length), boundaries, bounded = options.pad_to_bucket_boundary,
                    where](const Element& element) -> int64_t {
    const int64_t value = length(element);
    require(!bounded || value < boundaries.back(), ErrorCode::invalid_argument, where,
            "bucket_by_sequence_length: an element of length ", value,
            " does not fit below the last boundary, ", boundaries.back(),
            ", and pad_to_bucket_boundary leaves no bucket for longer ones");
    return std::upper_bound(boundaries.begin(), boundaries.end(), value) - boundaries.begin();
  };
  const auto size_of_bucket = [batch_sizes](int64_t bucket) {
    return batch_sizes[static_cast<size_t>(bucket)];
  };
  return Dataset(std::make_shared<GroupNode>(
      "bucket_by_sequence_length", node_, Grouping{std::move(bucket_of), size_of_bucket, {}},
      [padding = std::move(padding), size_of_bucket, where](int64_t bucket, const Dataset& window) {
        return window.padded_batch(size_of_bucket(bucket), padding[static_cast<size_t>(bucket)], where);
      },
      where));
}

}  // namespace lockstep::data
