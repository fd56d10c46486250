#include "lockstep/base/call_site.h"

#include <string_view>

namespace lockstep {
namespace {

thread_local const CallSite* innermost = nullptr;

// What the names of all source files of the library begin with, as the compiler was given them: ".../src/".
std::string_view source_root() {
  static const std::string_view root = [] {
    constexpr std::string_view kThisFile = "base/call_site.cc";
    std::string_view file = std::source_location::current().file_name();
    file.remove_suffix(kThisFile.size());
    return file;
  }();
  return root;
}

}  // namespace

bool CallSite::in_library(std::source_location where) {
  const std::string_view file = where.file_name();
  if (file.starts_with(source_root())) {
    // Tests stand beside the sources, but are programs that use the library.
    const std::string_view rest = file.substr(source_root().size());
    return rest.find("_test.") == std::string_view::npos && rest.find("_fuzz.") == std::string_view::npos &&
           rest.find("/testdata/") == std::string_view::npos;
  }
  return file.find("include/lockstep/") != std::string_view::npos ||
         file.find("/include/c++/") != std::string_view::npos;
}

std::source_location CallSite::of(std::source_location where) {
  return innermost && in_library(where) ? innermost->where_ : where;
}

CallSite::CallSite(std::source_location where) : where_(of(where)), outer_(innermost) { innermost = this; }
CallSite::~CallSite() { innermost = outer_; }

}  // namespace lockstep
