// Files, with errors that name the file, what was done to it and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// The text of an error number, as "No such file or directory".
std::string system_message(int error_number);

// A regular file opened for reading. Movable; read_at may be called from several threads at once.
class InputFile {
 public:
  // Throws Error(not_found) where there is no such file, Error(io) where it cannot be read or is a folder.
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

// The whole file.
std::string read_file(const std::string& path, std::source_location where = std::source_location::current());

// Writes a file that appears complete or not at all: under a temporary name beside `path` until commit(),
// which brings the bytes to the disk and then renames. Destroyed without a commit, it leaves nothing behind
// and an older file untouched.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path, std::source_location where = std::source_location::current());
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::string& path() const { return path_; }
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int descriptor_;
  std::source_location where_;
};

}  // namespace lockstep
