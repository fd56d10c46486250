// What checkpoints do to the disk, behind one interface: tests put one in its place that runs full or loses
// power.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

namespace lockstep::train {

// A file being written. Closed when it goes.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write_at(uint64_t offset, const void* data, size_t bytes) = 0;
  // Returns when the bytes are on the disk.
  virtual void sync() = 0;
};

// Everything throws Error(io) that names the file and the system's reason. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual void make_folders(const std::string& folder) = 0;
  // There must be none of this name, nor a link.
  virtual std::unique_ptr<OutputFile> create(const std::string& path) = 0;
  // A file of the other name is replaced; what is no file never is.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  virtual void remove(const std::string& path) = 0;  // fine where there is none
  // Returns when the names in the folder are on the disk: until then a new file may be gone after a power
  // cut.
  virtual void sync_folder(const std::string& folder) = 0;

  static FileSystem& real();
  // The real one unless a FileSystemScope lives.
  static FileSystem& current();
};

// For the whole process.
class FileSystemScope {
 public:
  explicit FileSystemScope(FileSystem& files);
  ~FileSystemScope();
  FileSystemScope(const FileSystemScope&) = delete;
  FileSystemScope& operator=(const FileSystemScope&) = delete;

 private:
  FileSystem* previous_;
};

// Writes a file that appears complete or not at all, and is there after a power cut once this has returned.
void write_durably(FileSystem& files, const std::string& path, const std::function<void(OutputFile&)>& write);

// The folder that a file of this path is in; "." where the path names none.
std::string folder_of(const std::string& path);

}  // namespace lockstep::train
