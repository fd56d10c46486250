// Plugins: the back ends that need a vendor's libraries (cuda, nccl, mpi, gloo), each a shared object
// of its own, so that the library itself runs where those are missing.
//
// A plugin is the file liblockstep_<name>.so with one entry,
//
//   extern "C" const lockstep::Plugin* lockstep_plugin() {
//     static const lockstep::Plugin plugin{lockstep::kPluginAbiTag, "cuda", lockstep::PluginKind::device,
//     &driver}; return &plugin;
//   }
//
// that is looked for in the folders of LOCKSTEP_PLUGIN_PATH, then in the library's own folder. It
// shares C++ types with the library, so it must come from the same build: the tags are compared as
// text before anything else of the plugin is used. Why a plugin is not there is always kept.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_library.h"

// The build passes both to the library and to its plugins alike.
#ifndef LOCKSTEP_VERSION
#define LOCKSTEP_VERSION "unversioned"
#endif
#ifndef LOCKSTEP_BUILD_HASH
#define LOCKSTEP_BUILD_HASH "unhashed"
#endif

#define LOCKSTEP_TEXT_(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_(x)

namespace lockstep {

// What must be equal for C++ types to mean the same on both sides.
inline constexpr const char* kPluginAbiTag =
    "lockstep " LOCKSTEP_VERSION ", build " LOCKSTEP_BUILD_HASH
    ", C++ " LOCKSTEP_TEXT(__cplusplus) ", compiler ABI " LOCKSTEP_TEXT(__GXX_ABI_VERSION)
#ifdef __GLIBCXX__
        ", libstdc++ " LOCKSTEP_TEXT(__GLIBCXX__) " string ABI " LOCKSTEP_TEXT(_GLIBCXX_USE_CXX11_ABI)
#endif
#ifdef _GLIBCXX_DEBUG
            " debug containers"
#endif
    ;

enum class PluginKind : uint32_t {
  device,        // devices, streams, kernels
  communicator,  // collectives between devices or processes
};

std::string_view name(PluginKind kind);

// What the entry returns; lives as long as the plugin is loaded. The tag comes first, so that it can
// be read whatever the rest looks like.
struct Plugin {
  const char* abi_tag;
  const char* name;
  PluginKind kind;
  const void* interface;  // what the kind's room expects of its plugins; may be null
};

struct PluginId {
  std::string_view name;
  PluginKind kind;
};

inline constexpr PluginId kKnownPlugins[] = {
    {"cuda", PluginKind::device},
    {"nccl", PluginKind::communicator},
    {"mpi", PluginKind::communicator},
    {"gloo", PluginKind::communicator},
};

struct PluginStatus {
  std::string name;
  PluginKind kind = PluginKind::device;
  bool loaded = false;
  std::string path;                   // of the file that was loaded
  std::vector<std::string> searched;  // folders, in order
  std::string reason;  // why it is not loaded, or which files were passed over before the one that is
  const Plugin* plugin = nullptr;  // where loaded; not owned, valid until the program ends
};

// One status per known plugin, in the table's order. The first call loads them; later calls return
// what that one found. Thread-safe. A plugin that was found but cannot be used is logged as a
// warning, whichever part of the program asked first.
const std::vector<PluginStatus>& plugin_statuses();

// The loaded plugin of that name, or null; an unknown name is an Error(not_found). Thread-safe.
const Plugin* find_plugin(std::string_view name);

// The folders in which plugins are looked for: those of `path` (separated by colons), then the
// library's own. Empty entries are left out.
std::vector<std::string> plugin_folders(std::string_view path);

// Looks for one plugin in `folders` and loads the first that can be used, without remembering it. A
// loaded plugin stays loaded: its code may be referred to from anywhere.
PluginStatus load_plugin(PluginId id, std::span<const std::string> folders);

}  // namespace lockstep

extern "C" {
// The one symbol a plugin exports.
using LockstepPluginEntry = const lockstep::Plugin*();
}
