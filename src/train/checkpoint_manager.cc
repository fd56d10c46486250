#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/base/log.h"
#include "lockstep/train/checkpoint.h"
#include "train/checkpoint_state.h"

namespace lockstep::train {

struct CheckpointManager::Impl {
  Checkpoint checkpoint;
  std::string directory;
  CheckpointManagerOptions options;
  double started = 0;  // seconds since 1970
  std::optional<int64_t> last_step = {};

  std::string path_of(const std::string& name) const {
    return (std::filesystem::path(directory) / name).string();
  }
};

CheckpointManager::CheckpointManager(const Checkpoint& checkpoint, const std::string& directory,
                                     const CheckpointManagerOptions& options, std::source_location where)
    : impl_(std::make_shared<Impl>(Impl{checkpoint, directory, options})) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "CheckpointManager: ", rule...);
  };
  check(!directory.empty(), "the directory is empty");
  check(options.max_to_keep >= 0, "max_to_keep is ", options.max_to_keep, "; it must be 0 (all) or more");
  check(options.keep_checkpoint_every_n_hours >= 0, "keep_checkpoint_every_n_hours is ",
        options.keep_checkpoint_every_n_hours, "; it must be 0 (none) or more");
  check(options.checkpoint_interval >= 0, "checkpoint_interval is ", options.checkpoint_interval);
  check(options.checkpoint_interval == 0 || options.step_counter,
        "checkpoint_interval counts steps: say how many there were with step_counter");
  check(!options.checkpoint_name.empty() && options.checkpoint_name.find('/') == std::string::npos,
        "checkpoint_name \"", options.checkpoint_name, "\" must be a name without '/'");
  impl_->started = seconds_since_1970();
}

std::optional<std::string> CheckpointManager::save(const SaveOptions& options,
                                                   std::source_location where) const {
  const CheckpointManagerOptions& own = impl_->options;
  if (own.checkpoint_interval > 0) {
    const int64_t step = own.step_counter();
    if (impl_->last_step && step - *impl_->last_step < own.checkpoint_interval) return std::nullopt;
    impl_->last_step = step;
  }
  constexpr double kSecondsOfHour = 3600;
  const Retention retention{.max_to_keep = own.max_to_keep,
                            .preserve_every = own.keep_checkpoint_every_n_hours * kSecondsOfHour,
                            .preserved_last = impl_->started};
  return impl_->checkpoint.save_numbered(impl_->path_of(own.checkpoint_name), retention, options, where);
}

std::optional<std::string> CheckpointManager::restore_or_initialize(std::source_location where) const {
  impl_->checkpoint.wait();
  std::optional<std::string> path = latest_checkpoint();
  if (!path) {
    if (impl_->options.init_fn) impl_->options.init_fn();
    return path;
  }
  try {
    impl_->checkpoint.restore(path, where);
  } catch (const Error& error) {
    const bool damaged = error.code() == ErrorCode::io || error.code() == ErrorCode::not_found;
    const std::optional<std::string> good =
        damaged && impl_->options.fall_back ? newest_good_checkpoint(impl_->directory) : std::nullopt;
    if (!good) throw;
    log(LogLevel::warning, error.message(), "; going on from \"", *good, "\"");
    impl_->checkpoint.restore(good, where);
    path = good;
  }
  if (impl_->options.step_counter) impl_->last_step = impl_->options.step_counter();
  return path;
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  SaveUnderWay::wait_for(impl_->directory);
  std::vector<std::string> paths;
  if (const std::optional<CheckpointState> state = read_state(impl_->directory))
    for (const KeptCheckpoint& kept : state->all) paths.push_back(impl_->path_of(kept.name));
  return paths;
}

std::optional<std::string> CheckpointManager::latest_checkpoint() const {
  return train::latest_checkpoint(impl_->directory);
}
const std::string& CheckpointManager::directory() const { return impl_->directory; }
const Checkpoint& CheckpointManager::checkpoint() const { return impl_->checkpoint; }

}  // namespace lockstep::train
