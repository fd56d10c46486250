#include "bench/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::bench {

namespace {

using nlohmann::json;

// The longest answer is the first, which may compile: a framework that needs longer is given up.
constexpr std::chrono::seconds kPatience{180};
// With a framework that was asked to get ready, and compiles a whole network.
constexpr std::chrono::seconds kPatienceToPrepare{900};

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

// A child that speaks JSON lines: see peers/peers.py.
class Peers::Process {
 public:
  Process(std::string name, const std::vector<std::string>& command) : name_(std::move(name)) {
    int to_child[2], from_child[2];
    require(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(from_child, O_CLOEXEC) == 0, ErrorCode::io, here(),
            "peers: no pipe: ", std::strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int error = posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to_child[0]);
    close(from_child[1]);
    in_ = to_child[1];
    out_ = from_child[0];
    if (error != 0) {
      pid_ = -1;
      close_pipes();
      fail(ErrorCode::not_found, here(), "peers: cannot start ", command[0], ": ", std::strerror(error));
    }
  }

  ~Process() {
    close_pipes();  // the end of its input ends a child that is well
    if (pid_ < 0) return;
    for (int waited_ms = 0; waitpid(pid_, nullptr, WNOHANG) == 0; waited_ms += 10) {
      if (waited_ms == 2000) kill(pid_, SIGKILL);
      usleep(10000);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  std::map<std::string, std::vector<std::string>> peers;  // the works of each
  std::vector<std::string> slow;                          // those that compile before they run

  json receive(std::chrono::seconds patience = kPatience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    size_t newline;
    while ((newline = received_.find('\n')) == std::string::npos) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now())
              .count();
      pollfd ready{.fd = out_, .events = POLLIN, .revents = 0};
      if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) == 0) {
        kill(pid_, SIGKILL);  // a late answer would be taken for that to a later question
        fail(ErrorCode::io, here(), "peers: ", name_, " gave no answer in ", patience.count(), " s");
      }
      char text[4096];
      const ssize_t n = read(out_, text, sizeof text);
      require(n > 0, ErrorCode::io, here(), "peers: ", name_, " ended without an answer");
      received_.append(text, static_cast<size_t>(n));
    }
    const json message = json::parse(received_.substr(0, newline));
    received_.erase(0, newline + 1);
    return message;
  }

  void ask(const json& request) {
    const std::string line = request.dump() + "\n";
    require(write(in_, line.data(), line.size()) == static_cast<ssize_t>(line.size()), ErrorCode::io, here(),
            "peers: ", name_, " has ended");
  }

  Reading read_once(const std::string& peer, const std::string& work, int64_t batch, int iterations) {
    ask({{"peer", peer}, {"work", work}, {"batch", batch}, {"iterations", iterations}});
    const json answer = receive();
    if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
    return {.us = answer["us"], .disturbed = answer["disturbed"]};
  }

 private:
  static std::source_location here(std::source_location where = std::source_location::current()) {
    return where;
  }

  void close_pipes() {
    for (int* fd : {&in_, &out_})
      if (*fd >= 0) close(std::exchange(*fd, -1));
  }

  std::string name_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string received_;
};

namespace {

std::string python() { return environment("LOCKSTEP_BENCH_PYTHON", "python3"); }

std::string script(const char* name) {
  return environment("LOCKSTEP_BENCH_PEERS", LOCKSTEP_SOURCE_DIR "/bench/peers") + "/" + name;
}

std::vector<std::pair<std::string, std::vector<std::string>>> cpu_commands(int threads) {
  const std::string count = std::to_string(threads);
  std::vector<std::pair<std::string, std::vector<std::string>>> commands;
  for (const char* framework : {"torch", "jax", "tensorflow"})
    commands.push_back(
        {framework, {python(), script("peers.py"), "--serve", "--threads", count, "--framework", framework}});
#ifdef LOCKSTEP_BENCH_LIBTORCH
  // Its BLAS reads the thread count when it is loaded, before main.
  commands.push_back({"libtorch",
                      {"env", "OMP_NUM_THREADS=" + count, "OPENBLAS_NUM_THREADS=" + count,
                       "MKL_NUM_THREADS=" + count, LOCKSTEP_BENCH_LIBTORCH, count}});
#endif
  return commands;
}

}  // namespace

Peers::Peers(int threads) : Peers(cpu_commands(threads)) {
#ifndef LOCKSTEP_BENCH_LIBTORCH
  inventory_.push_back("libtorch: missing (not found when the benchmark was configured)");
#endif
}

Peers Peers::on_gpu(const std::string& names) {
  struct One {
    const char* framework;
    const char* peer;
    const char* work = nullptr;
  };
  // A process each: an illegal access on a GPU ends all that its process does there. What compiles for a minute has a process
  // for each work, so that all compile at the same time.
  static constexpr One kAll[] = {{"torch", "PyTorch eager"},
                                 {"torch", "PyTorch CUDA graph"},
                                 {"torch", "torch.compile", "gpu/mlp"},
                                 {"torch", "torch.compile", "gpu/resnet50"},
                                 {"torch", "torch.compile", "gpu/gpt2"},
                                 {"jax", "JAX jit", "gpu/mlp"},
                                 {"jax", "JAX jit", "gpu/gpt2"},
                                 {"jax", "JAX scan"}};
  const std::regex wanted(names);
  std::vector<Command> commands;
  for (const auto& [framework, peer, work] : kAll) {
    if (!std::regex_search(peer, wanted)) continue;
    Command command = {
        peer, {python(), script("gpu_peers.py"), "--serve", "--framework", framework, "--peer", peer}};
    if (work) {
      command.first += std::string(" (") + work + ")";
      command.second.insert(command.second.end(), {"--work", work});
    }
    commands.push_back(std::move(command));
  }
  return Peers(commands);
}

Peers::Peers(const std::vector<Command>& commands) {
  signal(SIGPIPE, SIG_IGN);  // a peer that has died is an error of its own reading only
  std::vector<std::pair<std::string, std::shared_ptr<Process>>> started;
  for (const auto& [name, command] : commands) {
    try {
      started.push_back({name, std::make_shared<Process>(name, command)});
    } catch (const Error& e) {
      inventory_.push_back(name + ": missing (" + e.message() + ")");
    }
  }
  for (auto& [name, process] : started) {
    try {
      const json hello = process->receive();
      if (hello.contains("missing")) {
        inventory_.push_back(name + ": missing (" + hello["missing"].get<std::string>() + ")");
        continue;
      }
      process->peers = hello["peers"].get<decltype(process->peers)>();
      process->slow = hello.value("slow", process->slow);
      inventory_.push_back(name + " " + hello["version"].get<std::string>());
      processes_.push_back(std::move(process));
    } catch (const std::exception& e) {
      inventory_.push_back(name + ": missing (" + e.what() + ")");
    }
  }
}

Peers::~Peers() = default;
Peers::Peers(Peers&&) noexcept = default;

void Peers::prepare(const std::vector<std::pair<std::string, int64_t>>& works,
                    const std::function<void(const std::string&)>& tell) const {
  std::vector<int> asked(processes_.size(), 0);
  for (size_t i = 0; i < processes_.size(); ++i)
    for (const std::string& peer : processes_[i]->slow)
      for (const auto& [work, batch] : works) {
        const auto it = processes_[i]->peers.find(peer);
        if (it == processes_[i]->peers.end() || std::ranges::find(it->second, work) == it->second.end())
          continue;
        processes_[i]->ask({{"peer", peer}, {"work", work}, {"batch", batch}, {"prepare", true}});
        ++asked[i];
      }
  for (size_t i = 0; i < processes_.size(); ++i)
    for (; asked[i] > 0; --asked[i]) try {
        const json answer = processes_[i]->receive(kPatienceToPrepare);
        const std::string name =
            fmt::format("{}, {}/{}", answer["peer"].get<std::string>(), answer["work"].get<std::string>(),
                        answer["batch"].get<int64_t>());
        tell(answer.contains("error")
                 ? fmt::format("{}: {}", name, answer["error"].get<std::string>())
                 : fmt::format("{}: ready after {:.1f} s", name, answer["prepared"].get<double>()));
      } catch (const std::exception& e) {
        tell(e.what());
        break;
      }
}

std::vector<Candidate> Peers::candidates(const std::string& work, int64_t batch) const {
  std::vector<Candidate> list;
  for (const auto& process : processes_)
    for (const auto& [peer, works] : process->peers)
      if (std::ranges::find(works, work) != works.end())
        list.push_back({.name = peer, .read = [process, work, batch, name = peer](int iterations) {
                          return process->read_once(name, work, batch, iterations);
                        }});
  return list;
}

}  // namespace lockstep::bench
