#include "comm/port_owner.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

// The inodes of the sockets that listen there, as /proc/net/tcp lists them: "sl local:port remote state ...
// inode".
std::vector<std::string> listening_sockets(int port) {
  constexpr const char* kListens = "0A";
  std::vector<std::string> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      const size_t colon = local.rfind(':');
      int number = -1;
      if (colon != std::string::npos)
        std::from_chars(local.data() + colon + 1, local.data() + local.size(), number, 16);
      if (state == kListens && number == port) inodes.push_back("socket:[" + inode + "]");
    }
  }
  return inodes;
}

std::string command_of(const fs::path& process) {
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  constexpr size_t kMost = 80;
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace

std::string port_owner(int port) {
  const std::vector<std::string> sockets = listening_sockets(port);
  std::error_code ignored;  // processes end while they are looked at, and not all let themselves be looked at
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string number = process.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const fs::directory_entry& file : fs::directory_iterator(process.path() / "fd", ignored)) {
      const fs::path target = fs::read_symlink(file.path(), ignored);
      if (std::find(sockets.begin(), sockets.end(), target.string()) != sockets.end())
        return detail::concat("process ", number, " (", command_of(process.path()), ")");
    }
  }
  return "another process";
}

}  // namespace lockstep::comm
