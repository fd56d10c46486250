#include "base/philox.h"
#include "data/conveyor.h"
#include "data/iteration.h"
#include "data/node.h"
#include "data/stages/parallelism.h"
#include "lockstep/ops/random.h"

namespace lockstep::data {
namespace {

// What a function draws from while it works on one element: the same numbers on every thread.
class ElementRandomness final : public random::DefaultGenerator {
 public:
  ElementRandomness(uint64_t seed, int64_t iteration, int64_t index)
      : seed_(seed), iteration_(iteration), index_(index) {}
  const random::Generator& generator() override {
    thread_local const random::Generator drawn(0);
    if (!used_) {
      const auto block =
          Philox::block(seed_, static_cast<uint64_t>(iteration_), static_cast<uint64_t>(index_));
      drawn.reset(uint64_t{block[0]} << 32 | block[1]);
      used_ = true;
    }
    return drawn;
  }

 private:
  uint64_t seed_;
  int64_t iteration_, index_;
  bool used_ = false;
};

struct MapCall {
  MapFunction function;
  uint64_t seed;
  Iterations iterations;

  void operator()(const Stage& stage, Item& item, int64_t iteration, int64_t index) const {
    in_element(stage, index, [&] {
      ElementRandomness randomness(seed, iteration, index);
      item = Item(function(item.element()));
    });
  }
};

class MapCursor final : public Cursor {
 public:
  MapCursor(const Opening& opening, const Node& input, const MapCall& call)
      : Cursor(opening.stage),
        call_(call),
        iteration_(call.iterations.begin()),
        input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    state.number("iteration", iteration_);
    state.number("at", at_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    iteration_ = state.number("iteration");
    call_.iterations.restored(iteration_);
    at_ = state.number("at");
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override {
    if (!input_->next(item)) return false;
    call_(stage(), item, iteration_, at_++);
    return true;
  }

  MapCall call_;
  int64_t iteration_;
  int64_t at_ = 0;
  std::unique_ptr<Cursor> input_;
};

class ParallelMapCursor final : public Cursor {
 public:
  ParallelMapCursor(const Opening& opening, const Node& input, const MapCall& call,
                    const Conveyor::Settings& settings)
      : Cursor(opening.stage),
        call_(call),
        iteration_(call.iterations.begin()),
        conveyor_(
            opening, settings, [this](Conveyor::Parcel& parcel) { return input_->next(parcel.item); },
            [this](Conveyor::Parcel& parcel, int64_t index) {
              call_(stage(), parcel.item, iteration_, index);
            }),
        input_(opening.open(input, 0, conveyor_.stop_token())) {}
  // The threads end before what they read.
  ~ParallelMapCursor() override { conveyor_.stop(); }
  void save(StateWriter& state) override {
    conveyor_.save(state, [&] {
      state.number("iteration", iteration_);
      state.cursor("input", *input_);
    });
  }
  void restore(const StateReader& state) override {
    iteration_ = state.number("iteration");
    call_.iterations.restored(iteration_);
    conveyor_.restore(state);
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override { return conveyor_.take(item); }

  MapCall call_;
  int64_t iteration_;
  Conveyor conveyor_;
  std::unique_ptr<Cursor> input_;
};

class MapNode final : public NodeOf<MapNode> {
 public:
  MapNode(NodePtr input, MapFunction f, const MapOptions& options, std::source_location where)
      : NodeOf("map", {std::move(input)}, where),
        options_(options),
        call_{std::move(f), static_cast<uint64_t>(random::default_generator().advance()), {}} {}

  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    if (options_.num_parallel_calls == 1) return std::make_unique<MapCursor>(opening, input(), call_);
    const int64_t calls = options_.num_parallel_calls;
    return std::make_unique<ParallelMapCursor>(
        opening, input(), call_,
        Conveyor::Settings{.threads = calls,
                           .slots = slots_for(calls),
                           .ordered = ordered(options_.deterministic, opening)});
  }
  std::optional<ElementSpec> spec() const override { return options_.output; }
  int64_t cardinality() const override { return input().cardinality(); }
  std::string arguments() const override { return parallelism_text(options_.num_parallel_calls); }

 private:
  MapOptions options_;
  MapCall call_;
};

}  // namespace

Dataset Dataset::map_elements(MapFunction f, const MapOptions& options, std::source_location where) const {
  check_parallelism("map", options.num_parallel_calls, where);
  return Dataset(std::make_shared<MapNode>(node_, std::move(f), options, where));
}

}  // namespace lockstep::data
