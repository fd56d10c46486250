#include "base/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/sha256.h"
#include "base/shared_library.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// libcurl's interface, as far as it is used. Its numbers have been fixed since soname 4 (2006).
enum Option : int {
  kLowSpeedLimit = 19,
  kLowSpeedTime = 20,
  kNoProgress = 43,
  kFailOnError = 45,
  kFollowLocation = 52,
  kConnectTimeout = 78,
  kNoSignal = 99,
  kWriteData = 10001,
  kUrl = 10002,
  kErrorBuffer = 10010,
  kUserAgent = 10018,
  kProgressData = 10057,
  kWriteFunction = 20011,
  kProgressFunction = 20219,
  kResumeFrom = 30116,
};
constexpr int kOk = 0, kHttpReturnedError = 22, kRangeError = 33;
constexpr int kErrorBytes = 256;
constexpr int kResponseCode = 0x200002;
constexpr long kGlobalDefault = 3, kRangeNotSatisfiable = 416;

struct Curl {
  int (*global_init)(long);
  void* (*easy_init)();
  int (*easy_setopt)(void*, int, ...);
  int (*easy_perform)(void*);
  int (*easy_getinfo)(void*, int, ...);
  void (*easy_cleanup)(void*);
  const char* (*easy_strerror)(int);
};

const Curl& curl(std::source_location where) {
  struct Loaded {
    Curl functions{};
    std::string problem;
  };
  static const Loaded loaded = [] {
    Loaded result;
    const std::string names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
    LoadResult load = load_library(names);
    if (!load.library) {
      result.problem = describe(load.failures);
      return result;
    }
    // It keeps threads and handlers of its own: it is never unloaded.
    load.library->keep_loaded();
    const auto take = [&]<class T>(const char* name, T*& function) {
      const auto symbol = load.library->symbol<T>(name);
      if (!symbol) result.problem = symbol.error;
      function = symbol.address;
    };
    take("curl_global_init", result.functions.global_init);
    take("curl_easy_init", result.functions.easy_init);
    take("curl_easy_setopt", result.functions.easy_setopt);
    take("curl_easy_perform", result.functions.easy_perform);
    take("curl_easy_getinfo", result.functions.easy_getinfo);
    take("curl_easy_cleanup", result.functions.easy_cleanup);
    take("curl_easy_strerror", result.functions.easy_strerror);
    if (result.problem.empty() && result.functions.global_init(kGlobalDefault) != kOk)
      result.problem = "curl_global_init failed";
    return result;
  }();
  require(
      loaded.problem.empty(), ErrorCode::unsupported, where,
      "downloading needs libcurl (Debian: apt install libcurl4), which cannot be loaded: ", loaded.problem);
  return loaded.functions;
}

// The partial file, open and locked for this process.
class PartialFile {
 public:
  PartialFile(std::string path, std::source_location where) : path_(std::move(path)), where_(where) {
    for (;;) {
      descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      check(descriptor_ >= 0);
      while (flock(descriptor_, LOCK_EX) != 0) check(errno == EINTR);
      // Whoever held the lock before may have renamed or removed the file.
      struct stat opened {
      }, named{};
      check(fstat(descriptor_, &opened) == 0);
      if (stat(path_.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev)
        return;
      close(descriptor_);
    }
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() { close(descriptor_); }

  // Moves to the end, or throws everything away and starts again. Returns the bytes that are there.
  int64_t start(bool keep) {
    if (!keep) check(ftruncate(descriptor_, 0) == 0);
    const off_t end = lseek(descriptor_, 0, SEEK_END);
    check(end >= 0);
    return end;
  }
  bool append(const char* data, size_t bytes) {
    while (bytes > 0) {
      const ssize_t put = write(descriptor_, data, bytes);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        write_error_ = errno;
        return false;
      }
      data += put;
      bytes -= static_cast<size_t>(put);
    }
    return true;
  }
  // Of the last append; 0 where it wrote everything.
  int write_error() const { return write_error_; }
  void move_to(const std::string& target) {
    check(fsync(descriptor_) == 0);
    check(rename(path_.c_str(), target.c_str()) == 0);
  }
  void remove() { unlink(path_.c_str()); }

 private:
  void check(bool succeeded) const {
    if (!succeeded) fail(ErrorCode::io, where_, "cannot write \"", path_, "\": ", system_message(errno));
  }

  std::string path_;
  std::source_location where_;
  int descriptor_ = -1;
  int write_error_ = 0;
};

// What libcurl calls back with. No exception may pass through its C code.
struct Transfer {
  PartialFile& file;
  const DownloadOptions& options;
  int64_t resumed;
  std::exception_ptr error;

  static size_t write(char* data, size_t size, size_t count, void* self) {
    return static_cast<Transfer*>(self)->file.append(data, size * count) ? size * count : 0;
  }
  static int progress(void* self, int64_t total, int64_t done, int64_t, int64_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (!transfer.options.progress) return 0;
    try {
      transfer.options.progress(transfer.resumed + done, total > 0 ? transfer.resumed + total : 0);
      return 0;
    } catch (...) {
      transfer.error = std::current_exception();
      return 1;
    }
  }
};

struct Outcome {
  std::string problem;  // empty: all is there
  bool cannot_resume = false;
};

Outcome transfer(const std::string& url, PartialFile& file, int64_t resume_from,
                 const DownloadOptions& options, std::source_location where) {
  const Curl& api = curl(where);
  const std::unique_ptr<void, void (*)(void*)> handle(api.easy_init(), api.easy_cleanup);
  require(handle != nullptr, ErrorCode::io, where, "download: libcurl gives no handle");
  Transfer state{file, options, resume_from, nullptr};
  char message[kErrorBytes] = {};
  const auto set = [&](Option option, auto value) {
    const int code = api.easy_setopt(handle.get(), option, value);
    require(code == kOk, ErrorCode::io, where, "download: libcurl refuses option ", static_cast<int>(option),
            ": ", api.easy_strerror(code));
  };
  set(kUrl, url.c_str());
  set(kErrorBuffer, &message[0]);
  set(kUserAgent, "lockstep/" LOCKSTEP_VERSION);
  set(kFailOnError, 1L);
  set(kFollowLocation, 1L);
  set(kNoSignal, 1L);
  set(kConnectTimeout, 30L);
  // A connection that brings less than 100 bytes per second for a minute is dead.
  set(kLowSpeedLimit, 100L);
  set(kLowSpeedTime, 60L);
  set(kWriteFunction, &Transfer::write);
  set(kWriteData, static_cast<void*>(&state));
  set(kProgressFunction, &Transfer::progress);
  set(kProgressData, static_cast<void*>(&state));
  set(kNoProgress, 0L);
  set(kResumeFrom, resume_from);

  const int code = api.easy_perform(handle.get());
  if (state.error) std::rethrow_exception(state.error);
  if (code == kOk) return {};
  if (file.write_error() != 0)
    fail(ErrorCode::io, where, "downloading ", url, ": cannot write: ", system_message(file.write_error()));
  long response = 0;
  api.easy_getinfo(handle.get(), kResponseCode, &response);
  return {message[0] ? message : api.easy_strerror(code),
          code == kRangeError || (code == kHttpReturnedError && response == kRangeNotSatisfiable)};
}

}  // namespace

void download(const std::string& url, const std::string& path, const DownloadOptions& options,
              std::source_location where) {
  const std::string partial_path = path + ".part";
  PartialFile file(partial_path, where);
  // Another process was first.
  if (file_exists(path)) return file.remove();
  for (bool keep = true;; keep = false) {
    const int64_t resumed = file.start(keep);
    const Outcome outcome = transfer(url, file, resumed, options, where);
    if (!outcome.problem.empty()) {
      if (outcome.cannot_resume && resumed > 0) continue;
      if (file.start(true) == 0) file.remove();
      fail(ErrorCode::io, where, "downloading ", url, ": ", outcome.problem);
    }
    const std::string digest = options.sha256.empty() ? "" : sha256_of_file(partial_path, where);
    if (digest == options.sha256) break;
    if (resumed > 0) continue;  // what was there before may have been the start of something else
    file.remove();
    fail(ErrorCode::io, where, "downloading ", url, ": the file has the SHA-256 digest ", digest, ", but ",
         options.sha256, " is expected: it is another file, or was damaged on the way");
  }
  file.move_to(path);
}

}  // namespace lockstep
