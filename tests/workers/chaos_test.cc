// Workers of an elastic run are killed, stopped and started again at random, links between them are cut and
// slowed, and the disk of their backups is full: the run ends, with the weights of a run that nothing has
// disturbed, and leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kWorkers = 4;
constexpr int kLeast = 2;             // members that are left alone at any moment
constexpr int kTimeout = 3;           // seconds: of the run
constexpr int64_t kStepsOfEpoch = 6;  // of the scenario "elastic"

// A folder that nothing can be written into for some time: a disk of its own that is full or, where a test
// may mount none, a file in the folder's place.
class Disk {
 public:
  explicit Disk(std::string folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    mounted_ = mount("lockstep_test", folder_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") == 0;
  }
  ~Disk() {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  bool mounted() const { return mounted_; }
  void fill() {
    std::error_code ignored;
    if (mounted_) {
      std::ofstream file(filler(), std::ios::binary);
      for (const std::string page(4096, 'x'); file.write(page.data(), 4096).flush();) {
      }
      return;
    }
    // A worker that writes at this moment may make the folder again: then this event is none.
    fs::remove_all(folder_, ignored);
    std::ofstream(folder_) << "no folder";
  }
  void empty() {
    std::error_code ignored;
    if (mounted_)
      fs::remove(filler(), ignored);
    else if (fs::is_regular_file(folder_, ignored))
      fs::remove(folder_, ignored);
  }

 private:
  std::string filler() const { return folder_ + "/filler"; }

  const std::string folder_;
  bool mounted_ = false;
};

// What happens to a run, one event after the other; which ones follows from the seed. `network`: where every
// worker has a machine of its own; null: all are on this one.
class Chaos {
 public:
  Chaos(uint64_t seed, int events, int64_t steps, const Namespaces* network)
      : random_(seed),
        events_(events),
        steps_(steps),
        network_(network),
        disk_(backups()),
        crew_({.scenario = "elastic",
               .workers = kWorkers,
               .environment = {detail::concat("TEST_EPOCHS=", steps / kStepsOfEpoch), "TEST_PAUSE_MS=10",
                               detail::concat("TEST_MIN=", kLeast), detail::concat("TEST_TIMEOUT=", kTimeout),
                               "TEST_JOIN=20", "TEST_WAIT=60", "TEST_SLOW=" + backups() + "_slow",
                               "TMPDIR=" + temporaries(), detail::concat("TEST_DATASET=", seed % 2),
                               "TEST_BACKUP=" + backups()},
               .network = network}) {
    log_ << "seed " << seed << ", " << steps << " steps, "
         << (disk_.mounted() ? "a disk of their own" : "no disk of their own: nothing can be mounted here")
         << "\n";
  }
  ~Chaos() {
    std::error_code ignored;
    fs::remove(backups() + "_slow", ignored);
    fs::remove_all(temporaries(), ignored);
  }
  Chaos(const Chaos&) = delete;
  Chaos& operator=(const Chaos&) = delete;

  // False where a run has ended before all events have happened, or makes no step for too long.
  bool run() {
    for (int event = 0; event < events_; ++event) {
      // The events are spread over the steps, so that all of them happen before the last.
      const int64_t mark = 3 + (steps_ - 12) * event / events_;
      if (!await([&] { return farthest() >= mark; })) return false;
      // Anywhere in a step.
      std::this_thread::sleep_for(std::chrono::microseconds(between(0, 4000)));
      if (!await([&] { return happens(event); })) return false;
    }
    return true;
  }

  // Of those who were in the run at its end.
  std::vector<WorkerResult> end() {
    await([&] { return ended_; });
    for (int w = 0; w < kWorkers; ++w) {
      resume(w);
      mend(w);
    }
    // Whoever has not come to join in time finds nobody.
    std::vector<bool> member;
    for (int w = 0; w < kWorkers; ++w) {
      member.push_back(crew_.progress(w) > 0 && crew_.progress(w) + kStepsOfEpoch >= farthest());
      if (!member.back()) crew_.kill(w);
    }
    std::vector<WorkerResult> members;
    const std::vector<WorkerResult> all = crew_.wait();
    for (size_t w = 0; w < all.size(); ++w)
      if (member[w]) members.push_back(all[w]);
    return members;
  }

  static std::string backups() { return "/tmp/lockstep_chaos_" + std::to_string(getpid()); }
  // Where the workers put files of which nothing may be left.
  static std::string temporaries() {
    const std::string folder = backups() + "_temporaries";
    fs::create_directories(folder);
    return folder;
  }

  std::string log() const { return log_.str(); }
  std::string output() {
    std::string text;
    for (const WorkerResult& worker : crew_.wait()) text += worker.output + "\n";
    return text;
  }
  const Crew& crew() const { return crew_; }

 private:
  // Processes that are stopped, dead or behind a link that is cut or slow, and when that ends.
  struct Absence {
    bool stopped = false, dead = false, unlinked = false;
    Clock::time_point until;
    int64_t stood = 0;  // when it was stopped
  };

  int64_t between(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random_);
  }

  int64_t farthest() const {
    int64_t step = -1;
    for (int w = 0; w < kWorkers; ++w) step = std::max(step, crew_.progress(w));
    return step;
  }
  // In the run, and at work.
  bool works(int w) {
    const Absence& absence = absences_[w];
    const int64_t step = crew_.progress(w);
    return crew_.running(w) && !absence.stopped && !absence.unlinked && step > absence.stood &&
           step + 3 * kStepsOfEpoch > farthest();
  }

  // Until it holds, while the dead are started again and the stopped go on. False where the run has ended, or
  // stands still.
  template <class Condition>
  bool await(Condition condition) {
    int64_t seen = farthest();
    auto moved = Clock::now();
    while (!condition()) {
      repair();
      if (ended_) return false;
      if (const int64_t now = farthest(); now != seen) seen = now, moved = Clock::now();
      if (Clock::now() > moved + std::chrono::seconds(90)) {
        log_ << "no step after step " << seen << "\n";
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  void repair() {
    for (int w = 0; w < kWorkers; ++w) {
      Absence& absence = absences_[w];
      if (!crew_.running(w) && !absence.dead) {
        // It was not killed: its run is over, or it could not join.
        ended_ = ended_ || crew_.report(w).find("weights") != std::string::npos;
        mend(w);
        absence = {.dead = true, .until = Clock::now()};
      }
      if (absence.stopped && Clock::now() > absence.until) resume(w);
      if (absence.unlinked && Clock::now() > absence.until) mend(w);
      if (absence.dead && Clock::now() > absence.until && !ended_) {
        crew_.start(w);
        absence = {};
        log_ << "  worker " << w << " is started again\n";
      }
    }
    if (disk_lost_ && Clock::now() > disk_back_) {
      disk_.empty();
      disk_lost_ = false;
      log_ << "  backups can be written again\n";
    }
  }

  void resume(int w) {
    Absence& absence = absences_[w];
    if (!absence.stopped) return;
    absence.stopped = false;
    absence.stood = crew_.progress(w);
    crew_.signal(w, SIGCONT);
    log_ << "  worker " << w << " goes on\n";
  }

  void mend(int w) {
    Absence& absence = absences_[w];
    if (!absence.unlinked) return;
    absence.unlinked = false;
    absence.stood = crew_.progress(w);
    network_->mend(w);
    log_ << "  worker " << w << " can be reached again\n";
  }

  // False where it has to wait until enough others work.
  bool happens(int event) {
    std::vector<int> members;
    for (int w = 0; w < kWorkers; ++w)
      if (works(w)) members.push_back(w);
    // Of links: only between machines.
    const int64_t kind = between(0, network_ ? 13 : 9);
    log_ << "event " << event << " at step " << farthest() << ": ";
    if (kind == 9 && !disk_lost_) {
      disk_.fill();
      disk_lost_ = true;
      disk_back_ = Clock::now() + std::chrono::milliseconds(between(50, 1000));
      log_ << "backups cannot be written\n";
      return true;
    }
    if (static_cast<int>(members.size()) <= kLeast) {
      // Until enough of them are there the run makes its steps slowly.
      log_ << "put off\n";
      const std::ofstream slow(backups() + "_slow");  // that it is there is all
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return false;
    }
    std::error_code ignored;
    fs::remove(backups() + "_slow", ignored);
    // The chief is the one that has been there for longest.
    std::sort(members.begin(), members.end(),
              [&](int a, int b) { return crew_.seconds_since_start(a) > crew_.seconds_since_start(b); });
    const int w = kind < 3
                      ? members[0]
                      : members[static_cast<size_t>(between(0, static_cast<int64_t>(members.size()) - 1))];
    Absence& absence = absences_[w];
    if (kind < 7) {
      crew_.kill(w);
      absence = {.dead = true, .until = Clock::now() + std::chrono::milliseconds(between(0, 500))};
      log_ << "worker " << w << " is killed\n";
    } else if (kind > 9) {
      const bool slows = kind == 13 && Namespaces::missing_slow().empty();
      const int64_t ms = longer_or_shorter();
      if (slows)
        network_->slow(w, static_cast<int>(between(500, 4000)));
      else
        network_->cut(w);
      absence = {.unlinked = true, .until = Clock::now() + std::chrono::milliseconds(ms)};
      log_ << "the link of worker " << w << (slows ? " is slow for " : " is cut for ") << ms << " ms\n";
    } else {
      const int64_t ms = longer_or_shorter();
      crew_.signal(w, SIGSTOP);
      absence = {.stopped = true, .until = Clock::now() + std::chrono::milliseconds(ms)};
      log_ << "worker " << w << " is stopped for " << ms << " ms\n";
    }
    return true;
  }

  // Than the others wait; milliseconds.
  int64_t longer_or_shorter() {
    return between(0, 2) == 0 ? kTimeout * 1000 + between(200, 1500) : between(10, 800);
  }

  std::mt19937_64 random_;
  const int events_;
  const int64_t steps_;
  const Namespaces* const network_;
  Disk disk_;
  Crew crew_;
  Absence absences_[kWorkers];
  bool ended_ = false, disk_lost_ = false;
  Clock::time_point disk_back_;
  std::ostringstream log_;
};

std::string line_of(const std::string& text, const std::string& beginning) {
  const size_t at = text.rfind(beginning);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

void survive(uint64_t seed, int events, int64_t steps, const Namespaces* network = nullptr) {
  const std::string expected = run({.scenario = "elastic",
                                    .workers = 1,
                                    .launcher = Launcher::alone,
                                    .environment = {detail::concat("TEST_EPOCHS=", steps / kStepsOfEpoch),
                                                    detail::concat("TEST_DATASET=", seed % 2)}})[0]
                                   .report;
  std::string address;
  {
    Chaos chaos(seed, events, steps, network);
    address = chaos.crew().address();
    const bool all_happened = chaos.run();
    const std::vector<WorkerResult> members = chaos.end();
    EXPECT_TRUE(all_happened) << chaos.log() << chaos.output();
    EXPECT_GE(members.size(), 1U) << chaos.log() << chaos.output();
    for (const WorkerResult& worker : members) {
      EXPECT_EQ(worker.status, 0) << chaos.log() << worker.output;
      for (const char* what : {"weights", "history", "evaluated"})
        EXPECT_EQ(line_of(worker.report, what), line_of(expected, what)) << chaos.log() << worker.output;
    }
    EXPECT_TRUE(fs::is_empty(Chaos::temporaries()));
    if (::testing::Test::HasFailure()) return;
  }
  // The port is free, and no file is left.
  const std::string own = fs::path(Chaos::backups()).filename().string();
  for (const auto& entry : fs::directory_iterator("/tmp"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(own)) << entry.path();
  EXPECT_EQ(std::system(detail::concat("ss -Hltn 'sport = :", address.substr(address.rfind(':') + 1),
                                       "' 2> /dev/null | grep -q .")
                            .c_str()) == 0,
            false);
}

uint64_t seed_of(uint64_t otherwise) {
  const char* given = std::getenv("LOCKSTEP_CHAOS_SEED");
  return given ? std::stoull(given) : otherwise;
}

class ChaosOfWorkers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(ChaosOfWorkers, TenEvents) { survive(seed_of(1), 10, 180); }
TEST_F(ChaosOfWorkers, LongTwoHundredEvents) { survive(seed_of(2), 200, 3600); }

class ChaosOfMachines : public ChaosOfWorkers {
 protected:
  void SetUp() override {
    ChaosOfWorkers::SetUp();
    if (const std::string why = Namespaces::missing(); !why.empty()) GTEST_SKIP() << why;
  }
  static void survive_between_machines(uint64_t seed, int events, int64_t steps) {
    const Namespaces network(kWorkers);
    survive(seed, events, steps, &network);
  }
};

TEST_F(ChaosOfMachines, TenEvents) { survive_between_machines(seed_of(3), 10, 180); }
TEST_F(ChaosOfMachines, LongTwoHundredEvents) { survive_between_machines(seed_of(4), 200, 3600); }

}  // namespace
}  // namespace lockstep::testing
