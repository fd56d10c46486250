#include "train/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const char* what, const std::string& path, int error) {
  fail(ErrorCode::io, std::source_location::current(), "cannot ", what, " \"", path,
       "\": ", system_message(error));
}

class RealOutput final : public OutputFile {
 public:
  explicit RealOutput(std::string path) : path_(std::move(path)), descriptor_(create_draft(path_)) {
    if (descriptor_ < 0) refuse("write", path_, errno);
  }
  ~RealOutput() override { close(descriptor_); }
  RealOutput(const RealOutput&) = delete;
  RealOutput& operator=(const RealOutput&) = delete;

  void write_at(uint64_t offset, const void* data, size_t bytes) override {
    const auto* from = static_cast<const char*>(data);
    const auto start = static_cast<off_t>(offset);
    auto position = start;
    while (bytes > 0) {
      const ssize_t put = pwrite(descriptor_, from, std::min(bytes, kMaxTransfer), position);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) refuse("write", path_, errno);
      from += put;
      position += put;
      bytes -= static_cast<size_t>(put);
    }
    // The disk starts on what there is instead of waiting for sync().
    if (position - start >= kLarge)
      sync_file_range(descriptor_, start, position - start, SYNC_FILE_RANGE_WRITE);
  }
  void sync() override {
    if (fsync(descriptor_) != 0) refuse("sync", path_, errno);
  }

 private:
  static constexpr size_t kMaxTransfer = size_t{1} << 30;
  static constexpr off_t kLarge = off_t{1} << 20;

  std::string path_;
  int descriptor_;
};

class RealFileSystem final : public FileSystem {
 public:
  void make_folders(const std::string& folder) override {
    struct stat status {};
    if (folder.empty()) return;
    if (stat(folder.c_str(), &status) == 0) {
      if (!S_ISDIR(status.st_mode)) refuse("make the folder", folder, ENOTDIR);
      return;
    }
    if (errno != ENOENT) refuse("make the folder", folder, errno);
    const std::string parent = folder_of(folder);
    make_folders(parent);
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) refuse("make the folder", folder, errno);
    sync_folder(parent);
  }
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<RealOutput>(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    struct stat status {};
    if (stat(to.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      fail(ErrorCode::io, std::source_location::current(), "cannot write \"", to, "\": it is ",
           kind_of_file(status.st_mode));
    if (std::rename(from.c_str(), to.c_str()) != 0) refuse("write", to, errno);
  }
  void remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) refuse("remove", path, errno);
  }
  void sync_folder(const std::string& folder) override {
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) refuse("open the folder", folder, errno);
    const int error = fsync(descriptor) == 0 ? 0 : errno;
    close(descriptor);
    // Some file systems cannot do that, and then have no need to.
    if (error != 0 && error != EINVAL && error != ENOTSUP) refuse("sync the folder", folder, error);
  }
};

std::atomic<FileSystem*> in_use{nullptr};

}  // namespace

FileSystem& FileSystem::real() {
  static RealFileSystem files;
  return files;
}

FileSystem& FileSystem::current() {
  FileSystem* files = in_use.load();
  return files ? *files : real();
}

FileSystemScope::FileSystemScope(FileSystem& files) : previous_(in_use.exchange(&files)) {}
FileSystemScope::~FileSystemScope() { in_use.store(previous_); }

void write_durably(FileSystem& files, const std::string& path,
                   const std::function<void(OutputFile&)>& write) {
  // What a killed process leaves behind is removed by the next that locks the folder.
  const std::string draft = draft_name(path);
  try {
    const std::unique_ptr<OutputFile> file = files.create(draft);
    write(*file);
    file->sync();
    files.rename(draft, path);
  } catch (const std::exception&) {
    try {
      files.remove(draft);
    } catch (const std::exception&) {
      // The first error is the one to know.
    }
    throw;
  }
  files.sync_folder(folder_of(path));
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace lockstep::train
