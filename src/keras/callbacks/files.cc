// Callbacks that write files: checkpoints, logs.
#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "keras/callbacks/monitor.h"
#include "keras/callbacks/number_text.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/model.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::keras::callbacks {
namespace {

namespace fs = std::filesystem;

void make_folder_of(const fs::path& path) {
  if (!path.has_parent_path()) return;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  require(!error, ErrorCode::io, std::source_location::current(), "cannot make the folder of \"",
          path.string(), "\": ", error.message());
}

// Complete or not at all, as readers may be looking.
void write_text(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + ".tmp";
  std::ofstream file(draft, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) fs::rename(draft, path, error);
  require(file && !error, ErrorCode::io, std::source_location::current(), "cannot write \"", path.string(),
          "\"; is there room, and may this user write there?");
}

class ModelCheckpointCallback final : public CallbackBase {
 public:
  ModelCheckpointCallback(std::string path, const ModelCheckpointOptions& options)
      : path_(std::move(path)), options_(options) {
    if (options.save_best_only) monitor_.emplace(options.monitor, options.mode, 0.0, "ModelCheckpoint");
    require(!path_.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "ModelCheckpoint: the path is empty");
    require(options.save_weights_only || !path_.ends_with(".json"), ErrorCode::invalid_argument,
            std::source_location::current(), "ModelCheckpoint: \"", path_,
            "\" is for the weights; the model itself is written beside them, as .json");
  }

  void on_train_begin(const Logs&) override {
    if (monitor_ && !best_) best_ = options_.initial_value_threshold;
    batches_ = 0;
  }
  void on_epoch_begin(int epoch, const Logs&) override {
    epoch_ = epoch;
    last_batch_ = -1;
  }
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
          fmt::print("\nEpoch {}: {} did not improve from {}\n", epoch_ + 1, monitor_->name(), before);
        return;
      }
      if (options_.verbose > 0)
        fmt::print("\nEpoch {}: {} improved from {} to {:.5f}, saving model to {}\n", epoch_ + 1,
                   monitor_->name(), before, *current, path.string());
      best_ = current;
    } else if (options_.verbose > 0) {
      fmt::print("\nEpoch {}: saving model to {}\n", epoch_ + 1, path.string());
    }
    make_folder_of(path);
    if (!options_.save_weights_only)
      write_text(fs::path(path).replace_extension(".json"), model().to_json(2));
    model().save_weights(path);
    if (options_.verbose > 0)
      fmt::print("\nEpoch {}: finished saving model to {}\n", epoch_ + 1, path.string());
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

  bool needs_every_batch() const override { return false; }
  void on_train_begin(const Logs&) override {
    const bool exists = fs::exists(path_) && fs::file_size(path_) > 0;
    header_needed_ = !(options_.append && exists);
    keys_.clear();
    make_folder_of(path_);
    file_.open(path_, options_.append ? std::ios::app : std::ios::trunc);
    require(file_.is_open(), ErrorCode::io, std::source_location::current(), "CSVLogger: cannot write \"",
            path_, "\"");
  }

  void on_epoch_end(int epoch, const Logs& logs) override {
    if (keys_.empty()) {
      bool validated = false;
      for (const auto& [name, value] : logs) {
        keys_.push_back(name);
        validated = validated || name.starts_with("val_");
      }
      std::sort(keys_.begin(), keys_.end());
      // A later epoch may be validated: as in Keras, its figures have their columns from the start.
      const size_t own = validated ? 0 : keys_.size();
      for (size_t i = 0; i < own; ++i) keys_.push_back("val_" + keys_[i]);
      if (header_needed_) {
        file_ << "epoch";
        for (const std::string& key : keys_) file_ << options_.separator << key;
        file_ << kLineEnd;
      }
    }
    file_ << epoch;
    for (const std::string& key : keys_) {
      const std::optional<double> value = logs.find(key);
      file_ << options_.separator << (value ? number_text(*value) : "NA");
    }
    file_ << kLineEnd << std::flush;
    require(static_cast<bool>(file_), ErrorCode::io, std::source_location::current(), "CSVLogger: writing \"",
            path_, "\" failed; is the disk full?");
  }

  void on_train_end(const Logs&) override { file_.close(); }

 private:
  static constexpr const char* kLineEnd = "\r\n";  // as files of this kind have it everywhere

  std::string path_;
  CSVLoggerOptions options_;
  std::ofstream file_;
  std::vector<std::string> keys_;
  bool header_needed_ = true;
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

class BackupAndRestoreCallback final : public CallbackBase {
 public:
  BackupAndRestoreCallback(const std::string& folder, const BackupAndRestoreOptions& options)
      : path_((fs::path(folder) / "backup").string()), file_(path_ + ".safetensors"), options_(options) {
    require(!folder.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "BackupAndRestore: the folder is empty");
  }

  bool needs_every_batch() const override { return options_.save_freq > 0; }
  void on_train_begin(const Logs&) override {
    batches_ = 0;
    trainer().build_optimizer();
    checkpoint_.emplace(train::Checkpoint(
        {{"model", model()},
         {"optimizer", model().optimizer()},
         {"epoch", at_epoch_},
         {"batch", at_.batch},
         {"random", at_.random},
         {"stream_random", at_.stream.random},
         {"stream_taken", at_.stream.taken},
         {"iterator", train::Trackable(std::make_shared<IteratorPosition>(at_.stream.iterator))}}));
    if (!fs::exists(file_)) return;
    try {
      const train::RestoreStatus status = checkpoint_->restore(path_);
      if (status.deferred().empty()) status.assert_consumed();
    } catch (const Error& error) {
      fail(ErrorCode::invalid_argument, std::source_location::current(), "BackupAndRestore: \"", file_,
           "\" does not fit this model, or is damaged (", error.message(),
           "); where it is another run's, delete it or choose another folder");
    }
    at_.epoch = static_cast<int>(at_epoch_);
    trainer().resume = at_;
    batches_ = at_.batch;
    if (params().verbose > 0) fmt::print("Going on from the backup in epoch {}\n", at_.epoch + 1);
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const Logs&) override {
    if (options_.save_freq > 0 && (batch + 1) / options_.save_freq > batches_ / options_.save_freq)
      save(trainer().progress(epoch_, batch + 1));
    batches_ = batch + 1;
  }
  void on_epoch_end(int epoch, const Logs&) override {
    batches_ = 0;
    // After Ctrl-C the epoch is not done: what is kept is the last one that was.
    if (options_.save_freq <= 0 && !trainer().interrupted()) save(trainer().progress_after(epoch));
  }
  void on_train_end(const Logs&) override {
    checkpoint_.reset();
    // An interrupted run wants its backup.
    if (options_.delete_checkpoint && !trainer().interrupted()) fs::remove(file_);
  }

 private:
  Trainer& trainer() const { return model().model_base().trainer(); }

  void save(const Trainer::Progress& at) {
    at_ = at;
    at_epoch_ = at.epoch;
    // What follows may be the crash that it is for.
    checkpoint_->write(path_, {.asynchronous = false});
  }

  std::string path_;
  std::string file_;
  BackupAndRestoreOptions options_;
  std::optional<train::Checkpoint> checkpoint_;  // of the run that is under way
  Trainer::Progress at_;
  int64_t at_epoch_ = 0;
  int epoch_ = 0;
  int64_t batches_ = 0;
};

}  // namespace

Callback ModelCheckpoint(const std::string& path, const ModelCheckpointOptions& options) {
  return make_callback<ModelCheckpointCallback>(path, options);
}
Callback CSVLogger(const std::string& path, const CSVLoggerOptions& options) {
  return make_callback<CSVLoggerCallback>(path, options);
}
Callback BackupAndRestore(const std::string& folder, const BackupAndRestoreOptions& options) {
  return make_callback<BackupAndRestoreCallback>(folder, options);
}

}  // namespace lockstep::keras::callbacks
