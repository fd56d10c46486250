#include "train/checkpoint_state.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_file.h"
#include "train/checkpoint_format.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

std::string state_path(const std::string& folder) { return (fs::path(folder) / "checkpoint").string(); }

std::string file_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string() + std::string(kCheckpointEnding);
}

// Names are of files in the folder and nowhere else, whatever the file says.
std::string checked_name(const Json& json) {
  const std::string& name = json.as_string();
  require(!name.empty() && name.find('/') == std::string::npos, ErrorCode::invalid_argument,
          std::source_location::current(), json, " is no name of a checkpoint in this folder");
  return name;
}

std::vector<KeptCheckpoint> read_list(const Json& json) {
  std::vector<KeptCheckpoint> list;
  for (const Json& item : json.items())
    list.push_back({checked_name(item.at("name")), item.at("time").as_double()});
  return list;
}

Json write_list(const std::vector<KeptCheckpoint>& list) {
  Json json = Json::list();
  for (const auto& [name, time] : list) json.push_back(Json::object({{"name", name}, {"time", time}}));
  return json;
}

// One name for a folder, however it is reached.
std::string one_name(const std::string& folder) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(folder.empty() ? "." : folder, error);
  return error ? folder : real.string();
}

struct Saves {
  std::mutex mutex;
  std::condition_variable done;
  std::multiset<std::string> folders;
};
Saves& saves() {
  static Saves& all = *new Saves;
  return all;
}

// The number at the end of "ckpt-12"; none where there is none.
std::optional<int64_t> number_of(const std::string& name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string::npos) return std::nullopt;
  int64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + dash + 1, end, number);
  if (error != std::errc() || stopped != end || number < 0) return std::nullopt;
  return number;
}

template <class F>
void each_checkpoint_name(const std::string& folder, F&& f) {
  std::error_code error;
  fs::directory_iterator file(folder, error);
  for (; !error && file != fs::directory_iterator(); file.increment(error))
    if (file->path().extension() == kCheckpointEnding) f(file->path().stem().string());
}

std::vector<std::string> listed_by_number(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  each_checkpoint_name(folder, [&](const std::string& name) {
    const std::optional<int64_t> number = number_of(name);
    if (number && looks_like_checkpoint(file_path(folder, name))) found.emplace_back(*number, name);
  });
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [number, name] : found) names.push_back(std::move(name));
  return names;
}

}  // namespace

int64_t greatest_number(const std::string& folder, const std::string& prefix) {
  int64_t greatest = 0;
  each_checkpoint_name(folder, [&](const std::string& name) {
    if (name.size() > prefix.size() && name.starts_with(prefix) && name.rfind('-') == prefix.size())
      greatest = std::max(greatest, number_of(name).value_or(0));
  });
  return greatest;
}

SaveUnderWay::SaveUnderWay(const std::string& folder) : folder_(one_name(folder)) {
  const std::lock_guard lock(saves().mutex);
  saves().folders.insert(folder_);
}

SaveUnderWay::~SaveUnderWay() {
  const std::lock_guard lock(saves().mutex);
  saves().folders.erase(saves().folders.find(folder_));
  saves().done.notify_all();
}

void SaveUnderWay::wait_for(const std::string& folder) {
  const std::string name = one_name(folder);
  std::unique_lock lock(saves().mutex);
  saves().done.wait(lock, [&] { return !saves().folders.contains(name); });
}

std::optional<CheckpointState> read_state(const std::string& folder) {
  const std::string path = state_path(folder);
  if (!file_exists(path)) return std::nullopt;
  try {
    const Json json = Json::parse(read_file(path), path);
    CheckpointState state{.latest = checked_name(json.at("latest")),
                          .all = read_list(json.at("all")),
                          .preserved = read_list(json.at("preserved"))};
    return state;
  } catch (const Error& error) {
    log(LogLevel::warning, "\"", path, "\" cannot be used (", error.message(),
        "); the checkpoints are taken from the names of the files beside it");
    return std::nullopt;
  }
}

void enter_checkpoint(FileSystem& files, const std::string& folder, const KeptCheckpoint& saved,
                      const Retention& retention) {
  // Two checkpoints of one process may save to one folder.
  static std::mutex& entering = *new std::mutex;
  const std::lock_guard lock(entering);
  CheckpointState state;
  if (std::optional<CheckpointState> known = read_state(folder)) {
    state = *std::move(known);
  } else {
    std::vector<std::string> names = listed_by_number(folder);
    for (auto name = names.rbegin(); name != names.rend(); ++name) state.all.push_back({*name, saved.time});
  }
  const auto is_saved = [&](const KeptCheckpoint& other) { return other.name == saved.name; };
  std::erase_if(state.all, is_saved);
  std::erase_if(state.preserved, is_saved);
  state.all.push_back(saved);
  state.latest = saved.name;

  std::vector<std::string> removed;
  while (retention.max_to_keep > 0 && state.all.size() > static_cast<size_t>(retention.max_to_keep)) {
    const KeptCheckpoint oldest = state.all.front();
    state.all.erase(state.all.begin());
    const double last = state.preserved.empty() ? retention.preserved_last : state.preserved.back().time;
    if (retention.preserve_every > 0 && oldest.time - retention.preserve_every >= last) {
      state.preserved.push_back(oldest);
    } else {
      removed.push_back(oldest.name);
    }
  }
  const std::string text = Json::object({{"latest", state.latest},
                                         {"all", write_list(state.all)},
                                         {"preserved", write_list(state.preserved)}})
                               .dump(2) +
                           "\n";
  write_durably(files, state_path(folder),
                [&](OutputFile& file) { file.write_at(0, text.data(), text.size()); });
  // Only now: whatever happens, the state names checkpoints that exist.
  for (const std::string& name : removed) files.remove(file_path(folder, name));
}

std::vector<std::string> checkpoints_by_age(const std::string& folder) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end() && file_exists(file_path(folder, name)))
      names.push_back(name);
  };
  if (const std::optional<CheckpointState> state = read_state(folder)) {
    add(state->latest);
    for (const auto* list : {&state->all, &state->preserved})
      for (auto kept = list->rbegin(); kept != list->rend(); ++kept) add(kept->name);
  }
  for (const std::string& name : listed_by_number(folder)) add(name);
  return names;
}

std::optional<std::string> latest_checkpoint(const std::string& folder) {
  SaveUnderWay::wait_for(folder);
  const std::vector<std::string> names = checkpoints_by_age(folder);
  if (names.empty()) return std::nullopt;
  return (fs::path(folder) / names.front()).string();
}

std::optional<std::string> newest_good_checkpoint(const std::string& folder) {
  SaveUnderWay::wait_for(folder);
  for (const std::string& name : checkpoints_by_age(folder)) {
    const std::string path = (fs::path(folder) / name).string();
    try {
      if (CheckpointFile(path).verify().empty()) return path;
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::train
