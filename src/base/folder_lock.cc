#include "lockstep/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

constexpr const char* kName = "/.lockstep.lock";

// "process 4711 on anna (lockstep train run.json)"
std::string own_name() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command, word;
  while (std::getline(file, word, '\0') && command.size() < 200)
    command += (command.empty() ? "" : " ") + word;
  return detail::concat("process ", getpid(), " on ", host_name(), " (", command, ")");
}

std::string owner_of(int descriptor) {
  char text[512];
  const ssize_t got = pread(descriptor, text, sizeof(text), 0);
  std::string owner(text, got > 0 ? static_cast<size_t>(got) : 0);
  if (const size_t end = owner.find('\n'); end != std::string::npos) owner.resize(end);
  return owner.empty() ? "another process" : owner;
}

using FileId = std::pair<dev_t, ino_t>;

FileId id_of(const struct stat& status) { return {status.st_dev, status.st_ino}; }

}  // namespace

struct FolderLock::Held {
  std::string path;
  int descriptor = -1;
  pid_t owner = getpid();

  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (descriptor < 0) return;
    struct stat own {
    }, named{};
    // A child of fork() has a copy of the handle, not the lock; and the folder may have become another one.
    if (owner == getpid() && fstat(descriptor, &own) == 0 && stat(path.c_str(), &named) == 0 &&
        id_of(own) == id_of(named))
      unlink(path.c_str());
    close(descriptor);
  }

  void take(const std::string& folder, std::source_location where) {
    path = folder + kName;
    for (;;) {
      descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
      require(descriptor >= 0, ErrorCode::io, where, "cannot write to the folder \"", folder,
              "\": ", system_message(errno));
      if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
          const std::string other = owner_of(descriptor);
          close(std::exchange(descriptor, -1));
          fail(ErrorCode::failed_precondition, where, "\"", folder, "\" is being written by ", other,
               "; wait for it to end, or choose another folder");
        }
        if (errno == EINTR) continue;
        log_once(LogLevel::warning, "\"", folder, "\" cannot be locked (", system_message(errno),
                 "): see to it that nobody else writes there");
      }
      struct stat own {
      }, named{};
      // Whoever had it may have removed it between the two calls: then the next one holds another file.
      if (fstat(descriptor, &own) == 0 && stat(path.c_str(), &named) == 0 && id_of(own) == id_of(named))
        break;
      close(std::exchange(descriptor, -1));
    }
    const std::string name = own_name() + "\n";
    // Only for people: the lock holds without it.
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, name.data(), name.size(), 0) < 0) return;
  }
};

FolderLock::FolderLock(const std::string& folder, std::source_location where) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<FileId, std::weak_ptr<Held>>;
  make_folders(folder, where);
  struct stat status {};
  const bool there = stat(folder.c_str(), &status) == 0;
  require(there, ErrorCode::io, where, "cannot write to the folder \"", folder,
          "\": ", system_message(errno));
  const std::lock_guard lock(mutex);
  std::weak_ptr<Held>& known = all[id_of(status)];
  held_ = known.lock();
  // A child of fork() does not have what its parent holds.
  if (held_ && held_->owner == getpid()) return;
  auto held = std::make_shared<Held>();
  held->take(folder, where);
  remove_stale_drafts(folder);
  held_ = held;
  known = held;
}

}  // namespace lockstep
