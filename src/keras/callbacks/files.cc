// Callbacks that write files: checkpoints, logs.
#include <fmt/args.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "comm/workers.h"
#include "keras/callbacks/callback_states.h"
#include "keras/callbacks/monitor.h"
#include "keras/callbacks/number_text.h"
#include "keras/range.h"
#include "keras/training/trainer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/folder_lock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/terminal.h"
#include "lockstep/keras/model.h"
#include "lockstep/train/checkpoint.h"
#include "observe/activity.h"

namespace lockstep::keras::callbacks {
namespace {

namespace fs = std::filesystem;

void make_folder_of(const fs::path& path) {
  if (path.has_parent_path()) make_folders(path.parent_path().string());
}

// Complete or not at all, as readers may be looking.
void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path.string());
  file.write(text);
  file.commit();
}

// Keras' older format of whole models.
bool is_whole_h5(const std::string& path) {
  return (path.ends_with(".h5") || path.ends_with(".hdf5")) && !path.ends_with(".weights.h5");
}

class ModelCheckpointCallback final : public CallbackBase {
 public:
  ModelCheckpointCallback(std::string path, const ModelCheckpointOptions& options)
      : path_(std::move(path)), options_(options) {
    require_in(kNotNegative, "ModelCheckpoint", "save_freq", options.save_freq);
    require_in(kFinite, "ModelCheckpoint", "initial_value_threshold", options.initial_value_threshold);
    if (options.save_best_only) monitor_.emplace(options.monitor, options.mode, 0.0, "ModelCheckpoint");
    require(!path_.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "ModelCheckpoint: the path is empty");
    require(options.save_weights_only || !path_.ends_with(".json"), ErrorCode::invalid_argument,
            std::source_location::current(), "ModelCheckpoint: \"", path_,
            "\" is for the weights; the model itself is written beside them, as .json");
    require(!options.save_weights_only || !path_.ends_with(".keras"), ErrorCode::invalid_argument,
            std::source_location::current(), "ModelCheckpoint: \"", path_,
            "\" is a name for whole models; weights alone end in .weights.h5 or .safetensors");
    require(!options.save_weights_only || !is_whole_h5(path_), ErrorCode::invalid_argument,
            std::source_location::current(), "ModelCheckpoint: \"", path_,
            "\" is a name for whole models; weights alone end in .weights.h5 or .safetensors");
  }

  void on_train_begin(const Logs&) override {
    if (monitor_ && !best_) best_ = options_.initial_value_threshold;
    batches_ = 0;
    last_batch_ = -1;
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  bool chief_only() const override { return true; }
  bool wants_batch_logs() const override { return options_.save_freq > 0; }
  bool needs_every_batch() const override { return options_.save_freq > 0; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (options_.save_freq <= 0) return;
    batches_ += batch - last_batch_;
    last_batch_ = batch;
    if (batches_ < options_.save_freq) return;
    batches_ = 0;
    save(logs, batch);
  }
  void on_epoch_end(int, const Logs& logs) override {
    if (options_.save_freq <= 0) save(logs, -1);
    last_batch_ = -1;
  }
  std::string state_name() const override { return "ModelCheckpoint"; }
  void visit_state(CallbackState& state) override {
    state("best", best_);
    state("batches", batches_);
    state("last_batch", last_batch_);
  }

 private:
  std::string file_name(const Logs& logs, int64_t batch) const {
    fmt::dynamic_format_arg_store<fmt::format_context> values;
    values.push_back(fmt::arg("epoch", epoch_ + 1));
    values.push_back(fmt::arg("batch", batch + 1));
    for (const auto& [name, value] : logs) values.push_back(fmt::arg(name.c_str(), value));
    try {
      return fmt::vformat(path_, values);
    } catch (const fmt::format_error& error) {
      std::string names = "epoch, batch";
      for (const auto& [name, value] : logs) names += ", " + name;
      fail(ErrorCode::invalid_argument, std::source_location::current(), "ModelCheckpoint: the path \"",
           path_, "\" cannot be filled in (", error.what(), "); there are ", names);
    }
  }

  void save(const Logs& logs, int64_t batch) {
    const fs::path path = file_name(logs, batch);
    if (monitor_) {
      const std::optional<double> current = monitor_->read(logs);
      if (!current) return;
      const std::string before = best_ ? fmt::format("{:.5f}", *best_) : "None";
      if (!monitor_->better(*current, best_.value_or(monitor_->worst()))) {
        if (options_.verbose > 0)
          terminal::print(
              fmt::format("\nEpoch {}: {} did not improve from {}\n", epoch_ + 1, monitor_->name(), before));
        return;
      }
      if (options_.verbose > 0)
        terminal::print(fmt::format("\nEpoch {}: {} improved from {} to {:.5f}, saving model to {}\n",
                                    epoch_ + 1, monitor_->name(), before, *current, path.string()));
      best_ = current;
    } else if (options_.verbose > 0) {
      terminal::print(fmt::format("\nEpoch {}: saving model to {}\n", epoch_ + 1, path.string()));
    }
    make_folder_of(path);
    if (path.extension() == ".keras" || is_whole_h5(path.string())) {
      model().save(path.string());
    } else {
      if (!options_.save_weights_only)
        write_text(fs::path(path).replace_extension(".json"), model().to_json(2));
      model().save_weights(path.string());
    }
    if (options_.verbose > 0)
      terminal::print(fmt::format("\nEpoch {}: finished saving model to {}\n", epoch_ + 1, path.string()));
  }

  std::string path_;
  ModelCheckpointOptions options_;
  std::optional<Monitor> monitor_;
  std::optional<double> best_;
  int epoch_ = 0;
  int64_t batches_ = 0;
  int64_t last_batch_ = -1;
};

class CSVLoggerCallback final : public CallbackBase {
 public:
  CSVLoggerCallback(std::string path, CSVLoggerOptions options)
      : path_(std::move(path)), options_(std::move(options)) {}

  bool chief_only() const override { return true; }
  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override {
    keys_.clear();
    begun_ = false;
    make_folder_of(path_);
    file_.emplace(path_);
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    begin();
    std::string text;
    if (keys_.empty()) {
      bool validated = false;
      for (const auto& [name, value] : logs) {
        keys_.push_back(name);
        validated = validated || name.starts_with("val_");
      }
      std::sort(keys_.begin(), keys_.end());
      // A later epoch may be validated: as in Keras, its values have their columns from the start.
      const size_t own = validated ? 0 : keys_.size();
      for (size_t i = 0; i < own; ++i) keys_.push_back("val_" + keys_[i]);
      if (file_->size() == 0) {
        text = "epoch";
        for (const std::string& key : keys_) text += options_.separator + key;
        text += kLineEnd;
      }
    }
    text += std::to_string(epoch);
    for (const std::string& key : keys_) {
      const std::optional<double> value = logs.find(key);
      text += options_.separator + (value ? number_text(*value) : "NA");
    }
    file_->write(text + kLineEnd);
  }

  void on_train_end(const Logs&) override {
    begin();
    file_.reset();
  }

  std::string state_name() const override { return "CSVLogger"; }
  // Lines that were written after the backup are written again.
  void visit_state(CallbackState& state) override {
    int64_t size = file_ ? file_->size() : 0;
    std::string keys;
    for (const std::string& key : keys_) keys += key + '\n';
    state("size", size);
    state("keys", keys);
    if (!state.restores()) return;
    file_->cut(size);
    begun_ = file_->size() == size;
    keys_.clear();
    for (std::istringstream lines(keys); begun_ && std::getline(lines, keys);) keys_.push_back(keys);
  }

 private:
  static constexpr const char* kLineEnd = "\r\n";  // as files of this kind have it everywhere

  // What an earlier run wrote goes, unless this one goes on from its backup.
  void begin() {
    if (!begun_ && !options_.append) file_->cut(0);
    begun_ = true;
  }

  std::string path_;
  CSVLoggerOptions options_;
  std::optional<GrowingFile> file_;
  std::vector<std::string> keys_;
  bool begun_ = false;
};

// Where a dataset's iterator stands, as a checkpoint holds it.
class IteratorPosition final : public train::TrackedObject {
 public:
  explicit IteratorPosition(data::IteratorState& state) : state_(state) {}
  std::string kind() const override { return "iterator"; }
  bool has_state() const override { return true; }
  // Arrays have no iterator: what is saved then says so.
  train::NamedTensors save_state() const override {
    train::NamedTensors tensors(state_.begin(), state_.end());
    tensors.emplace_back(kEntries, Tensor::scalar(static_cast<int64_t>(state_.size())));
    return tensors;
  }
  void restore_state(const train::NamedTensors& state) override {
    state_ = {state.begin(), state.end()};
    state_.erase(kEntries);
  }

 private:
  static constexpr const char* kEntries = "entries";
  data::IteratorState& state_;
};

// What the run goes through: a backup is of no use for other data.
class RunIdentity final : public train::TrackedObject {
 public:
  explicit RunIdentity(const RunParams& params) : params_(params) {}
  std::string kind() const override { return "run"; }
  bool has_state() const override { return true; }
  train::NamedTensors save_state() const override {
    RunParams own = params_;
    CallbackState state;
    visit(own, state);
    return state.take();
  }
  void restore_state(const train::NamedTensors& saved) override {
    RunParams other;
    CallbackState state(saved);
    visit(other, state);
    const auto same = [](const char* what, const auto& was, const auto& is) {
      require(was == is, ErrorCode::invalid_argument, std::source_location::current(), "it is of a run with ",
              what, " ", was, ", this one has ", is);
    };
    same("the data", other.data, params_.data);
    same("examples =", other.examples, params_.examples);
    same("batch_size =", other.batch_size, params_.batch_size);
    same("steps of an epoch =", other.steps, params_.steps);
  }

 private:
  static void visit(RunParams& params, CallbackState& state) {
    state("data", params.data);
    state("examples", params.examples);
    state("batch_size", params.batch_size);
    state("steps", params.steps);
  }
  RunParams params_;
};

// What the metrics had gathered in the middle of an epoch.
class GatheredMetrics final : public train::TrackedObject {
 public:
  explicit GatheredMetrics(TensorList& values) : values_(values) {}
  std::string kind() const override { return "metrics"; }
  bool has_state() const override { return true; }
  train::NamedTensors save_state() const override {
    CallbackState state;
    state("values", values_);
    return state.take();
  }
  void restore_state(const train::NamedTensors& saved) override {
    CallbackState state(saved);
    state("values", values_);
  }

 private:
  TensorList& values_;
};

class BackupAndRestoreCallback final : public CallbackBase {
 public:
  BackupAndRestoreCallback(const std::string& folder, const BackupAndRestoreOptions& options)
      : folder_(folder),
        path_((fs::path(folder) / "backup").string()),
        file_(path_ + ".safetensors"),
        options_(options) {
    require(!folder.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "BackupAndRestore: the folder is empty");
    require_in(kNotNegative, "BackupAndRestore", "save_freq", options.save_freq);
  }

  bool needs_every_batch() const override { return options_.save_freq > 0; }
  void on_train_begin(const Logs&) override {
    if (chief()) lock_ = FolderLock(folder_);
    locked_ = chief();
    due_ = Due::restore;
    batches_ = 0;
    trainer().control().save_now = [this](const Trainer::Progress& at) { save(at); };
    trainer().control().save_alone = [this](const Trainer::Progress& at) { save_alone(at); };
    trainer().build_optimizer();
    const auto tracked = []<class T>(T object) {
      return train::Trackable(std::make_shared<T>(std::move(object)));
    };
    checkpoint_.emplace(train::Checkpoint({{"run", tracked(RunIdentity(params()))},
                                           {"model", model()},
                                           {"optimizer", model().optimizer()},
                                           {"epoch", at_epoch_},
                                           {"batch", at_.batch},
                                           {"stopped", stopped_},
                                           {"random", at_.random},
                                           {"stream_random", at_.stream.random},
                                           {"stream_taken", at_.stream.taken},
                                           {"iterator", tracked(IteratorPosition(at_.stream.iterator))},
                                           {"metrics", tracked(GatheredMetrics(at_.metrics))},
                                           {"callbacks", tracked(CallbackStates(trainer()))}}));
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const Logs&) override {
    if (options_.save_freq > 0 && (batch + 1) / options_.save_freq > batches_ / options_.save_freq)
      due_ = Due::batch;
    batches_ = batch + 1;
  }
  void on_epoch_end(int, const Logs&) override {
    batches_ = 0;
    // After Ctrl-C the epoch is not done: what is kept is the last one that was. After SIGTERM it is the step
    // at which the epoch was broken off (RunControl::save_now).
    if (options_.save_freq <= 0 && !trainer().interrupted()) due_ = Due::epoch;
  }
  // All callbacks have done their part: what is saved, and put back, is of one moment.
  void on_settled() override {
    switch (due_) {
      case Due::nothing: break;
      // A run that this worker has joined has its state already.
      case Due::restore:
        if (!trainer().control().joined) restore();
        break;
      case Due::batch: save(trainer().progress(epoch_, batches_)); break;
      case Due::epoch: save(trainer().progress_after(epoch_)); break;
    }
    due_ = Due::nothing;
  }
  void on_train_end(const Logs&) override {
    checkpoint_.reset();
    // An interrupted run wants its backup.
    std::error_code ignored;
    if (chief() && options_.delete_checkpoint && !trainer().interrupted()) fs::remove(file_, ignored);
    lock_ = {};
  }

 private:
  Trainer& trainer() const { return model().model_base().trainer(); }
  bool chief() const { return trainer().strategy().is_chief(); }

  // The other workers of a run may not see the chief's disk: it sends them the backup.
  class ReceivedBackup {
   public:
    ReceivedBackup(comm::Workers& workers, const std::string& file) {
      std::string bytes;
      if (workers.chief() && file_exists(file)) bytes = read_file(file);
      bytes = workers.broadcast("the backup", bytes);
      if (workers.chief() || bytes.empty()) return;
      std::error_code error;
      const fs::path parent = fs::temp_directory_path(error);
      require(!error, ErrorCode::io, std::source_location::current(),
              "BackupAndRestore: there is no folder for temporary files; TMPDIR names another place");
      path_ = (parent / ("lockstep_backup_" + std::to_string(getpid()))).string();
      AtomicFile copy(path_ + ".safetensors");
      copy.write(bytes);
      copy.commit();
    }
    ~ReceivedBackup() {
      std::error_code ignored;
      if (!path_.empty()) fs::remove(path_ + ".safetensors", ignored);
    }
    ReceivedBackup(const ReceivedBackup&) = delete;
    ReceivedBackup& operator=(const ReceivedBackup&) = delete;
    // Without its ending; empty where there is none.
    const std::string& path() const { return path_; }

   private:
    std::string path_;
  };

  void restore() {
    if (const auto& workers = trainer().strategy().workers()) {
      const ReceivedBackup received(*workers, file_);
      restore_from(workers->chief() ? path_ : received.path());
      trainer().leave_parts_to_chief();
    } else {
      restore_from(path_);
    }
  }

  void restore_from(const std::string& path) {
    if (path.empty() || !file_exists(path + ".safetensors")) return;
    try {
      const train::RestoreStatus status = checkpoint_->restore(path);
      if (status.deferred().empty()) status.assert_consumed();
    } catch (const Error& error) {
      std::string reason = error.message();
      for (const std::string& note : error.notes()) reason += "; " + note;
      fail(ErrorCode::invalid_argument, std::source_location::current(), "BackupAndRestore: \"", file_,
           "\" does not fit this model and this run, or is damaged (", reason,
           "); where it is another run's, delete it or choose another folder");
    }
    at_.epoch = static_cast<int>(at_epoch_);
    require(at_.epoch < params().epochs || (at_.epoch == params().epochs && at_.batch == 0),
            ErrorCode::invalid_argument, std::source_location::current(), "BackupAndRestore: the run in \"",
            file_, "\" has come to epoch ", at_.epoch + (at_.batch > 0 ? 1 : 0),
            ", this one is to end after epoch ", params().epochs,
            "; ask for as many epochs, or delete the file or choose another folder to begin anew");
    trainer().control().resume = at_;
    if (stopped_ != 0) trainer().stop_training = true;
    batches_ = at_.batch;
    if (params().verbose > 0 && chief())
      terminal::print(fmt::format("Going on from the backup in epoch {}\n", at_.epoch + 1));
  }

  void save(const Trainer::Progress& at) {
    // What replicas of other workers hold a part of is the chief's for the moment.
    trainer().gather_parts();
    if (!chief()) {
      lock_ = {};
      locked_ = false;
      return;
    }
    // What a run that outlives its workers needs less than those: it goes on without, and tries again.
    try {
      write(at);
    } catch (const Error& error) {
      if (!trainer().strategy().elastic()) throw;
      log(LogLevel::warning,
          "BackupAndRestore: the run goes on, but this backup was not written: ", error.message());
    }
  }

  // Saves a run whose other workers are lost.
  void save_alone(const Trainer::Progress& at) {
    for (const Variable& variable : model().optimizer().variables())
      require(!variable.per_replica(), ErrorCode::unsupported, std::source_location::current(),
              "gradients are accumulated over steps, and the other workers had a part of them");
    write(at);
  }

  void write(const Trainer::Progress& at) {
    // In an elastic run this worker may have become the chief when the last one was lost.
    if (!locked_) lock_ = FolderLock(folder_);
    locked_ = true;
    const observe::ActivityScope activity("the writing of a backup");
    at_ = at;
    at_epoch_ = at.epoch;
    stopped_ = trainer().stop_training ? 1 : 0;
    // What follows may be the crash that it is for.
    checkpoint_->write(path_, {.asynchronous = false});
  }

  std::string folder_;
  std::string path_;
  std::string file_;
  BackupAndRestoreOptions options_;
  FolderLock lock_;  // while a run is under way, at the chief
  bool locked_ = false;
  std::optional<train::Checkpoint> checkpoint_;                           // of that run
  enum class Due { nothing, restore, batch, epoch } due_ = Due::nothing;  // when all callbacks have been told
  Trainer::Progress at_;
  int64_t at_epoch_ = 0;
  int64_t stopped_ = 0;
  int epoch_ = 0;
  int64_t batches_ = 0;
};

}  // namespace

Callback ModelCheckpoint(const std::string& path, const ModelCheckpointOptions& options,
                         std::source_location where) {
  const CallSite site(where);
  return make_callback<ModelCheckpointCallback>(path, options);
}
Callback CSVLogger(const std::string& path, const CSVLoggerOptions& options, std::source_location where) {
  const CallSite site(where);
  return make_callback<CSVLoggerCallback>(path, options);
}
Callback BackupAndRestore(const std::string& folder, const BackupAndRestoreOptions& options,
                          std::source_location where) {
  const CallSite site(where);
  return make_callback<BackupAndRestoreCallback>(folder, options);
}

}  // namespace lockstep::keras::callbacks
