// Files, with errors that name the file, what was done to it and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/files.h"

namespace lockstep {

// The text of an error number, as "No such file or directory".
std::string system_message(int error_number);

// A regular file opened for reading. Movable; read_at may be called from several threads at once.
class InputFile {
 public:
  // Throws Error(not_found) where there is no such file, Error(io) where it cannot be read or is no regular
  // file: pipes and devices have no end to read to.
  explicit InputFile(std::string path, std::source_location where = std::source_location::current());
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  // Fills `target` from this offset; throws Error(io) where the file ends before that.
  void read_at(uint64_t offset, void* target, size_t bytes,
               std::source_location where = std::source_location::current()) const;

 private:
  std::string path_;
  int descriptor_;
  uint64_t size_ = 0;
};

// A name for what is to become `path`, beside it, that no file has: "path.tmp-PROCESS-NUMBER".
std::string draft_name(const std::string& path);
// Makes a file of this name, which must not exist, follows no link and locks it for as long as the descriptor
// is open: so a draft that somebody still writes is told from one that was left behind. -1 with errno where
// it cannot.
int create_draft(const std::string& draft);
// Removes the drafts of a folder that nobody writes any more.
void remove_stale_drafts(const std::string& folder);
// The same of one file: what processes left beside it that were killed while they wrote it.
void remove_stale_drafts_of(const std::string& path);

// What a path leads to, for messages: "a folder", "a pipe", "a device", ....
const char* kind_of_file(unsigned mode);

// Throws Error(invalid_argument) for a path that is empty or holds a NUL, behind which the system would not
// read.
void check_path(const std::string& path, std::source_location where);

}  // namespace lockstep
