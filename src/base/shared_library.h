// Shared objects loaded at run time. That one cannot be loaded is a value, not an exception: it says
// which paths were tried and what the loader answered for each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct LoadAttempt {
  std::string path;
  std::string reason;  // the loader's message
};

// "liba.so: cannot open shared object file; libb.so: ..."
std::string describe(std::span<const LoadAttempt> attempts);

// Owns one loaded object and unloads it when destroyed: pointers taken from it end there. Movable.
// Symbol lookup is thread-safe.
class SharedLibrary {
 public:
  SharedLibrary(SharedLibrary&& other) noexcept;
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  ~SharedLibrary();

  // Where the loader found it.
  const std::string& path() const { return path_; }

  // The object stays loaded until the program ends, whatever happens to this handle.
  void keep_loaded() { keep_ = true; }

  template <class T>
  struct Symbol {
    T* address = nullptr;  // null where there is no such symbol
    std::string error;     // then: the loader's message
    explicit operator bool() const { return address != nullptr; }
  };

  // T is the symbol's type, a function type for a function: symbol<int(const char*)>("parse").
  template <class T>
  Symbol<T> symbol(const char* name) const {
    std::string error;
    void* address = find(name, error);
    return {reinterpret_cast<T*>(address), std::move(error)};
  }

 private:
  friend struct LoadResult load_library(std::span<const std::string> candidates);
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* find(const char* name, std::string& error) const;

  void* handle_;
  std::string path_;
  bool keep_ = false;
};

struct LoadResult {
  std::optional<SharedLibrary> library;
  std::vector<LoadAttempt> failures;  // the candidates before the one that loaded, or all of them
};

// Loads the first candidate that loads, with all its symbols resolved and none of them visible to
// other objects. A candidate without a slash is searched for as the dynamic loader does.
LoadResult load_library(std::span<const std::string> candidates);

// The folder of the program or shared object that contains `address` (of a function or a static);
// empty where that cannot be told.
std::string folder_of_code(const void* address);

// The folders that the dynamic loader searches for a library of this one, in order: LD_LIBRARY_PATH, the
// library's own list, the system's. Its cache (/etc/ld.so.cache) comes before the system's.
std::vector<std::string> loader_folders();

}  // namespace lockstep
