// Reading a file that is compressed with gzip, or is not: both read the same.
#pragma once

#include <cstddef>
#include <source_location>
#include <string>

namespace lockstep {

// Reads from the start to the end. Movable; not thread-safe.
class GzipFile {
 public:
  // Throws Error(not_found) where there is no such file, Error(io) where it cannot be read.
  explicit GzipFile(std::string path, std::source_location where = std::source_location::current());
  GzipFile(GzipFile&& other) noexcept;
  GzipFile& operator=(GzipFile&&) = delete;
  ~GzipFile();

  const std::string& path() const { return path_; }
  // As many bytes as there are, up to this number: fewer only at the end. Throws Error(io) where the file is
  // damaged or truncated.
  size_t read(void* target, size_t bytes);
  // Exactly so many bytes. Memory grows with what is really there, whatever number a damaged header asks for.
  std::string read_exactly(size_t bytes, const char* what);
  // Throws Error(io) where there are fewer left.
  void skip(size_t bytes, const char* what);

 private:
  std::string path_;
  void* file_;
  std::source_location where_;
};

}  // namespace lockstep
