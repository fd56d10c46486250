#include "device/plugin.h"

#include <algorithm>
#include <filesystem>

#include "base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

constexpr const char* kEntry = "lockstep_plugin";

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

// The reason why the loaded object is not the plugin `id` of this build; empty where it is.
std::string mismatch(const Plugin* plugin, PluginId id) {
  if (plugin == nullptr || plugin->abi_tag == nullptr) return detail::concat(kEntry, "() returned no plugin");
  if (std::string_view(plugin->abi_tag) != kPluginAbiTag)
    return detail::concat("built for another Lockstep: its tag is \"", plugin->abi_tag,
                          "\", the library's is \"", kPluginAbiTag, "\"; rebuild both together");
  if (plugin->name == nullptr || plugin->name != id.name)
    return detail::concat("says that it is plugin \"", plugin->name != nullptr ? plugin->name : "", "\"");
  if (plugin->kind != id.kind)
    return detail::concat("says that it is of kind ", name(plugin->kind), ", expected ", name(id.kind));
  return {};
}

// Loads one file. Returns the reason why it cannot be used, or nothing and fills `status`.
std::optional<std::string> load_file(const std::string& path, PluginId id, PluginStatus& status) {
  LoadResult result = load_library(std::span(&path, 1));
  if (!result.library) return describe(result.failures);
  const auto entry = result.library->symbol<LockstepPluginEntry>(kEntry);
  if (!entry) return detail::concat(path, ": not a plugin: ", entry.error);
  const Plugin* plugin = entry.address();
  if (const std::string reason = mismatch(plugin, id); !reason.empty()) return path + ": " + reason;
  status.loaded = true;
  status.path = result.library->path();
  status.plugin = plugin;
  // For good: kernels, threads and exit handlers of the plugin may outlive any owner.
  result.library->keep_loaded();
  return std::nullopt;
}

}  // namespace

std::string_view name(PluginKind kind) {
  switch (kind) {
    case PluginKind::device: return "device";
    case PluginKind::communicator: return "communicator";
  }
  return "unknown";
}

std::vector<std::string> plugin_folders(std::string_view path) {
  std::vector<std::string> folders;
  while (!path.empty()) {
    const size_t colon = std::min(path.find(':'), path.size());
    if (colon > 0) folders.emplace_back(path.substr(0, colon));
    path.remove_prefix(std::min(colon + 1, path.size()));
  }
  static const int in_this_library = 0;
  if (std::string own = folder_of_code(&in_this_library); !own.empty()) folders.push_back(std::move(own));
  return folders;
}

PluginStatus load_plugin(PluginId id, std::span<const std::string> folders) {
  PluginStatus status;
  status.name = id.name;
  status.kind = id.kind;
  status.searched.assign(folders.begin(), folders.end());
  const std::string file = detail::concat("liblockstep_", id.name, ".so");
  std::vector<std::string> refused;
  for (const std::string& folder : folders) {
    const std::string path = detail::concat(folder, "/", file);
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) continue;
    if (auto reason = load_file(path, id, status))
      refused.push_back(std::move(*reason));
    else
      break;
  }
  status.reason = join(refused, "; ");
  if (!status.loaded && refused.empty())
    status.reason =
        detail::concat(file, " not found in ", folders.empty() ? "any folder" : join(folders, ", "));
  if (!refused.empty()) log(LogLevel::warning, "plugin ", id.name, ": ", status.reason);
  return status;
}

const std::vector<PluginStatus>& plugin_statuses() {
  static const std::vector<PluginStatus>& statuses = *[] {
    const auto folders = plugin_folders(env::read_string("LOCKSTEP_PLUGIN_PATH").value_or(""));
    auto* all = new std::vector<PluginStatus>;
    for (const PluginId& id : kKnownPlugins) {
      all->push_back(load_plugin(id, folders));
      const PluginStatus& status = all->back();
      if (status.loaded)
        log(LogLevel::debug, "plugin ", status.name, ": loaded ", status.path);
      else
        log(LogLevel::debug, "plugin ", status.name, ": ", status.reason);
    }
    return all;
  }();
  return statuses;
}

const Plugin* find_plugin(std::string_view name) {
  const std::vector<PluginStatus>& statuses = plugin_statuses();
  const auto found = std::find_if(statuses.begin(), statuses.end(),
                                  [&](const PluginStatus& status) { return status.name == name; });
  if (found == statuses.end()) {
    std::vector<std::string> known;
    for (const PluginId& id : kKnownPlugins) known.emplace_back(id.name);
    fail(ErrorCode::not_found, std::source_location::current(), "plugin \"", name,
         "\" does not exist; there are ", join(known, ", "));
  }
  return found->plugin;
}

}  // namespace lockstep
