// A folder of its own for as long as it lives.
#pragma once

#include <string>

namespace lockstep::cli {

class TemporaryFolder {
 public:
  // In the folder that TMPDIR names, else /tmp. Throws Error(io) where none can be made there.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::cli
