#include "bench/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <utility>

#include "bench/child.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

using nlohmann::json;

// The longest answer is the first, which may compile: a framework that needs longer is given up.
constexpr std::chrono::seconds kPatience{180};
// With a framework that was asked to get ready, and compiles a whole network.
constexpr std::chrono::seconds kPatienceToPrepare{900};
// Processes of one peer that compile side by side.
constexpr size_t kCompilers = 4;

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string python() { return environment("LOCKSTEP_BENCH_PYTHON", "python3"); }

std::string script(const char* name) {
  return environment("LOCKSTEP_BENCH_PEERS", LOCKSTEP_SOURCE_DIR "/bench/peers") + "/" + name;
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Reading reading(Child& child, const std::string& peer, const std::string& work, int64_t batch,
                int iterations) {
  child.ask({{"peer", peer}, {"work", work}, {"batch", batch}, {"iterations", iterations}});
  const json answer = child.receive(kPatience);
  if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
  return {.us = answer["us"], .disturbed = answer["disturbed"], .memory = answer.value("memory", int64_t{0})};
}

}  // namespace

bool Peers::Process::has(const std::string& peer, const std::string& work) const {
  const auto found = works.find(peer);
  return found != works.end() && std::ranges::find(found->second, work) != found->second.end();
}

Peers::Peers(int threads, const std::string& names)
    : Peers(
          [&] {
            const std::string count = std::to_string(threads);
            std::vector<Command> commands;
            for (const char* framework : {"torch", "jax", "tensorflow"})
              commands.push_back(
                  {framework, {python(), script("peers.py"), "--threads", count, "--framework", framework}});
#ifdef LOCKSTEP_BENCH_LIBTORCH
            // Its BLAS reads the thread count when it is loaded, before main.
            commands.push_back({"libtorch",
                                {"env", "OMP_NUM_THREADS=" + count, "OPENBLAS_NUM_THREADS=" + count,
                                 "MKL_NUM_THREADS=" + count, LOCKSTEP_BENCH_LIBTORCH, count},
                                {}});
#endif
            return commands;
          }(),
          names) {
#ifndef LOCKSTEP_BENCH_LIBTORCH
  inventory_.emplace_back("libtorch: missing (not found when the benchmark was configured)");
#endif
}

Peers Peers::on_gpu(const std::string& names) {
  static constexpr std::pair<const char*, const char*> kAll[] = {{"torch", "PyTorch eager"},
                                                                 {"torch", "PyTorch CUDA graph"},
                                                                 {"torch", "PyTorch deterministic"},
                                                                 {"torch", "torch.compile"},
                                                                 {"jax", "JAX jit"},
                                                                 {"jax", "JAX scan"}};
  const std::regex wanted(names);
  std::vector<Command> commands;
  // A process each: an illegal access on a GPU ends all that its process does there.
  for (const auto& [framework, peer] : kAll)
    if (std::regex_search(peer, wanted))
      commands.push_back(
          {peer, {python(), script("gpu_peers.py"), "--framework", framework, "--peer", peer}});
  return {commands, names};
}

Peers::Process Peers::started(const Command& command) {
  return {.child = std::make_unique<Child>(command.name, with(command.words, command.to_serve)),
          .command = command,
          .works = {}};
}

Peers::Peers(const std::vector<Command>& commands, std::string names) : names_(std::move(names)) {
  std::vector<std::shared_ptr<Process>> all;
  for (const Command& command : commands) {
    try {
      all.push_back(std::make_shared<Process>(started(command)));
    } catch (const Error& e) {
      inventory_.push_back(command.name + ": missing (" + e.message() + ")");
    }
  }
  for (const auto& process : all) {
    const std::string& name = process->command.name;
    try {
      const json hello = process->child->receive(kPatience);
      if (hello.contains("missing")) {
        inventory_.push_back(name + ": missing (" + hello["missing"].get<std::string>() + ")");
        continue;
      }
      process->works = hello["peers"].get<decltype(process->works)>();
      process->slow = hello.value("slow", process->slow);
      process->releases = hello.value("releases", false);
      process->once = hello.value("once", false);
      inventory_.push_back(name + " " + hello["version"].get<std::string>());
      processes_.push_back(process);
    } catch (const std::exception& e) {
      inventory_.push_back(name + ": missing (" + e.what() + ")");
    }
  }
}

Peers::~Peers() = default;
Peers::Peers(Peers&&) noexcept = default;

void Peers::prepare(const std::vector<std::pair<std::string, int64_t>>& works,
                    const std::function<void(const std::string&)>& tell) const {
  struct Compiler {
    Process process;
    int asked = 0;
  };
  std::vector<Compiler> compilers;
  for (const auto& process : processes_)
    for (const std::string& peer : process->slow) {
      const size_t first = compilers.size();
      size_t next = 0;
      for (const auto& [work, batch] : works) {
        if (!process->has(peer, work)) continue;
        const size_t chosen = first + next++ % kCompilers;
        if (chosen == compilers.size()) {
          compilers.push_back({.process = started(process->command)});
          compilers.back().process.child->receive(kPatience);
        }
        compilers[chosen].process.child->ask(
            {{"peer", peer}, {"work", work}, {"batch", batch}, {"prepare", true}});
        ++compilers[chosen].asked;
      }
    }
  for (Compiler& compiler : compilers)
    for (; compiler.asked > 0; --compiler.asked) try {
        const json answer = compiler.process.child->receive(kPatienceToPrepare);
        const std::string name =
            fmt::format("{}, {}/{}", answer["peer"].get<std::string>(), answer["work"].get<std::string>(),
                        answer["batch"].get<int64_t>());
        tell(answer.contains("error")
                 ? fmt::format("{}: {}", name, answer["error"].get<std::string>())
                 : fmt::format("{}: compiled in {:.1f} s", name, answer["prepared"].get<double>()));
      } catch (const std::exception& e) {
        tell(e.what());
        break;
      }
}

std::vector<Candidate> Peers::candidates(const std::string& work, int64_t batch) const {
  const std::regex wanted(names_);
  std::vector<Candidate> list;
  for (const auto& process : processes_)
    for (const auto& [peer, works] : process->works)
      if (process->has(peer, work) && std::regex_search(peer, wanted))
        list.push_back(
            {.name = peer,
             .read = [process, work, batch, name = peer](
                         int iterations) { return reading(*process->child, name, work, batch, iterations); },
             .is_peer = true});
  return list;
}

void Peers::release() const {
  for (const auto& process : processes_)
    if (process->releases) try {
        process->child->ask({{"release", true}});
      } catch (const Error&) {  // it has died, and its next reading says so
      }
}

std::map<std::string, std::vector<std::string>> Peers::first_step_commands(const std::string& work,
                                                                           int64_t batch) const {
  std::map<std::string, std::vector<std::string>> commands;
  for (const auto& process : processes_)
    for (const auto& [peer, works] : process->works)
      if (process->once && process->has(peer, work))
        commands[peer] = with(process->command.words, {"--once", work, "--batch", std::to_string(batch)});
  return commands;
}

}  // namespace lockstep::bench
