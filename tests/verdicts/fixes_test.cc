// The fix of every verdict, for every way to make a run: what is C++ is compiled and run, what is a call of
// the tool is made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "lockstep/observe/verdict.h"

namespace lockstep::testing {
namespace {

using observe::Category;
using observe::Counter;
using observe::ReplicaSummary;
using observe::RunKind;
using observe::RunSummary;

struct Outcome {
  int status = 0;
  std::string text;
};
Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen(("(" + command + "\n) 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const size_t read = fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), read);
  outcome.status = pclose(pipe);
  return outcome;
}

// Ten steps of 10 ms on two replicas, of which so much went into a category.
RunSummary summary_of(RunKind kind, const std::vector<std::pair<Category, double>>& ms,
                      const std::vector<std::pair<Counter, int64_t>>& counts = {}) {
  RunSummary summary;
  ReplicaSummary replica;
  replica.wall = {
      .count = 11, .total = 110'000'000, .max = 10'000'000, .mean = 1e7, .median = 1e7, .p95 = 1e7};
  replica.first.wall_ns = 10'000'000;
  for (const auto& [category, each] : ms) {
    replica.times[static_cast<size_t>(category)] = {
        .count = 11, .total = static_cast<int64_t>(11e6 * each), .mean = 1e6 * each};
    replica.first.times[category] = static_cast<int64_t>(1e6 * each);
  }
  for (const auto& [counter, each] : counts) {
    replica.counts[counter] = 11 * each;
    replica.first.counts[counter] = each;
  }
  replica.measured_wall_ns = replica.wall.total;
  summary.replicas = {replica, replica};
  summary.setting = {.kind = kind, .batch_size = 8, .examples = 64};
  return summary;
}

// A run for each verdict that there is.
std::vector<RunSummary> runs_of(RunKind kind) {
  std::vector<RunSummary> all;
  const auto add = [&](auto&&... arguments) -> RunSummary& {
    return all.emplace_back(summary_of(kind, arguments...));
  };
  using Ms = std::vector<std::pair<Category, double>>;
  using Counts = std::vector<std::pair<Counter, int64_t>>;
  add(Ms{{Category::input_wait, 4}, {Category::compute, 6}});
  add(Ms{{Category::exposed_communication, 4}, {Category::compute, 6}});
  RunSummary& workers = add(Ms{{Category::exposed_communication, 4}, {Category::compute, 6}});
  workers.workers = {{"worker 0", 1}, {"worker 1", 1}};
  add(Ms{{Category::host, 8}, {Category::compute, 2}});
  add(Ms{{Category::loop, 4}, {Category::compute, 6}});
  RunSummary& slow = add(Ms{{Category::compute, 9}});
  slow.replicas[1].times[static_cast<size_t>(Category::compute)].total /= 2;
  slow.replicas[1].first.times[Category::compute] /= 2;
  add(Ms{{Category::waiting_for_others, 4}, {Category::compute, 6}});
  RunSummary& partial = add(Ms{{Category::compute, 10}}, Counts{{Counter::examples, 3}, {Counter::slots, 4}});
  partial.replicas[0].partial_steps = 11;
  add(Ms{{Category::compute, 10}}, Counts{{Counter::examples, 3}, {Counter::slots, 4}});
  RunSummary& traced = add(Ms{{Category::compute, 10}}, Counts{{Counter::traces, 1}});
  for (ReplicaSummary& replica : traced.replicas) replica.late_compiling_ns = 50'000'000;
  add(Ms{{Category::copy, 4}, {Category::compute, 6}}, Counts{{Counter::host_copies, 1}});
  RunSummary& reads = add(Ms{{Category::loop, 4}, {Category::compute, 6}}, Counts{{Counter::value_reads, 1}});
  reads.setting.asynchronous = true;
  RunSummary& threads = add(Ms{{Category::compute, 6}, {Category::descheduled, 4}});
  threads.setting.threads = 4;
  threads.setting.cores = 2;
  RunSummary& devices = add(Ms{{Category::compute, 6}, {Category::descheduled, 4}});
  devices.setting.threads = 2;
  devices.setting.cores = 1;
  add(Ms{{Category::compute, 10}}, Counts{{Counter::checking_ns, 4'000'000}});
  if (kind != RunKind::command_line) {  // the tool shares its data itself, and lets no device stand in
    add(Ms{{Category::compute, 10}}).setting.same_examples = 2;
    RunSummary& alike = add(Ms{{Category::compute, 10}});
    alike.setting.same_examples = 2;
    alike.workers = {{"worker 0", 1}, {"worker 1", 1}};
    add(Ms{{Category::compute, 10}}).on_cpu = "ops of \"/GPU:0\": soft placement is on";
  }
  add(Ms{{Category::compute, 10}}).on_cpu = "all ops, while the machine's GPU is not used";
  add(Ms{{Category::compute, 6}, {Category::unattributed, 4}});
  add(Ms{{Category::compute, 10}}).memory = {
      {.device = "/CPU:0", .peak = 64 << 20, .uses = {{.name = "tensors", .grown = 32 << 20}}}};
  add(Ms{{Category::compute, 10}}).memory = {{.device = "/CPU:0", .peak = 99, .limit = 100}};
  return all;
}

struct Fix {
  std::string id;
  std::string code;
};
std::vector<Fix> fixes_of(RunKind kind) {
  std::vector<Fix> all;
  for (const RunSummary& run : runs_of(kind)) {
    const std::vector<observe::Verdict> verdicts = observe::judge(run);
    EXPECT_FALSE(verdicts.empty()) << observe::to_text(run);
    for (const observe::Verdict& verdict : verdicts) all.push_back({verdict.id, verdict.fix});
  }
  return all;
}

bool is_shell(const Fix& fix) { return fix.code.starts_with("lockstep "); }

// What a program has that a fix is written into.
constexpr const char* kProgram = R"(#include <lockstep/lockstep.h>

#include <cstdlib>

namespace tf = lockstep;

static tf::data::Element f(const tf::Tensor& a, const tf::Tensor& b) { return tf::data::Element(a, b); }
static const auto prepare = f;

struct Program {
  const tf::Tensor x = tf::ones({64, 4}), y = tf::ones({64, 1}), loss = tf::constant(1.0);
  const tf::keras::Sequential model{{tf::keras::layers::Dense(1, {.input_shape = {4}})}};
  const tf::keras::Data train = {x, y};
  tf::data::Dataset dataset = tf::data::Dataset::from_tensor_slices({x, y}).batch(8);
  const std::function<tf::Tensor(const tf::Tensor&)> step = tf::function([](const tf::Tensor& a) { return a * 2.0; });
  const int64_t batch_size = 8;
  Program() { model.compile({.optimizer = "sgd", .loss = "mse"}); }
};
)";

TEST(FixesLong, ThatAreCodeCompileAndRun) {
  if (run(std::string(LOCKSTEP_COMPILER) + " --version").status != 0)
    GTEST_SKIP() << "there is no compiler on this machine";
  std::set<std::string> codes, verdicts;
  for (const RunKind kind : {RunKind::loop, RunKind::strategy, RunKind::arrays, RunKind::dataset})
    for (const Fix& fix : fixes_of(kind)) {
      verdicts.insert(fix.id);
      if (!is_shell(fix)) codes.insert(fix.code);
    }
  EXPECT_EQ(verdicts.size(), 16U) << "a verdict has no run here";

  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("lockstep_fixes_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream program(folder / "fixes.cc");
  program << kProgram;
  std::string cases;
  for (const std::string& code : codes) {
    const std::string number = std::to_string(std::distance(codes.begin(), codes.find(code)));
    const bool first = code.find("before the first tensor") != std::string::npos;
    const bool has_strategy = code.find("strategy.run(") != std::string::npos;
    program << "struct Fix" << number << (first ? "" : " : Program") << " {\n  void write() {\n    "
            << (has_strategy ? "const tf::distribute::MirroredStrategy strategy;\n    " : "") << code
            << "\n  }\n};\n";
    cases += "    case " + number + ": " +
             (first ? "" : "tf::set_logical_cpus({.count = 2, .threads = 1}); ") + "Fix" + number +
             "().write(); break;\n";
  }
  program << "int main(int, char** words) {\n  switch (std::atoi(words[1])) {\n" << cases << "  }\n}\n";
  program.close();

  const std::filesystem::path library(LOCKSTEP_LIBRARY);
  const std::string cd = "cd " + folder.string() + " && ";
  const Outcome compiled =
      run(cd + LOCKSTEP_COMPILER + " -std=c++20 -O0 -Werror -Wall -Wno-unused -I" + LOCKSTEP_SOURCE_DIR +
          "/include fixes.cc -o fixes " + library.string() + " -Wl,-rpath," + library.parent_path().string());
  ASSERT_EQ(compiled.status, 0) << compiled.text;
  size_t index = 0;
  for (const std::string& code : codes) {
    const Outcome made = run(cd + "./fixes " + std::to_string(index++));
    EXPECT_EQ(made.status, 0) << code << "\n" << made.text;
  }
  std::filesystem::remove_all(folder);
}

TEST(Fixes, OfRunsOfTheToolAreCallsOfIt) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("lockstep_calls_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "run.json") << R"({"model": {"zoo": "mlp", "hidden": []},
    "data": {"name": "digits", "train_size": 64, "test_size": 8}, "fit": {"epochs": 1, "verbose": 0}})";
  std::set<std::string> calls;
  for (const Fix& fix : fixes_of(RunKind::command_line)) {
    if (fix.id == "numerics-checked") continue;  // the tool does not check numbers
    EXPECT_TRUE(is_shell(fix)) << fix.id << ": " << fix.code;
    if (fix.code.starts_with("lockstep doctor")) continue;  // its result is the machine's
    calls.insert(fix.code);
  }
  for (const std::string& call : calls) {
    const Outcome made = run("cd " + folder.string() + " && PATH=" +
                             std::filesystem::path(LOCKSTEP_TOOL).parent_path().string() + ":$PATH " + call);
    EXPECT_EQ(made.status, 0) << call << "\n" << made.text;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::testing
