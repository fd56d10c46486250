#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_with_errno(std::source_location where, const char* what, const std::string& path) {
  const int error = errno;
  fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::io, where, "cannot ", what, " \"", path,
       "\": ", system_message(error));
}

// Bytes taken by one call of read or write; the kernel takes no more than 2 GiB at once.
constexpr size_t kMaxTransfer = size_t{1} << 30;

}  // namespace

std::string system_message(int error_number) { return std::generic_category().message(error_number); }

InputFile::InputFile(std::string path, std::source_location where)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail_with_errno(where, "open", path_);
  struct stat status {};
  const bool known = fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    fail(ErrorCode::io, where, "cannot read \"", path_, "\": it is ",
         known && S_ISDIR(status.st_mode) ? "a folder" : "not a regular file");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void InputFile::read_at(uint64_t offset, void* target, size_t bytes, std::source_location where) const {
  auto* to = static_cast<char*>(target);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, std::min(bytes, kMaxTransfer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno(where, "read", path_);
    require(got > 0, ErrorCode::io, where, "\"", path_, "\" ends at byte ", offset, ", ", bytes,
            " bytes short of what is to be read: it is truncated, or was changed meanwhile");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

std::string read_file(const std::string& path, std::source_location where) {
  const InputFile file(path, where);
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size(), where);
  return text;
}

AtomicFile::AtomicFile(std::string path, std::source_location where) : path_(std::move(path)), where_(where) {
  static std::atomic<uint64_t> number{0};
  temporary_ = path_ + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_with_errno(where, "write", temporary_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, from, std::min(bytes, kMaxTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_with_errno(where_, "write", temporary_);
    from += put;
    bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, ErrorCode::failed_precondition, where_, "\"", path_, "\" is committed already");
  if (fsync(descriptor_) != 0) fail_with_errno(where_, "write", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno(where_, "write", path_);
  close(std::exchange(descriptor_, -1));
  // The new name is on the disk only once the folder is. Some file systems cannot do that, and then have no
  // need to.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int opened = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened >= 0) {
    fsync(opened);
    close(opened);
  }
}

}  // namespace lockstep
