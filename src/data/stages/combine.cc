// zip, concatenate, choose_from_datasets, sample_from_datasets: several datasets become one.
#include <algorithm>
#include <numeric>

#include "base/philox.h"
#include "data/node.h"
#include "lockstep/ops/random.h"
#include "ops/random/random.h"

namespace lockstep::data {
namespace {

std::vector<NodePtr> nodes_of(const char* stage, const std::vector<Dataset>& datasets,
                              std::source_location where) {
  require(!datasets.empty(), ErrorCode::invalid_argument, where, stage, ": there is no dataset");
  std::vector<NodePtr> nodes;
  for (const Dataset& dataset : datasets) {
    require(dataset.defined(), ErrorCode::invalid_argument, where, stage, ": dataset ", nodes.size(),
            " was never made");
    nodes.push_back(dataset.node());
  }
  return nodes;
}

// What fits both: sizes that differ are open. None where their ranks differ, which a spec cannot say.
std::optional<ElementSpec> common(ElementSpec a, const ElementSpec& b) {
  for (size_t leaf = 0; leaf < a.tensors.size(); ++leaf) {
    Shape& shape = a.tensors[leaf].shape;
    const Shape& other = b.tensors[leaf].shape;
    if (shape.rank() != other.rank()) return {};
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] != other[i]) shape[i] = -1;
  }
  return a;
}

std::optional<ElementSpec> common_spec(std::span<const NodePtr> nodes) {
  std::optional<ElementSpec> all = nodes[0]->spec();
  for (const NodePtr& node : nodes.subspan(1)) {
    const std::optional<ElementSpec> spec = node->spec();
    if (!all || !spec) return {};
    all = common(*std::move(all), *spec);
  }
  return all;
}

// As far as is known before anything runs.
void check_alike(const char* stage, const std::vector<NodePtr>& nodes, std::source_location where) {
  const auto dtype = [](const TensorSpec& tensor) { return tensor.dtype; };
  std::optional<ElementSpec> first;
  for (const NodePtr& node : nodes) {
    const std::optional<ElementSpec> spec = node->spec();
    if (!first) first = spec;
    if (!first || !spec) continue;
    require(first->structure == spec->structure &&
                std::ranges::equal(first->tensors, spec->tensors, {}, dtype, dtype),
            ErrorCode::dtype_mismatch, where, stage,
            ": the datasets must have elements of one kind, received ", *first, " and ", *spec);
  }
}

std::vector<std::unique_ptr<Cursor>> open_all(const Opening& opening, const std::vector<NodePtr>& nodes) {
  std::vector<std::unique_ptr<Cursor>> cursors;
  for (size_t i = 0; i < nodes.size(); ++i) cursors.push_back(opening.open(*nodes[i], i));
  return cursors;
}

std::string numbered(size_t input) { return "input." + std::to_string(input); }

// --- zip ---

class ZipCursor final : public Cursor {
 public:
  ZipCursor(const Opening& opening, const std::vector<NodePtr>& inputs)
      : Cursor(opening.stage), inputs_(open_all(opening, inputs)) {}
  void save(StateWriter& state) override {
    state.number("ended", ended_);
    for (size_t i = 0; i < inputs_.size(); ++i) state.cursor(numbered(i), *inputs_[i]);
  }
  void restore(const StateReader& state) override {
    ended_ = state.number("ended") != 0;
    for (size_t i = 0; i < inputs_.size(); ++i) state.cursor(numbered(i), *inputs_[i]);
  }

 private:
  bool advance(Item& item) override {
    std::vector<Element> parts;
    std::exception_ptr error;
    for (const auto& input : inputs_) {
      if (ended_) break;
      try {
        if (input->next(item))
          parts.push_back(item.element());
        else
          ended_ = true;
      } catch (const Error&) {
        // The others go on too, or what belongs together would not come together any more.
        if (!error) error = std::current_exception();
      }
    }
    if (ended_) return false;
    if (error) std::rethrow_exception(error);
    item = Item(Element::tuple(parts));
    return true;
  }

  std::vector<std::unique_ptr<Cursor>> inputs_;
  bool ended_ = false;
};

class ZipNode final : public NodeOf<ZipNode> {
 public:
  ZipNode(std::vector<NodePtr> inputs, std::source_location where)
      : NodeOf("zip", std::move(inputs), where) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ZipCursor>(opening, inputs_);
  }
  std::optional<ElementSpec> spec() const override {
    std::vector<Structure> structures;
    ElementSpec all;
    for (const NodePtr& input : inputs_) {
      std::optional<ElementSpec> spec = input->spec();
      if (!spec) return {};
      structures.push_back(std::move(spec->structure));
      all.tensors.insert(all.tensors.end(), spec->tensors.begin(), spec->tensors.end());
    }
    all.structure = Structure::tuple(std::move(structures));
    return all;
  }
  int64_t cardinality() const override {
    int64_t least = kInfinite;
    for (const NodePtr& input : inputs_) {
      const int64_t count = input->cardinality();
      if (count == kUnknown) return kUnknown;
      if (count != kInfinite) least = least == kInfinite ? count : std::min(least, count);
    }
    return least;
  }
};

// --- concatenate ---

// The cardinality of all of the datasets together, one after another or mixed.
int64_t total(std::span<const NodePtr> nodes) {
  int64_t sum = 0;
  for (const NodePtr& node : nodes) {
    const int64_t count = node->cardinality();
    if (count == kInfinite) return kInfinite;
    if (count == kUnknown || sum == kUnknown)
      sum = kUnknown;
    else
      sum += count;
  }
  return sum;
}

class ConcatenateCursor final : public Cursor {
 public:
  ConcatenateCursor(const Opening& opening, const std::vector<NodePtr>& inputs)
      : Cursor(opening.stage), opening_(opening), nodes_(inputs) {
    begin(0);
  }
  void save(StateWriter& state) override {
    state.number("at", static_cast<int64_t>(at_));
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    begin(static_cast<size_t>(state.number("at")));
    state.cursor("input", *input_);
  }

 private:
  void begin(size_t input) {
    at_ = std::min(input, nodes_.size() - 1);
    input_.reset();
    input_ = opening_.open(*nodes_[at_], at_);
  }
  bool advance(Item& item) override {
    while (!input_->next(item)) {
      if (at_ + 1 == nodes_.size()) return false;
      begin(at_ + 1);
    }
    return true;
  }

  Opening opening_;
  const std::vector<NodePtr>& nodes_;
  size_t at_ = 0;
  std::unique_ptr<Cursor> input_;
};

class ConcatenateNode final : public NodeOf<ConcatenateNode> {
 public:
  ConcatenateNode(std::vector<NodePtr> inputs, std::source_location where)
      : NodeOf("concatenate", std::move(inputs), where) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ConcatenateCursor>(opening, inputs_);
  }
  std::optional<ElementSpec> spec() const override { return common_spec(inputs_); }
  int64_t cardinality() const override { return total(inputs_); }
  bool shares_files() const override { return true; }
};

// --- choose_from_datasets, sample_from_datasets ---

// Elements from one of the inputs at a time. Says which: kNone at the end.
class SelectingCursor : public Cursor {
 public:
  SelectingCursor(const Opening& opening, std::span<const NodePtr> inputs, bool stops_on_empty)
      : Cursor(opening.stage),
        inputs_(open_all(opening, {inputs.begin(), inputs.end()})),
        stops_on_empty_(stops_on_empty),
        left_(inputs_.size()) {}
  void save(StateWriter& state) override {
    std::vector<int64_t> open;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      open.push_back(inputs_[i] != nullptr);
      if (inputs_[i]) state.cursor(numbered(i), *inputs_[i]);
    }
    state.numbers("open", open);
    state.number("left", static_cast<int64_t>(left_));
  }
  void restore(const StateReader& state) override {
    const std::vector<int64_t> open = state.numbers("open");
    require(open.size() == inputs_.size(), ErrorCode::invalid_argument, state.where(), stage().name,
            ": the state was saved from ", open.size(), " datasets, there are ", inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (open[i] == 0)
        inputs_[i].reset();
      else
        state.cursor(numbered(i), *inputs_[i]);
    }
    left_ = static_cast<size_t>(state.number("left"));
  }

 protected:
  static constexpr size_t kNone = ~size_t{0};
  virtual size_t choose(Item& scratch) = 0;
  bool has(size_t input) const { return inputs_[input] != nullptr; }
  size_t count() const { return inputs_.size(); }

 private:
  bool advance(Item& item) override {
    while (left_ > 0) {
      const size_t chosen = choose(item);
      if (chosen == kNone) left_ = 0;
      if (chosen == kNone || !inputs_[chosen]) continue;
      if (inputs_[chosen]->next(item)) return true;
      inputs_[chosen].reset();
      left_ = stops_on_empty_ ? 0 : left_ - 1;
    }
    return false;
  }

  std::vector<std::unique_ptr<Cursor>> inputs_;
  bool stops_on_empty_;
  size_t left_;  // that have not ended
};

class ChooseCursor final : public SelectingCursor {
 public:
  ChooseCursor(const Opening& opening, std::span<const NodePtr> inputs, const Node& choice, bool stops)
      : SelectingCursor(opening, inputs, stops), choice_(opening.open(choice, inputs.size())) {}
  void save(StateWriter& state) override {
    SelectingCursor::save(state);
    state.cursor("choice", *choice_);
  }
  void restore(const StateReader& state) override {
    SelectingCursor::restore(state);
    state.cursor("choice", *choice_);
  }

 private:
  size_t choose(Item& scratch) override {
    if (!choice_->next(scratch)) return kNone;
    const Tensor& number = scratch.element().tensor(stage().where);
    require(number.dtype() == DType::int64 && number.size() == 1, ErrorCode::dtype_mismatch, stage().where,
            "choose_from_datasets: a choice must be one int64, received ", number.spec());
    const auto chosen = number.item<int64_t>();
    require(chosen >= 0 && chosen < static_cast<int64_t>(count()), ErrorCode::invalid_argument, stage().where,
            "choose_from_datasets: there are ", count(), " datasets, none has the number ", chosen);
    return static_cast<size_t>(chosen);
  }

  std::unique_ptr<Cursor> choice_;
};

class ChooseNode final : public NodeOf<ChooseNode> {
 public:
  ChooseNode(std::vector<NodePtr> inputs, bool stops, std::source_location where)
      : NodeOf("choose_from_datasets", std::move(inputs), where), stops_(stops) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<ChooseCursor>(opening, datasets(), *inputs_.back(), stops_);
  }
  std::optional<ElementSpec> spec() const override { return common_spec(datasets()); }
  int64_t cardinality() const override {
    const bool endless =
        std::ranges::all_of(inputs_, [](const NodePtr& input) { return input->cardinality() == kInfinite; });
    return endless ? kInfinite : kUnknown;
  }

 private:
  std::span<const NodePtr> datasets() const { return std::span(inputs_).first(inputs_.size() - 1); }
  bool stops_;
};

struct Sampling {
  std::vector<double> weights;
  uint64_t seed;
  bool stops;
  bool seeded;  // by the program: the same in every process
};

class SampleCursor final : public SelectingCursor {
 public:
  SampleCursor(const Opening& opening, const std::vector<NodePtr>& inputs, const Sampling& sampling)
      : SelectingCursor(opening, inputs, sampling.stops), sampling_(sampling), pass_(opening.pass) {}
  void save(StateWriter& state) override {
    SelectingCursor::save(state);
    state.number("drawn", drawn_);
  }
  void restore(const StateReader& state) override {
    SelectingCursor::restore(state);
    drawn_ = state.number("drawn");
  }

 private:
  // Among those that have not ended: what a weight is of their sum.
  size_t choose(Item& /*scratch*/) override {
    double sum = 0;
    for (size_t i = 0; i < count(); ++i) sum += has(i) ? sampling_.weights[i] : 0;
    if (sum == 0) return kNone;
    const auto block = Philox::block(sampling_.seed, pass_, static_cast<uint64_t>(drawn_++));
    double rest = static_cast<double>((uint64_t{block[0]} << 32 | block[1]) >> 11) * 0x1p-53 * sum;
    size_t chosen = kNone;
    for (size_t i = 0; i < count() && rest >= 0; ++i) {
      if (!has(i) || sampling_.weights[i] == 0) continue;
      chosen = i;
      rest -= sampling_.weights[i];
    }
    return chosen;
  }

  Sampling sampling_;
  uint64_t pass_;
  int64_t drawn_ = 0;
};

class SampleNode final : public NodeOf<SampleNode> {
 public:
  SampleNode(std::vector<NodePtr> inputs, Sampling sampling, std::source_location where)
      : NodeOf("sample_from_datasets", std::move(inputs), where), sampling_(std::move(sampling)) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    return std::make_unique<SampleCursor>(opening, inputs_, sampling_);
  }
  std::optional<ElementSpec> spec() const override { return common_spec(inputs_); }
  int64_t cardinality() const override {
    std::vector<NodePtr> drawn;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (sampling_.weights[i] > 0) drawn.push_back(inputs_[i]);
    if (!sampling_.stops) return total(drawn);
    const bool endless =
        std::ranges::all_of(drawn, [](const NodePtr& input) { return input->cardinality() == kInfinite; });
    return endless ? kInfinite : kUnknown;
  }
  bool shares_files() const override { return true; }
  std::string order_hazard(const Options&) const override { return sampling_.seeded ? "" : "has no seed"; }
  std::optional<uint64_t> order_seed() const override { return sampling_.seed; }

 private:
  Sampling sampling_;
};

}  // namespace

Dataset Dataset::zip(const std::vector<Dataset>& datasets, std::source_location where) {
  return Dataset(std::make_shared<ZipNode>(nodes_of("zip", datasets, where), where));
}

Dataset Dataset::concatenate(const Dataset& other, std::source_location where) const {
  std::vector<NodePtr> nodes = nodes_of("concatenate", {*this, other}, where);
  check_alike("concatenate", nodes, where);
  return Dataset(std::make_shared<ConcatenateNode>(std::move(nodes), where));
}

Dataset Dataset::choose_from_datasets(const std::vector<Dataset>& datasets, const Dataset& choice,
                                      bool stop_on_empty_dataset, std::source_location where) {
  std::vector<NodePtr> nodes = nodes_of("choose_from_datasets", datasets, where);
  check_alike("choose_from_datasets", nodes, where);
  nodes.push_back(nodes_of("choose_from_datasets", {choice}, where)[0]);
  return Dataset(std::make_shared<ChooseNode>(std::move(nodes), stop_on_empty_dataset, where));
}

Dataset Dataset::sample_from_datasets(const std::vector<Dataset>& datasets, const SampleOptions& options,
                                      std::source_location where) {
  std::vector<NodePtr> nodes = nodes_of("sample_from_datasets", datasets, where);
  check_alike("sample_from_datasets", nodes, where);
  std::vector<double> weights = options.weights;
  if (weights.empty()) weights.assign(nodes.size(), 1);
  require(weights.size() == nodes.size(), ErrorCode::invalid_argument, where,
          "sample_from_datasets: there must be one weight a dataset, received ", weights.size(), " for ",
          nodes.size(), " datasets");
  require(*std::ranges::min_element(weights) >= 0 && std::accumulate(weights.begin(), weights.end(), 0.0) > 0,
          ErrorCode::invalid_argument, where,
          "sample_from_datasets: weights must not be negative, and one at least must be positive");
  const uint64_t seed =
      options.seed ? *options.seed : static_cast<uint64_t>(random::default_generator().advance());
  return Dataset(std::make_shared<SampleNode>(
      std::move(nodes),
      Sampling{std::move(weights), seed, options.stop_on_empty_dataset, options.seed || random::seeded()},
      where));
}

}  // namespace lockstep::data
