// Callbacks that write files: checkpoints, logs.
#include <fmt/args.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "keras/callbacks/monitor.h"
#include "keras/training/trainer.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::keras::callbacks {
namespace {

namespace fs = std::filesystem;

void make_folder_of(const fs::path& path) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
}

// Complete or not at all, as readers may be looking.
void write_text(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + ".tmp";
  std::ofstream file(draft, std::ios::binary);
  file << text;
  file.close();
  require(static_cast<bool>(file), ErrorCode::io, std::source_location::current(), "cannot write \"",
          path.string(), "\"; is there room, and may this user write there?");
  fs::rename(draft, path);
}

class ModelCheckpointCallback final : public CallbackBase {
 public:
  ModelCheckpointCallback(std::string path, const ModelCheckpointOptions& options)
      : path_(std::move(path)), options_(options) {
    if (options.save_best_only) monitor_.emplace(options.monitor, options.mode, 0.0, "ModelCheckpoint");
    require(!path_.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "ModelCheckpoint: the path is empty");
  }

  void on_train_begin(const Logs&) override {
    if (monitor_ && !best_) best_ = options_.initial_value_threshold.value_or(monitor_->worst());
    batches_ = 0;
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  bool wants_batch_logs() const override { return options_.save_freq > 0; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (options_.save_freq <= 0) return;
    batches_ += batch - last_batch_ > 0 ? batch - last_batch_ : batch + 1;
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
      const double before = *best_;
      if (!monitor_->better(*current, before)) {
        if (options_.verbose > 0)
          fmt::print("\nEpoch {}: {} did not improve from {:.5f}\n", epoch_ + 1, monitor_->name(), before);
        return;
      }
      if (options_.verbose > 0)
        fmt::print("\nEpoch {}: {} improved from {:.5f} to {:.5f}, saving model to {}\n", epoch_ + 1,
                   monitor_->name(), before, *current, path.string());
      best_ = current;
    } else if (options_.verbose > 0) {
      fmt::print("\nEpoch {}: saving model to {}\n", epoch_ + 1, path.string());
    }
    make_folder_of(path);
    if (!options_.save_weights_only)
      write_text(fs::path(path).replace_extension(".json"), model().to_json(2));
    model().save_weights(path);
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
      for (const auto& [name, value] : logs) keys_.push_back(name);
      std::sort(keys_.begin(), keys_.end());
      if (header_needed_) {
        file_ << "epoch";
        for (const std::string& key : keys_) file_ << options_.separator << key;
        file_ << "\n";
      }
    }
    file_ << epoch;
    for (const std::string& key : keys_) {
      const std::optional<double> value = logs.find(key);
      file_ << options_.separator << (value ? fmt::format("{}", *value) : "NA");
    }
    file_ << "\n" << std::flush;
    require(static_cast<bool>(file_), ErrorCode::io, std::source_location::current(), "CSVLogger: writing \"",
            path_, "\" failed; is the disk full?");
  }

  void on_train_end(const Logs&) override { file_.close(); }

 private:
  std::string path_;
  CSVLoggerOptions options_;
  std::ofstream file_;
  std::vector<std::string> keys_;
  bool header_needed_ = true;
};

class BackupAndRestoreCallback final : public CallbackBase {
 public:
  BackupAndRestoreCallback(std::string folder, const BackupAndRestoreOptions& options)
      : file_((fs::path(folder) / "backup.safetensors").string()), options_(options) {
    require(!folder.empty(), ErrorCode::invalid_argument, std::source_location::current(),
            "BackupAndRestore: the folder is empty");
  }

  void on_train_begin(const Logs&) override {
    batches_ = 0;
    if (!fs::exists(file_)) return;
    const train::SafetensorsFile file(file_);
    // Everything fits before anything changes.
    std::vector<std::pair<Variable, Tensor>> values;
    for (const auto& [name, variable] : variables()) {
      const auto* entry = file.find(name);
      require(entry && entry->spec == variable.spec(), ErrorCode::invalid_argument,
              std::source_location::current(), "BackupAndRestore: \"", file_, "\" does not fit this model (",
              name, "); it is another run's: delete it or choose another folder");
      values.emplace_back(variable, file.read(name));
    }
    for (const auto& [variable, value] : values) variable.assign(value);
    const auto number = [&](const char* name) { return file.read(name).item<int64_t>(); };
    model().model_base().trainer().resume = {.epoch = static_cast<int>(number("epoch")),
                                             .batch = number("batch"),
                                             .epoch_random = number("epoch_random"),
                                             .random = number("random")};
    if (params().verbose > 0) fmt::print("Going on from the backup in epoch {}\n", number("epoch") + 1);
  }
  void on_epoch_begin(int epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const Logs&) override {
    if (options_.save_freq > 0 && (batch + 1) / options_.save_freq > batches_ / options_.save_freq)
      save(epoch_, batch + 1, model().model_base().trainer().epoch_random);
    batches_ = batch + 1;
  }
  void on_epoch_end(int epoch, const Logs&) override {
    batches_ = 0;
    if (options_.save_freq <= 0) save(epoch + 1, 0, random_state());
  }
  void on_train_end(const Logs&) override {
    // An interrupted run wants its backup.
    if (options_.delete_checkpoint && !model().model_base().trainer().interrupted()) fs::remove(file_);
  }

 private:
  std::vector<std::pair<std::string, Variable>> variables() const {
    std::vector<std::pair<std::string, Variable>> named;
    model().model_base().trainer().build_optimizer();
    const auto add = [&](const char* group, const std::vector<Variable>& list) {
      for (size_t i = 0; i < list.size(); ++i)
        named.emplace_back(fmt::format("{}/{}/{}", group, i, list[i].name()), list[i]);
    };
    add("model", model().weights());
    add("optimizer", model().optimizer().variables());
    return named;
  }

  static int64_t random_state() { return random::default_generator().state().value().item<int64_t>(); }

  void save(int epoch, int64_t batch, int64_t epoch_random) {
    make_folder_of(file_);
    train::NamedTensors tensors;
    for (const auto& [name, variable] : variables()) tensors.emplace_back(name, variable.value());
    tensors.emplace_back("epoch", Tensor::scalar(int64_t{epoch}));
    tensors.emplace_back("batch", Tensor::scalar(batch));
    tensors.emplace_back("epoch_random", Tensor::scalar(epoch_random));
    tensors.emplace_back("random", Tensor::scalar(random_state()));
    train::save_safetensors(file_, tensors);
  }

  std::string file_;
  BackupAndRestoreOptions options_;
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
