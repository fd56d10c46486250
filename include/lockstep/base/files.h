// Files, with errors that name the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace lockstep {

// The whole file. Throws Error(not_found) where there is none, Error(io) where it cannot be read or is no
// regular file: pipes and devices have no end to read to.
std::string read_file(const std::string& path, std::source_location where = std::source_location::current());

// Whether there is something of this name, and whether it is a folder; what cannot be looked at is not there.
bool file_exists(const std::string& path);
bool is_folder(const std::string& path);

// Where the folder is missing, it and those above it are made.
void make_folders(const std::string& folder, std::source_location where = std::source_location::current());

// A file that appears complete or not at all: written under a name of its own beside `path` until commit(),
// which brings the bytes to the disk and then renames. Destroyed without a commit, it leaves nothing behind
// and an older file untouched. A link is followed to the file that it names; what is there and is no file (a
// device, a pipe) is written to as it is, and never replaced.
class AtomicFile {
 public:
  // Opened at once, so that what cannot be written is known before there is anything to write. Throws
  // Error(not_found) where the folder does not exist, Error(io) where the file cannot be written or is a
  // folder.
  explicit AtomicFile(std::string path, std::source_location where = std::source_location::current());
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::string& path() const { return path_; }
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // At this place, which write() does not move; devices and pipes have none.
  void write_at(uint64_t offset, const void* data, size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string target_;  // where links lead
  std::string draft_;   // empty: the target itself is being written
  int descriptor_;
  std::source_location where_;
};

// A file that grows line by line and can be taken back to an earlier size: the log of a run that may go on
// after a crash.
class GrowingFile {
 public:
  // Made where there is none; what it holds stays until it is cut. Throws as AtomicFile does.
  explicit GrowingFile(std::string path, std::source_location where = std::source_location::current());
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile();

  const std::string& path() const { return path_; }
  // 0 for devices and pipes, which cannot be cut either.
  int64_t size() const;
  void cut(int64_t size);
  // At the end; handed to the system when this returns.
  void write(std::string_view text);

 private:
  std::string path_;
  int descriptor_;
  bool regular_ = true;
  std::source_location where_;
};

}  // namespace lockstep
