#include "data/function.h"
#include "data/node.h"
#include "data/stages/parallelism.h"
#include "data/worker_pool.h"

namespace lockstep::data {
namespace {

struct MapCall {
  MapFunction function;
  FunctionCaller caller;

  void operator()(const Stage& stage, Item& item, uint64_t pass, int64_t index) const {
    caller(stage, pass, index, [&] { item = Item(function(item.element())); });
  }
};

class MapCursor final : public Cursor {
 public:
  MapCursor(const Opening& opening, const Node& input, const MapCall& call)
      : Cursor(opening.stage), call_(call), pass_(opening.pass), input_(opening.open(input)) {}
  void save(StateWriter& state) override {
    state.number("at", at_);
    state.cursor("input", *input_);
  }
  void restore(const StateReader& state) override {
    at_ = state.number("at");
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override {
    // An element that did not come has its number too, as it has where threads work.
    const int64_t index = at_++;
    if (!input_->next(item)) return false;
    call_(stage(), item, pass_, index);
    return true;
  }

  MapCall call_;
  uint64_t pass_;
  int64_t at_ = 0;
  std::unique_ptr<Cursor> input_;
};

class ParallelMapCursor final : public Cursor {
 public:
  ParallelMapCursor(const Opening& opening, const Node& input, const MapCall& call,
                    const WorkerPool::Settings& settings)
      : Cursor(opening.stage),
        call_(call),
        pass_(opening.pass),
        pool_(
            opening, settings,
            [this](WorkerPool::WorkItem& work_item) { return input_->next(work_item.item); },
            [this](WorkerPool::WorkItem& work_item, int64_t index) {
              call_(stage(), work_item.item, pass_, index);
            }),
        input_(opening.open(input, 0, pool_.stop_token())) {}
  // The threads end before what they read.
  ~ParallelMapCursor() override { pool_.stop(); }
  void save(StateWriter& state) override {
    pool_.save(state, [&] { state.cursor("input", *input_); });
  }
  void restore(const StateReader& state) override {
    pool_.restore(state);
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override { return pool_.take(item); }

  MapCall call_;
  uint64_t pass_;
  WorkerPool pool_;
  std::unique_ptr<Cursor> input_;
};

class MapNode final : public NodeOf<MapNode> {
 public:
  MapNode(NodePtr input, MapFunction f, const MapOptions& options, std::source_location where)
      : NodeOf("map", {std::move(input)}, where), options_(options), call_{std::move(f), {}} {}

  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    if (options_.num_parallel_calls == 1) return std::make_unique<MapCursor>(opening, input(), call_);
    const int64_t calls = options_.num_parallel_calls;
    return std::make_unique<ParallelMapCursor>(
        opening, input(), call_,
        WorkerPool::Settings{.threads = calls,
                             .slots = slots_for(calls),
                             .ordered = ordered(options_.deterministic, opening)});
  }
  std::optional<ElementSpec> spec() const override { return options_.output; }
  int64_t cardinality() const override { return input().cardinality(); }
  bool shares_files() const override { return true; }
  std::string order_hazard(const Options& options) const override {
    return parallel_order_hazard(options_.num_parallel_calls, options_.deterministic, options);
  }
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
