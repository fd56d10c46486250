#include "cli/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::cli {

TemporaryFolder::TemporaryFolder() {
  const char* named = std::getenv("TMPDIR");
  const std::string parent = named && *named ? named : "/tmp";
  path_ = (std::filesystem::path(parent) / "lockstep_runs_XXXXXX").string();
  const bool made = mkdtemp(path_.data()) != nullptr;
  require(made, ErrorCode::io, std::source_location::current(), "no folder can be made in \"", parent,
          "\": ", std::strerror(errno), "; TMPDIR names another place");
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::cli
