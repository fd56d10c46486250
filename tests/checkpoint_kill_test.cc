// A run that is killed again and again ends with the same bits as one that was left alone.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "lockstep/data/dataset.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/checkpoint.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The child's part: a process of its own, as it is killed.
constexpr const char* kFolder = "LOCKSTEP_KILL_TEST_FOLDER";
constexpr const char* kSteps = "LOCKSTEP_KILL_TEST_STEPS";

// Everything that has a state: shuffled data, dropout with and without a seed, moving statistics, Adam.
void train(const std::string& folder, int64_t steps) {
  set_random_seed(5);
  const keras::Sequential model({keras::layers::Dense(16, {.activation = "relu", .input_shape = {3}}),
                                 keras::layers::Dropout(0.2), keras::layers::Dropout(0.1, {.seed = 4}),
                                 keras::layers::BatchNormalization(), keras::layers::Dense(1)});
  model.compile({.optimizer = "adam", .loss = "mse"});
  std::vector<float> x, y;
  for (int i = 0; i < 150; ++i) x.push_back(static_cast<float>((i * 37) % 23) / 23);
  for (int i = 0; i < 50; ++i) y.push_back(static_cast<float>((i * 11) % 7) / 7);
  data::Iterator data =
      data::Dataset::from_tensor_slices({Tensor::from(x, {50, 3}), Tensor::from(y, {50, 1})})
          .shuffle(20, {.seed = 9})
          .repeat()
          .batch(8)
          .prefetch(2)
          .iterator();
  int64_t step = 0;
  const train::Checkpoint checkpoint({{"model", model},
                                      {"optimizer", model.optimizer()},
                                      {"data", data},
                                      {"random", random::default_generator()},
                                      {"step", step}});
  const train::CheckpointManager manager(checkpoint, folder, {.max_to_keep = 2});
  manager.restore_or_initialize();
  while (step < steps) {
    const data::Element batch = *data.next();
    model.train_on_batch({.x = {batch[0].tensor()}, .y = {batch[1].tensor()}, .sample_weight = {}});
    if (++step % 3 == 0) manager.save();
  }
  manager.wait();
  std::ostringstream weights;
  for (const Tensor& weight : model.get_weights())
    for (const float value : weight.to_vector<float>()) weights << std::hexfloat << value << "\n";
  AtomicFile file(folder + "/weights.txt");
  file.write(weights.str());
  file.commit();
}

TEST(CheckpointKillChild, DISABLED_Trains) {
  const char* folder = std::getenv(kFolder);
  const char* steps = std::getenv(kSteps);
  if (!folder || !steps) GTEST_SKIP() << "is started by the test below";
  train(folder, std::atoll(steps));
}

class CheckpointKill : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_checkpoint_kill_" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  pid_t start(const std::string& folder, int64_t steps) const {
    const std::string output = folder_ + "/output.txt";
    const pid_t child = fork();
    if (child != 0) return child;
    setenv(kFolder, folder.c_str(), 1);
    setenv(kSteps, std::to_string(steps).c_str(), 1);
    if (!std::freopen(output.c_str(), "w", stdout) || dup2(fileno(stdout), fileno(stderr)) < 0) _exit(3);
    execl("/proc/self/exe", "engine_tests", "--gtest_filter=CheckpointKillChild.DISABLED_Trains",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(4);
  }
  // Whether it ended by itself, well; else it was killed. Anything else is a failure.
  bool finished(pid_t child) const {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return false;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(folder_ + "/output.txt");
    return true;
  }

  void kill_at_random(int kills, int64_t steps) {
    const std::string alone = folder_ + "/alone", killed = folder_ + "/killed";
    const auto begin = Clock::now();
    ASSERT_TRUE(finished(start(alone, steps)));
    const std::chrono::duration<double> whole = Clock::now() - begin;
    const std::string expected = read_file(alone + "/weights.txt");

    std::mt19937 random(17);  // NOLINT(cert-msc51-cpp): the same moments every time, as far as that goes
    std::uniform_real_distribution<double> moment(0, 1.2 * whole.count());
    int runs = 0;
    for (int done = 0; done < kills || runs == 0;) {
      const pid_t child = start(killed, steps);
      if (done < kills) {
        // A child that has ended meanwhile waits to be asked, so this is nobody else's number.
        std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
        kill(child, SIGKILL);
      }
      if (!finished(child)) {
        ++done;
        continue;
      }
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(read_file(killed + "/weights.txt"), expected) << "after " << done << " kills";
      ++runs;
      fs::remove_all(killed);
    }
  }

  std::string folder_;
};

TEST_F(CheckpointKill, FiveTimes) { kill_at_random(5, 60); }
TEST_F(CheckpointKill, LongAHundredTimes) { kill_at_random(100, 400); }

}  // namespace
}  // namespace lockstep
