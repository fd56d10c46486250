// The batches of a run, epoch after epoch.
#pragma once

#include <memory>

#include "keras/training/source.h"
#include "lockstep/observe/run_summary.h"

namespace lockstep::keras {

// random::default_generator().
int64_t random_state();
void set_random_state(int64_t state);

class BatchStream {
 public:
  // `continues`: an epoch goes on where the one before stopped, unless the data had ended there; otherwise
  // every epoch is a new pass.
  BatchStream(const Data& data, const data::RowBatchOptions& options, bool continues)
      : source_(data.source()), options_(options), continues_(continues) {}

  void begin_epoch();
  // False where the data has ended.
  bool next(Batch& batch);
  // The step of the last batch is made.
  void used() { in_hand_ = false; }
  // Where it is not, next() gives that batch once more.
  void put_back();
  // The next batches, where they are rows of arrays on a GPU (BatchReader::runs()).
  std::optional<BatchReader::Runs> runs(int64_t most) { return reader_->runs(most); }
  // As if next() had given so many batches.
  void skip(int64_t batches) {
    reader_->skip(batches);
    taken_ += batches;
  }

  // What it takes to stand where the stream stands: the generator (random::default_generator()) when the pass
  // under way began, and how many batches of it were taken; -1: no pass is under way. Where the data knows
  // its position there is that as well, also of a pass that has ended: later ones count on from it.
  struct Position {
    int64_t random = 0;
    int64_t taken = -1;
    data::IteratorState iterator = {};
  };
  Position position();
  // The same, once the epoch under way has ended.
  Position position_after_epoch();
  // In place of begin_epoch(); the generator becomes `random`, then a new pass begins if none is under way.
  void restore(const Position& position, int64_t random);

  const Data::Source& source() const { return *source_; }
  int64_t batch_size() const { return options_.batch_size; }
  int64_t taken() const { return taken_; }  // batches of the pass under way

  // The explanation of the pass under way; nullopt where the data has none.
  std::optional<data::Explanation> explain() const { return reader_ ? reader_->explain() : std::nullopt; }
  // How many workers read the same batches in that pass.
  int same_examples() const { return reader_ ? reader_->same_examples() : 1; }
  // Its explanation in short; empty where it was not what limited.
  observe::InputSummary input_summary() const;

 private:
  void open();
  bool goes_on() const;

  std::shared_ptr<const Data::Source> source_;
  data::RowBatchOptions options_;
  bool continues_;
  bool ended_ = false;
  bool in_hand_ = false;  // a batch that no step was made of yet
  int64_t random_ = 0;
  int64_t taken_ = -1;
  std::unique_ptr<BatchReader> reader_;
};

}  // namespace lockstep::keras
