// Callbacks: code that fit, evaluate and predict call at set moments.
//
// A Callback is a handle: copies share the state. To write one, derive from CallbackBase and make a handle
// with make_callback<MyCallback>(arguments...).
//
// All moments are called by the thread that called fit, evaluate or predict, one after another and between
// steps. What a callback throws ends the run. A callback takes part in one run at a time; used for another,
// it begins anew with on_train_begin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

class Model;

// Names and values in the order in which they are shown: loss, metrics, then val_*.
class Logs {
 public:
  using Entry = std::pair<std::string, double>;
  void set(const std::string& name, double value);
  // Nullopt where there is no such name.
  std::optional<double> find(const std::string& name) const;
  // Throws Error(not_found) naming those that there are.
  double operator[](Located<std::string_view> name) const;
  const std::vector<Entry>& entries() const { return entries_; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<Entry> entries_;
};

// What a run is about; callbacks read it from on_*_begin on.
struct RunParams {
  int epochs = 1;
  int64_t steps = -1;      // of an epoch; -1: not known before the first has ended
  int verbose = 1;         // of fit, evaluate or predict
  int64_t batch_size = 0;  // 0: the data comes in batches
  int64_t examples = -1;   // -1: the data does not say
  std::string data = {};   // what it is: "arrays: float32(28, 28), int32()", "a dataset"
};

// What a backup keeps of a callback. One call for each value, by name, writes it down or puts it back:
//
//   void visit_state(CallbackState& state) override { state("best", best_), state("waited", waited_); }
class CallbackState {
 public:
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  CallbackState() = default;                                                              // writes down
  explicit CallbackState(Tensors saved) : restores_(true), tensors_(std::move(saved)) {}  // puts back
  bool restores() const { return restores_; }
  // What was written down, or what nobody asked for.
  Tensors take() { return std::move(tensors_); }

  // Throw Error(invalid_argument) where there is no such value, or one of another kind.
  void operator()(const std::string& name, bool& value);
  void operator()(const std::string& name, int& value);
  void operator()(const std::string& name, int64_t& value);
  void operator()(const std::string& name, double& value);
  void operator()(const std::string& name, std::optional<double>& value);
  void operator()(const std::string& name, std::string& value);
  void operator()(const std::string& name, Tensor& value);  // undefined, or any
  void operator()(const std::string& name, TensorList& values);

 private:
  bool restores_ = false;
  Tensors tensors_;
};

// Epochs and batches are counted from 0, batches within their epoch. Validation inside fit calls the on_test
// moments, between the last batch and the end of an epoch.
class CallbackBase {
 public:
  virtual ~CallbackBase() = default;
  // The weights exist by then, the optimizer's slots not yet.
  virtual void on_train_begin(const Logs&) {}
  virtual void on_train_end(const Logs&) {}  // the last epoch's logs
  virtual void on_epoch_begin(int /*epoch*/, const Logs&) {}
  // Before on_epoch_end: values of its own that all callbacks, the history and the progress line shall have.
  virtual void add_logs(int /*epoch*/, Logs&) {}
  // Loss and metrics over the epoch, then val_*, then what add_logs() added.
  virtual void on_epoch_end(int /*epoch*/, const Logs&) {}
  virtual void on_train_batch_begin(int64_t /*batch*/, const Logs&) {}
  virtual void on_train_batch_end(int64_t /*batch*/, const Logs&) {}
  virtual void on_test_begin(const Logs&) {}
  virtual void on_test_end(const Logs&) {}
  virtual void on_test_batch_begin(int64_t /*batch*/, const Logs&) {}
  virtual void on_test_batch_end(int64_t /*batch*/, const Logs&) {}
  virtual void on_predict_begin(const Logs&) {}
  virtual void on_predict_end(const Logs&) {}
  virtual void on_predict_batch_begin(int64_t /*batch*/, const Logs&) {}
  virtual void on_predict_batch_end(int64_t /*batch*/, const Logs&) {}
  // True: the logs of every batch are wanted, means over the epoch so far, so they are read from the device
  // after each. The logs of on_*_batch_end are empty otherwise, and steps follow each other without waiting.
  virtual bool wants_batch_logs() const { return false; }
  // False: steps may be made together where that is faster, and it is told of the last of them, as it is
  // where steps_per_execution says so.
  virtual bool needs_every_batch() const { return true; }

  // True: of several workers only the chief's hears of the run, as of callbacks that write files. What such a
  // callback does must not change the run: the others would not know.
  virtual bool chief_only() const { return false; }

  // What it must know again for a run that goes on from a backup to be the run that was broken off: called to
  // write it down, and once all callbacks have been told that training begins to put it back.
  virtual void visit_state(CallbackState&) {}
  // By which a backup knows it; callbacks of one name are told apart by their order.
  virtual std::string state_name() const { return "callback"; }
  // When all callbacks have been told that training begins, or that a batch of it or an epoch has ended: the
  // moment to save what they and the model have become.
  virtual void on_settled() {}

  // Set before the run begins; alive as long as it lasts.
  void bind(Model* model, const RunParams& params) { model_ = model, params_ = params; }

 protected:
  Model& model() const { return *model_; }
  const RunParams& params() const { return params_; }

 private:
  Model* model_ = nullptr;
  RunParams params_;
};

class Callback {
 public:
  Callback() = default;
  Callback(std::shared_ptr<CallbackBase> base) : base_(std::move(base)) {}  // NOLINT
  const std::shared_ptr<CallbackBase>& base() const { return base_; }

 private:
  std::shared_ptr<CallbackBase> base_;
};

template <class C, class... Args>
Callback make_callback(Args&&... args) {
  return Callback(std::make_shared<C>(std::forward<Args>(args)...));
}

namespace callbacks {

// fit, evaluate and predict add it themselves where verbose is not 0: a progress bar with the time that is
// left on a terminal, plain lines elsewhere.
Callback ProgbarLogger();

// What the callbacks that watch a value have in common:
//   monitor: its name in the logs of an epoch; "val_..." needs validation data. Where the logs do not have it
//     the callback does nothing, and says so once.
//   mode: whether less or more of it is better: "min", "max", or "auto", which knows losses, errors and the
//     metrics of this library by their names and refuses others with Error(invalid_argument).
//   verbose: 1 prints a line where something was done.

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";  // for save_best_only
  int verbose = 0;
  bool save_best_only = false;  // only where the value is better than at all saves before
  // False: the model's JSON is written beside the weights; a .keras file holds both.
  bool save_weights_only = false;
  std::string mode = "auto";
  int64_t save_freq = 0;  // batches from one save to the next; 0: one save per epoch
  // save_best_only: what the value of the first save has to be better than.
  std::optional<double> initial_value_threshold = {};
};
// Saves weights to `path`, as save_weights() does, or whole models where it ends in .keras. In the path
// {epoch} (from 1), {batch} and the names of the logs stand for their values:
// "weights-{epoch:02d}-{val_loss:.2f}.safetensors". A file is complete or not there; one of the same name is
// replaced.
Callback ModelCheckpoint(const std::string& path, const ModelCheckpointOptions& options = {},
                         std::source_location where = std::source_location::current());

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;  // a smaller change does not count as better
  int patience = 0;      // epochs without a better value after which it stops; 0: the first one already
  int verbose = 0;
  std::string mode = "auto";
  // Only a value better than this starts the patience anew. Not set: every best value does.
  std::optional<double> baseline = {};
  // When training ends, for whatever reason, the model gets the weights of the epoch with the best value. A
  // copy of them is held meanwhile. False: the weights are those of the last epoch.
  bool restore_best_weights = false;
  int start_from_epoch = 0;  // epochs before it (from 0) are not looked at
};
// Ends training after an epoch once the value has stopped getting better. Never after the first epoch.
Callback EarlyStopping(const EarlyStoppingOptions& options = {},
                       std::source_location where = std::source_location::current());

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;  // the new rate as a part of the old one, below 1
  int patience = 10;    // epochs without a better value after which the rate is reduced
  int verbose = 0;
  std::string mode = "auto";
  double min_delta = 1e-4;  // a smaller change does not count as better
  int cooldown = 0;         // epochs after a reduction that do not count towards the patience
  double min_lr = 0;        // the rate is not reduced below this
};
// Multiplies the optimizer's learning rate by `factor` after epochs in which the value did not get better,
// and logs the rate as "learning_rate". The rate must be a number: with a schedule the first reduction throws
// Error(failed_precondition).
Callback ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {},
                           std::source_location where = std::source_location::current());

// schedule(epoch, learning rate) gives the learning rate of the epoch (from 0); it is given that of the epoch
// before, and logged as "learning_rate". The optimizer's rate must be a number, not a schedule.
Callback LearningRateScheduler(std::function<double(int epoch, double learning_rate)> schedule,
                               int verbose = 0, std::source_location where = std::source_location::current());

struct CSVLoggerOptions {
  std::string separator = ",";
  bool append = false;  // to what the file holds; false: it is written anew
};
// One line per epoch: its number (from 0), then the logs sorted by name.
Callback CSVLogger(const std::string& path, const CSVLoggerOptions& options = {},
                   std::source_location where = std::source_location::current());

struct TerminateOnNaNOptions {
  // True: fit ends with Error(failed_precondition), and callbacks do not hear that training ended.
  bool raise_error = false;
};
// Stops after a batch with which the mean loss of the epoch is not a finite number. Reads the loss after
// every batch, so steps wait for the device.
Callback TerminateOnNaN(const TerminateOnNaNOptions& options = {});

struct BackupAndRestoreOptions {
  int64_t save_freq = 0;          // batches from one backup to the next; 0: one per epoch
  bool delete_checkpoint = true;  // when training has ended
};
// Weights, optimizer, random generator, the position in the data and the state of all callbacks, kept in
// `folder` so that the same fit, called again after a crash, goes on from the last epoch (or batch) instead
// of the first and ends with the same bits. A backup of another model, other data, another batch size or
// other callbacks, or a damaged one, is refused with Error(invalid_argument); so is a folder that another
// process is writing to. After Ctrl-C the backup stays.
Callback BackupAndRestore(const std::string& folder, const BackupAndRestoreOptions& options = {},
                          std::source_location where = std::source_location::current());

struct TensorBoardOptions {
  int histogram_freq = 0;   // epochs from one histogram of the weights to the next; 0: none
  bool write_graph = true;  // the layers and how they are connected
  bool write_steps_per_second = false;
  int64_t update_freq = 0;  // batches from one record of the scalars to the next; 0: of epochs alone
};
// Event files for TensorBoard in `folder`/train and `folder`/validation.
Callback TensorBoard(const std::string& folder = "logs", const TensorBoardOptions& options = {},
                     std::source_location where = std::source_location::current());

struct LambdaCallbackOptions {
  std::function<void(int epoch, const Logs&)> on_epoch_begin = {};
  std::function<void(int epoch, const Logs&)> on_epoch_end = {};
  std::function<void(const Logs&)> on_train_begin = {};
  std::function<void(const Logs&)> on_train_end = {};
  std::function<void(int64_t batch, const Logs&)> on_train_batch_begin = {};
  std::function<void(int64_t batch, const Logs&)> on_train_batch_end = {};  // logs are read for every batch
};
Callback LambdaCallback(const LambdaCallbackOptions& options,
                        std::source_location where = std::source_location::current());

}  // namespace callbacks

}  // namespace lockstep::keras
