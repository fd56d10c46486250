#include "data/node.h"
#include "data/stack.h"
#include "data/stages/parallelism.h"
#include "data/worker_pool.h"

namespace lockstep::data {
namespace {

class BatchCursor final : public Cursor {
 public:
  BatchCursor(const Opening& opening, const Node& input, int64_t size, bool drop_remainder)
      : Cursor(opening.stage), size_(size), drop_remainder_(drop_remainder), input_(opening.open(input)) {}
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
    if (!collect(*input_, size_, drop_remainder_, kept_, parts_)) return false;
    item = Item(stack(parts_, stage()));
    return true;
  }

  int64_t size_;
  bool drop_remainder_;
  std::unique_ptr<Cursor> input_;
  std::vector<Item> kept_, parts_;
};

class ParallelBatchCursor final : public Cursor {
 public:
  ParallelBatchCursor(const Opening& opening, const Node& input, int64_t size, bool drop_remainder,
                      const WorkerPool::Settings& settings)
      : Cursor(opening.stage),
        pool_(
            opening, settings,
            [this, size, drop_remainder](WorkerPool::WorkItem& work_item) {
              return collect(*input_, size, drop_remainder, kept_, work_item.parts);
            },
            [this](WorkerPool::WorkItem& work_item, int64_t) {
              work_item.item = Item(stack(work_item.parts, stage()));
            }),
        input_(opening.open(input, 0, pool_.stop_token())) {}
  ~ParallelBatchCursor() override { pool_.stop(); }
  void save(StateWriter& state) override {
    pool_.save(state, [&] {
      state.items("kept", kept_);
      state.cursor("input", *input_);
    });
  }
  void restore(const StateReader& state) override {
    pool_.restore(state);
    kept_ = state.items("kept");
    state.cursor("input", *input_);
  }

 private:
  bool advance(Item& item) override { return pool_.take(item); }

  std::vector<Item> kept_;
  WorkerPool pool_;
  std::unique_ptr<Cursor> input_;
};

class BatchNode final : public NodeOf<BatchNode> {
 public:
  BatchNode(NodePtr input, int64_t size, const BatchOptions& options, std::source_location where)
      : NodeOf("batch", {std::move(input)}, where), size_(size), options_(options) {}

  std::unique_ptr<Cursor> open(const Opening& opening) const override {
    const int64_t calls = options_.num_parallel_calls;
    if (calls == 1) return std::make_unique<BatchCursor>(opening, input(), size_, options_.drop_remainder);
    return std::make_unique<ParallelBatchCursor>(
        opening, input(), size_, options_.drop_remainder,
        WorkerPool::Settings{.threads = calls, .slots = slots_for(calls), .ordered = ordered({}, opening)});
  }
  std::optional<ElementSpec> spec() const override {
    std::optional<ElementSpec> spec = input().spec();
    if (!spec) return spec;
    const bool whole = batches_are_whole(input().cardinality(), size_, options_.drop_remainder);
    for (TensorSpec& tensor : spec->tensors) tensor.shape.insert(0, whole ? size_ : -1);
    return spec;
  }
  bool shares_files() const override { return true; }
  std::string order_hazard(const Options& options) const override {
    return parallel_order_hazard(options_.num_parallel_calls, {}, options);
  }
  int64_t cardinality() const override {
    return batches_of(input().cardinality(), size_, options_.drop_remainder);
  }
  std::string arguments() const override {
    const std::string parallel = parallelism_text(options_.num_parallel_calls);
    return std::to_string(size_) + (options_.drop_remainder ? ", drop_remainder" : "") +
           (parallel.empty() ? "" : ", " + parallel);
  }

 private:
  int64_t size_;
  BatchOptions options_;
};

}  // namespace

Dataset Dataset::batch(int64_t batch_size, const BatchOptions& options, std::source_location where) const {
  require(batch_size > 0, ErrorCode::invalid_argument, where, "batch: batch_size must be positive, received ",
          batch_size);
  check_parallelism("batch", options.num_parallel_calls, where);
  return Dataset(std::make_shared<BatchNode>(node_, batch_size, options, where));
}

}  // namespace lockstep::data
