// One process writes to a folder at a time.
#pragma once

#include <memory>
#include <source_location>
#include <string>

namespace lockstep {

// Held as long as a copy of the handle lives. The system lets go of it when the process ends, however it
// ends, so that no lock is ever left behind by a process that is gone. Several in one process share it.
// Readers need none.
class FolderLock {
 public:
  FolderLock() = default;  // of nothing
  // Makes the folder where there is none, and removes what writers that are gone have left half written
  // there. Throws Error(failed_precondition) that names the process and the machine that write there already,
  // Error(io) where the folder cannot be written.
  explicit FolderLock(const std::string& folder,
                      std::source_location where = std::source_location::current());

 private:
  struct Held;
  std::shared_ptr<Held> held_;
};

}  // namespace lockstep
