#include "keras/training/worker_source.h"

#include <utility>

#include "comm/workers.h"
#include "distribute/worker_batches.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {
namespace {

using distribute::WorkerBatches;
using distribute::WorkerDataset;

// Which arrays of a batch are there: "x11 y1 w0".
std::string layout_of(const Batch& batch) {
  std::string text;
  const auto add = [&](char name, const TensorList& list) {
    text += name;
    for (const Tensor& tensor : list) text += tensor.defined() ? '1' : '0';
    text += ' ';
  };
  add('x', batch.x);
  add('y', batch.y);
  add('w', batch.sample_weight);
  return text;
}

void fill(Batch& batch, const std::string& layout, TensorList& arrays) {
  TensorList* list = nullptr;
  size_t used = 0;
  for (const char c : layout) {
    if (c == 'x' || c == 'y' || c == 'w') {
      list = c == 'x' ? &batch.x : c == 'y' ? &batch.y : &batch.sample_weight;
      list->clear();
    } else if (c == '0' || c == '1') {
      list->push_back(c == '1' ? std::move(arrays[used++]) : Tensor());
    }
  }
}

class WorkerReader final : public BatchReader {
 public:
  WorkerReader(std::unique_ptr<BatchReader> reader, const distribute::Strategy& strategy,
               WorkerDataset::Batches batches, std::string sharing)
      : reader_(std::move(reader)),
        batches_(strategy, batches),
        global_(batches == WorkerDataset::Batches::global),
        sharing_(std::move(sharing)) {}

  bool next(Batch& batch) override {
    // Nobody but the reader holds the last batch then, and its memory is used again.
    batch = {};
    TensorList arrays;
    if (std::exchange(again_, false) || (!ended_ && reader_->next(read_)))
      each_array(read_, [&](const Tensor& array) { arrays.push_back(array); });
    else
      ended_ = true;
    std::string layout = ended_ ? std::string() : layout_of(read_);
    if (!batches_.take(arrays, layout, batch.worker_rows)) return false;
    fill(batch, layout, arrays);
    return true;
  }
  void again() override { again_ = true; }
  void skip(int64_t batches) override {
    // Workers with batches of their own agree on each.
    if (!global_) return BatchReader::skip(batches);
    if (batches > 0 && std::exchange(again_, false)) --batches;
    reader_->skip(batches);
  }
  // A batch that is to be given once more is behind the reader's position, and part of this one's.
  data::IteratorState save() override {
    data::IteratorState state = reader_->save();
    if (!again_ || state.empty()) return state;
    const std::string layout = layout_of(read_);
    state[kAgain] = Tensor::from(std::vector<uint8_t>(layout.begin(), layout.end()),
                                 {static_cast<int64_t>(layout.size())});
    size_t arrays = 0;
    each_array(read_, [&](const Tensor& array) { state[kAgain + ("." + std::to_string(arrays++))] = array; });
    return state;
  }
  void restore(const data::IteratorState& state) override {
    data::IteratorState own = state;
    if (const auto found = own.find(kAgain); found != own.end()) {
      const std::vector<uint8_t> layout = found->second.to_vector<uint8_t>();
      own.erase(found);
      TensorList arrays;
      while (auto array = own.extract(kAgain + ("." + std::to_string(arrays.size()))))
        arrays.push_back(array.mapped());
      fill(read_, {layout.begin(), layout.end()}, arrays);
      again_ = true;
    }
    reader_->restore(own);
  }
  std::optional<data::Explanation> explain() const override {
    std::optional<data::Explanation> explanation = reader_->explain();
    if (explanation) explanation = distribute::with_sharing(*std::move(explanation), sharing_);
    return explanation;
  }
  int same_examples() const override { return batches_.same_examples(); }

 private:
  static constexpr const char* kAgain = "again";

  std::unique_ptr<BatchReader> reader_;
  WorkerBatches batches_;
  const bool global_;
  const std::string sharing_;  // who reads what; empty: arrays, which all have
  Batch read_;
  bool ended_ = false, again_ = false;
};

class WorkerSource final : public Data::Source {
 public:
  WorkerSource(std::shared_ptr<const Source> source, distribute::Strategy strategy,
               WorkerDataset::Batches batches, std::string sharing)
      : source_(std::move(source)),
        strategy_(std::move(strategy)),
        batches_(batches),
        sharing_(std::move(sharing)) {}

  std::unique_ptr<BatchReader> read(const data::RowBatchOptions& options) const override {
    return std::make_unique<WorkerReader>(source_->read(options), strategy_, batches_, sharing_);
  }
  int64_t batches(int64_t batch_size) const override {
    const int64_t all = source_->batches(batch_size);
    // Others may have more.
    return batches_ == WorkerDataset::Batches::own && all != kEndless ? kUnknown : all;
  }
  const Batch* arrays() const override { return source_->arrays(); }
  std::vector<TensorSpec> input_specs() const override { return source_->input_specs(); }

 private:
  std::shared_ptr<const Source> source_;
  distribute::Strategy strategy_;
  WorkerDataset::Batches batches_;
  std::string sharing_;
};

}  // namespace

Data for_worker(const Data& data, const distribute::Strategy& strategy, bool keeps_order,
                std::source_location where) {
  std::shared_ptr<const Data::Source> source = data.source();
  const Batch* const arrays = source->arrays();
  strategy.workers()->require_equal(
      "the size of the data",
      detail::concat(source->batches(1), arrays ? " examples" : " batches (negative: unknown or endless)"),
      where);
  WorkerDataset::Batches batches = WorkerDataset::Batches::global;
  std::string sharing;
  const std::shared_ptr<const Data::Source> shared = source->with_dataset([&](const data::Dataset& dataset) {
    const WorkerDataset own = distribute::worker_dataset(strategy, dataset, keeps_order, where);
    batches = own.batches;
    sharing = own.description;
    log(strategy.is_chief() ? LogLevel::info : LogLevel::debug, "worker ", strategy.worker(),
        ": the dataset is shared ", sharing);
    return own.dataset;
  });
  if (shared) source = shared;
  return Data(std::make_shared<WorkerSource>(std::move(source), strategy, batches, std::move(sharing)));
}

Batch own_part(const Batch& batch, const distribute::Strategy& strategy) {
  TensorList arrays;
  each_array(batch, [&](const Tensor& array) { arrays.push_back(array); });
  Batch own;
  std::string layout = layout_of(batch);
  WorkerBatches(strategy, WorkerDataset::Batches::global).take(arrays, layout, own.worker_rows);
  fill(own, layout, arrays);
  return own;
}

}  // namespace lockstep::keras
