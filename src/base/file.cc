#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

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

InputFile::InputFile(std::string path, std::source_location where) : path_(std::move(path)) {
  check_path(path_, where);
  // A pipe without a writer must not be waited for.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) fail_with_errno(where, "open", path_);
  struct stat status {};
  const bool known = fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    fail(ErrorCode::io, where, "cannot read \"", path_, "\": it is ",
         known ? kind_of_file(status.st_mode) : "gone", "; a file is needed");
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
  std::string text;
  try {
    text.resize(file.size());
  } catch (const std::exception&) {
    fail(ErrorCode::out_of_memory, where, "\"", path, "\" has ", file.size(),
         " bytes, more than there is memory for");
  }
  file.read_at(0, text.data(), text.size(), where);
  return text;
}

const char* kind_of_file(unsigned mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void check_path(const std::string& path, std::source_location where) {
  require(!path.empty(), ErrorCode::invalid_argument, where, "the path of a file is empty");
  const size_t nul = path.find('\0');
  require(nul == std::string::npos, ErrorCode::invalid_argument, where, "the path \"", path.substr(0, nul),
          "\" goes on behind a NUL character; leave it out");
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

void make_folders(const std::string& folder, std::source_location where) {
  check_path(folder, where);
  if (is_folder(folder)) return;
  require(!file_exists(folder), ErrorCode::io, where, "\"", folder, "\" is a file where a folder is needed");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error && is_folder(folder), ErrorCode::io, where, "cannot make the folder \"", folder,
          "\": ", error.message());
}

// --- drafts ------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kDraft = ".tmp-";
constexpr size_t kMaxName = 255;  // of a file, as file systems have it

bool is_draft(const std::string& name) {
  const size_t mark = name.rfind(kDraft);
  if (mark == std::string::npos) return false;
  const std::string_view numbers = std::string_view(name).substr(mark + kDraft.size());
  return !numbers.empty() && numbers.find_first_not_of("0123456789-") == std::string_view::npos;
}

}  // namespace

std::string draft_name(const std::string& path) {
  static std::atomic<uint64_t> number{0};
  const size_t slash = path.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  for (;;) {
    const std::string ending =
        std::string(kDraft) + std::to_string(getpid()) + "-" + std::to_string(number++);
    std::string draft = path;
    // A name of the greatest length has no room for an ending.
    if (draft.size() - begin + ending.size() > kMaxName) draft.resize(begin + kMaxName - ending.size());
    draft += ending;
    struct stat status {};
    // A process that was killed may have had this number too.
    if (lstat(draft.c_str(), &status) != 0) return draft;
  }
}

int create_draft(const std::string& draft) {
  const int descriptor = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  // Where the file system knows no locks, drafts are left alone.
  if (descriptor >= 0) flock(descriptor, LOCK_EX | LOCK_NB);
  return descriptor;
}

namespace {

void remove_stale_drafts(const std::filesystem::path& folder, const std::string& beginning) {
  std::error_code error;
  std::filesystem::directory_iterator file(folder, error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!is_draft(name) || !name.starts_with(beginning)) continue;
    const int descriptor = open(file->path().c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) continue;
    struct stat status {};
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
        flock(descriptor, LOCK_EX | LOCK_NB) == 0)
      unlink(file->path().c_str());
    close(descriptor);
  }
}

}  // namespace

void remove_stale_drafts(const std::string& folder) {
  remove_stale_drafts(std::filesystem::path(folder), "");
}

void remove_stale_drafts_of(const std::string& path) {
  // Drafts are beside the file that a link leads to.
  std::error_code error;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error) target = path;
  remove_stale_drafts(target.has_parent_path() ? target.parent_path() : ".",
                      target.filename().string() + std::string(kDraft));
}

// --- AtomicFile --------------------------------------------------------------------------------------------

namespace {

void write_all(int descriptor, const char* from, size_t bytes, const std::string& path,
               std::source_location where) {
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor, from, std::min(bytes, kMaxTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_with_errno(where, "write", path);
    from += put;
    bytes -= static_cast<size_t>(put);
  }
}

// Opening a pipe waits until somebody reads it, which is not to be taken for work.
int open_to_write(const std::string& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  struct stat status {};
  if (descriptor >= 0) {
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  } else if (errno == ENXIO && stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
    log(LogLevel::warning, "\"", path, "\" is a pipe that nobody reads yet; waiting for its reader");
    return open(path.c_str(), flags | O_WRONLY | O_CLOEXEC | O_NOCTTY, 0666);
  }
  return descriptor;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::source_location where)
    : path_(std::move(path)), target_(path_), descriptor_(-1), where_(where) {
  check_path(path_, where);
  struct stat status {};
  if (stat(path_.c_str(), &status) == 0) {
    require(!S_ISDIR(status.st_mode), ErrorCode::io, where, "cannot write \"", path_,
            "\": it is a folder; name a file in it");
    if (!S_ISREG(status.st_mode)) {
      descriptor_ = open_to_write(path_, 0);
      if (descriptor_ < 0) fail_with_errno(where, "write", path_);
      return;
    }
    if (lstat(path_.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
      std::error_code error;
      const std::filesystem::path real = std::filesystem::canonical(path_, error);
      if (!error) target_ = real.string();
    }
    // A file that must not be written is not replaced either.
    if (access(target_.c_str(), W_OK) != 0) fail_with_errno(where, "write", path_);
  } else if (errno != ENOENT) {
    fail_with_errno(where, "write", path_);
  }
  draft_ = draft_name(target_);
  descriptor_ = create_draft(draft_);
  if (descriptor_ < 0) fail_with_errno(where, "write", path_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  if (!draft_.empty()) unlink(draft_.c_str());
  close(descriptor_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  write_all(descriptor_, static_cast<const char*>(data), bytes, path_, where_);
}

void AtomicFile::write_at(uint64_t offset, const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = pwrite(descriptor_, from, std::min(bytes, kMaxTransfer), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_with_errno(where_, "write", path_);
    from += put;
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, ErrorCode::failed_precondition, where_, "\"", path_, "\" is committed already");
  if (draft_.empty()) {
    // Devices and pipes have nothing to sync; what they say when they are closed counts.
    if (close(std::exchange(descriptor_, -1)) != 0) fail_with_errno(where_, "write", path_);
    return;
  }
  if (fsync(descriptor_) != 0) fail_with_errno(where_, "write", path_);
  if (rename(draft_.c_str(), target_.c_str()) != 0) fail_with_errno(where_, "write", path_);
  close(std::exchange(descriptor_, -1));
  // The new name is on the disk only once the folder is. Some file systems cannot do that, and then have no
  // need to.
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  const int opened = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened >= 0) {
    fsync(opened);
    close(opened);
  }
}

// --- GrowingFile -------------------------------------------------------------------------------------------

GrowingFile::GrowingFile(std::string path, std::source_location where)
    : path_(std::move(path)), descriptor_(-1), where_(where) {
  check_path(path_, where);
  descriptor_ = open_to_write(path_, O_CREAT | O_APPEND);
  if (descriptor_ < 0) fail_with_errno(where, "write", path_);
  struct stat status {};
  regular_ = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
}

GrowingFile::~GrowingFile() { close(descriptor_); }

int64_t GrowingFile::size() const {
  struct stat status {};
  return regular_ && fstat(descriptor_, &status) == 0 ? status.st_size : 0;
}

void GrowingFile::cut(int64_t size) {
  if (regular_ && size < this->size() && ftruncate(descriptor_, size) != 0)
    fail_with_errno(where_, "write", path_);
}

void GrowingFile::write(std::string_view text) {
  write_all(descriptor_, text.data(), text.size(), path_, where_);
}

}  // namespace lockstep
