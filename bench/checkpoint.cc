#include "bench/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bench/engine.h"
#include "bench/waiting.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMiB = int64_t{1} << 20;

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    const char* parent = std::getenv("LOCKSTEP_BENCH_FOLDER");
    path_ = (parent ? fs::path(parent) : fs::temp_directory_path()) /
            fmt::format("lockstep_bench_checkpoint_{}", getpid());
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// A model's worth of variables, and their checkpoint.
struct State {
  static constexpr int64_t kVariables = 16;
  Folder folder;
  std::vector<Variable> variables = make_variables();
  train::Checkpoint checkpoint{{{"weights", variables}}};

  static std::vector<Variable> make_variables() {
    std::vector<Variable> all;
    const int64_t elements = checkpoint_bytes() / kVariables / static_cast<int64_t>(sizeof(float));
    for (int64_t i = 0; i < kVariables; ++i)
      all.emplace_back(Tensor::full(DType::float32, {elements}, 0.5 + static_cast<double>(i)));
    return all;
  }
  void save() const { checkpoint.write(folder.file("state")); }
  void save_and_wait() const { checkpoint.write(folder.file("state"), {.asynchronous = false}); }
};

double us_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int64_t checkpoint_bytes() {
  const char* mib = std::getenv("LOCKSTEP_BENCH_CHECKPOINT_MIB");
  const int64_t wanted = mib ? std::atoll(mib) : 1024;
  if (wanted < 1) throw std::invalid_argument("LOCKSTEP_BENCH_CHECKPOINT_MIB must be a number of MiB from 1");
  return wanted * kMiB;
}

std::vector<Candidate> checkpoint_delay() {
  const auto state = std::make_shared<State>();
  // Left uninitialised: the first, untimed copy touches it.
  const std::shared_ptr<char[]> target(new char[static_cast<size_t>(checkpoint_bytes())]);
  const auto copy = [state, target] {
    char* to = target.get();
    for (const Variable& variable : state->variables) {
      const Tensor value = variable.value();
      std::memcpy(to, value.data<float>().data(), value.spec().bytes());
      to += value.spec().bytes();
    }
  };
  // The writing itself is over before the next reading begins.
  const auto save = [state](int) {
    const int64_t before = waited_ns();
    const auto start = std::chrono::steady_clock::now();
    state->save();
    const double us = us_since(start);
    const bool disturbed = static_cast<double>(waited_ns() - before) * 1e-3 > kDisturbed * us;
    state->checkpoint.wait();
    return Reading{.us = us, .disturbed = disturbed};
  };
  return {in_process("memcpy", copy), {.name = "Lockstep save, asynchronous", .read = save, .note = {}}};
}

std::vector<Candidate> checkpoint_write() {
  const auto state = std::make_shared<State>();
  const std::string command = fmt::format("dd if=/dev/zero of='{}' bs=1M count={} conv=fsync status=none",
                                          state->folder.file("dd"), checkpoint_bytes() / kMiB);
  const auto dd = [state, command] {
    if (std::system(command.c_str()) != 0) throw std::runtime_error("dd failed: " + command);
  };
  return {whole("dd conv=fsync", dd, 1),
          whole(
              "Lockstep save, to the disk", [state] { state->save_and_wait(); }, 1)};
}

std::vector<Candidate> checkpoint_steps(int threads) {
  constexpr int64_t kBatch = 128;
  const auto state = std::make_shared<State>();
  const Step step = engine_mlp(kBatch, threads, Mode::compiled);
  if (!step) return {};
  const auto while_writing = [state, step](int) {
    step();
    state->save();
    std::atomic<bool> written{false};
    std::thread waiter([&] {
      state->checkpoint.wait();
      written = true;
    });
    const auto start = std::chrono::steady_clock::now();
    int64_t steps = 0;
    do {
      step();
      ++steps;
    } while (!written);
    const double us = us_since(start) / static_cast<double>(steps);
    waiter.join();
    return Reading{.us = us, .disturbed = false};
  };
  return {in_process("step alone", step),
          {.name = "step while one is written", .read = while_writing, .note = {}}};
}

}  // namespace lockstep::bench
