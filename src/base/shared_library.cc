#include "base/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

std::string loader_message() {
  const char* message = dlerror();
  return message != nullptr ? message : "the loader gave no reason";
}

std::string loaded_path(void* handle, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || *map->l_name == '\0') return asked;
  return map->l_name;
}

}  // namespace

std::string describe(std::span<const LoadAttempt> attempts) {
  std::string text;
  for (const LoadAttempt& attempt : attempts) {
    if (!text.empty()) text += "; ";
    // The loader's own messages mostly begin with the path already.
    if (!attempt.reason.starts_with(attempt.path)) text += attempt.path + ": ";
    text += attempt.reason;
  }
  return text;
}

SharedLibrary::SharedLibrary(SharedLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)), keep_(other.keep_) {}

SharedLibrary& SharedLibrary::operator=(SharedLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(path_, other.path_);
  std::swap(keep_, other.keep_);
  return *this;
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr && !keep_) dlclose(handle_);
}

void* SharedLibrary::find(const char* name, std::string& error) const {
  dlerror();
  void* address = dlsym(handle_, name);
  if (address == nullptr) error = loader_message();
  return address;
}

LoadResult load_library(std::span<const std::string> candidates) {
  LoadResult result;
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) {  // to the loader that means the program itself
      result.failures.push_back({candidate, "the path is empty"});
      continue;
    }
    if (void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      result.library = SharedLibrary(handle, loaded_path(handle, candidate));
      return result;
    }
    result.failures.push_back({candidate, loader_message()});
  }
  return result;
}

std::string folder_of_code(const void* address) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr)
    return {};
  // The program itself has no name in the loader's list, and argv[0] need not be a path.
  const char* path = *map->l_name == '\0' ? "/proc/self/exe" : map->l_name;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? std::string() : real.parent_path().string();
}

std::vector<std::string> loader_folders() {
  static const int in_this_library = 0;
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(&in_this_library, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr)
    return {};
  Dl_serinfo size{};
  if (dlinfo(map, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  const auto buffer = std::make_unique<char[]>(size.dls_size);
  auto* folders = reinterpret_cast<Dl_serinfo*>(buffer.get());
  folders->dls_size = size.dls_size;
  folders->dls_cnt = size.dls_cnt;
  if (dlinfo(map, RTLD_DI_SERINFO, folders) != 0) return {};
  std::vector<std::string> names;
  for (unsigned i = 0; i < folders->dls_cnt; ++i) names.emplace_back(folders->dls_serpath[i].dls_name);
  return names;
}

}  // namespace lockstep
