#include "lockstep/train/checkpoint.h"
#include "base/error_of_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/folder_lock.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/data/dataset.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/checkpoint_file.h"
#include "train/checkpoint_state.h"
#include "train/faulty_files_test.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Variable variable(std::vector<float> values, const std::string& name = "v") {
  const auto size = static_cast<int64_t>(values.size());
  return Variable(Tensor::from(values, {size}), {.name = name});
}
std::vector<float> values_of(const Variable& variable) { return variable.value().to_vector<float>(); }
void set(const Variable& variable, std::vector<float> values) {
  variable.assign(Tensor::from(values, variable.shape()));
}

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_checkpoint_" + std::to_string(getpid());
    fs::remove_all(folder_);
    previous_ =
        set_log_sink([this](const LogMessage& message) { logged_ += std::string(message.text) + "\n"; });
  }
  void TearDown() override {
    set_log_sink(previous_);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_))
      if (file.path().filename() != ".lockstep.lock") names.push_back(file.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
  std::string logged_;
  LogSink previous_;
};

TEST_F(Checkpoints, EverythingThatCanBeHeldComesBack) {
  const auto numbers = [] { return data::Dataset::range(100).shuffle(20, {.seed = 3}).batch(4).prefetch(2); };
  const auto batches = [](data::Iterator& iterator, int count) {
    std::vector<int64_t> all;
    for (int i = 0; i < count; ++i)
      for (const int64_t number : iterator.next()->tensor().to_vector<int64_t>()) all.push_back(number);
    return all;
  };
  const Variable weight = variable({1, 2, 3}, "weight");
  const std::vector<Variable> list{variable({4}), variable({5, 6})};
  const random::Generator generator(7);
  data::Iterator iterator = numbers().iterator();
  int64_t step = 41;
  const Variable inner = variable({9});
  const Checkpoint nested({{"inner", inner}});
  const Checkpoint checkpoint({{"weight", weight},
                               {"list", list},
                               {"random", generator},
                               {"data", iterator},
                               {"step", step},
                               {"nested", nested}});
  generator.advance();
  batches(iterator, 3);
  const std::string saved = checkpoint.save(path("ckpt"));
  EXPECT_EQ(saved, path("ckpt-1"));
  const std::vector<int64_t> expected = batches(iterator, 3);
  const int64_t next_state = generator.advance();

  set(weight, {0, 0, 0});
  set(list[0], {0});
  set(list[1], {0, 0});
  set(inner, {0});
  step = 0;
  checkpoint.restore(saved).assert_consumed();
  EXPECT_THAT(values_of(weight), ElementsAre(1, 2, 3));
  EXPECT_THAT(values_of(list[0]), ElementsAre(4));
  EXPECT_THAT(values_of(list[1]), ElementsAre(5, 6));
  EXPECT_THAT(values_of(inner), ElementsAre(9));
  EXPECT_EQ(step, 41);
  EXPECT_EQ(generator.advance(), next_state);
  EXPECT_EQ(batches(iterator, 3), expected);

  // Another process has other objects.
  data::Iterator other = numbers().iterator();
  const Variable other_weight = variable({0, 0, 0}, "named_differently");
  Checkpoint({{"data", other}, {"weight", other_weight}}).restore(saved).expect_partial();
  EXPECT_EQ(batches(other, 3), expected);
  EXPECT_THAT(values_of(other_weight), ElementsAre(1, 2, 3));
  EXPECT_EQ(logged_, "");
}

TEST_F(Checkpoints, AreNumberedAndEntered) {
  const Variable v = variable({1});
  const Checkpoint checkpoint({{"v", v}});
  EXPECT_EQ(latest_checkpoint(folder_), std::nullopt);
  for (int i = 1; i <= 3; ++i) {
    set(v, {static_cast<float>(i)});
    EXPECT_EQ(checkpoint.save(path("ckpt")), path("ckpt-" + std::to_string(i)));
    EXPECT_EQ(latest_checkpoint(folder_), path("ckpt-" + std::to_string(i))) << "what is saved is there";
  }
  const Json state = Json::read_file(path("checkpoint"));
  EXPECT_EQ(state.at("latest"), "ckpt-3");
  EXPECT_THAT(state.at("all").items(), SizeIs(3));
  EXPECT_THAT(files(),
              ElementsAre("checkpoint", "ckpt-1.safetensors", "ckpt-2.safetensors", "ckpt-3.safetensors"));

  // The number goes on behind all that there are: no save takes the place of another.
  const Checkpoint again({{"v", v}});
  again.restore(path("ckpt-2")).assert_consumed();
  EXPECT_THAT(values_of(v), ElementsAre(2));
  EXPECT_EQ(again.save_counter(), 2);
  EXPECT_EQ(again.save(path("ckpt"), {.asynchronous = false}), path("ckpt-4"));
  EXPECT_EQ(again.write(path("other.safetensors"), {.asynchronous = false}), path("other"));
  EXPECT_EQ(again.save_counter(), 4);
  again.restore(path("other")).assert_consumed();

  // Without the state file, the numbers count; weights that were saved by themselves are no checkpoints.
  fs::remove(path("checkpoint"));
  save_safetensors(path("weights-99.safetensors"), {{"v", v.value()}});
  EXPECT_EQ(latest_checkpoint(folder_), path("ckpt-4"));
  std::ofstream(path("checkpoint")) << "{\"latest\": \"../ckpt-1\"";
  EXPECT_EQ(latest_checkpoint(folder_), path("ckpt-4"));
  EXPECT_THAT(logged_, HasSubstr("cannot be used"));
}

TEST_F(Checkpoints, AnyReaderOfSafetensorsReadsThem) {
  const Variable v = variable({1, 2});
  Checkpoint({{"v", v}}).save(path("ckpt"), {.asynchronous = false});
  const NamedTensors tensors = load_safetensors(path("ckpt-1.safetensors"));
  ASSERT_THAT(tensors, SizeIs(1));
  EXPECT_EQ(tensors[0].first, "v");
  EXPECT_EQ(tensors[0].second.to_vector<float>(), values_of(v));
}

TEST_F(Checkpoints, RestoringNothingDoesNothing) {
  const Variable v = variable({1});
  const Checkpoint checkpoint({{"v", v}});
  const RestoreStatus status = checkpoint.restore(latest_checkpoint(folder_));
  EXPECT_FALSE(status.restored());
  EXPECT_THAT(error_of([&] { status.assert_consumed(); }).message(),
              HasSubstr("no checkpoint to restore from"));
  EXPECT_THAT(values_of(v), ElementsAre(1));
  EXPECT_EQ(logged_, "");
  EXPECT_THAT(error_of([&] { checkpoint.restore("nowhere/ckpt-1"); }).message(),
              AllOf(HasSubstr("nowhere/ckpt-1.safetensors"), HasSubstr("No such file")));
}

TEST_F(Checkpoints, WhatDoesNotMatchIsListed) {
  const Variable a = variable({1}), b = variable({2, 3}), c = variable({4});
  const std::string saved = Checkpoint({{"a", a}, {"b", b}}).save(path("ckpt"));
  {
    const Checkpoint other({{"a", a}, {"c", c}});
    set(a, {0});
    const RestoreStatus status = other.restore(saved);
    EXPECT_THAT(values_of(a), ElementsAre(1));
    EXPECT_THAT(status.missing(), ElementsAre("c float32(1,)"));
    EXPECT_THAT(status.extra(), ElementsAre("b float32(2,)"));
    EXPECT_THAT(error_of([&] { status.assert_existing_objects_matched(); }).message(),
                AllOf(HasSubstr("c float32"), Not(HasSubstr("b float32"))));
    EXPECT_THAT(error_of([&] { status.assert_consumed(); }).message(),
                AllOf(HasSubstr("c float32"), HasSubstr("b float32")));
  }
  EXPECT_EQ(logged_, "") << "somebody looked";
  Checkpoint({{"a", a}}).restore(saved).assert_existing_objects_matched();
  Checkpoint({{"a", a}}).restore(saved).expect_partial();
  EXPECT_EQ(logged_, "");
  Checkpoint({{"a", a}}).restore(saved);
  EXPECT_THAT(logged_,
              AllOf(HasSubstr("restored in part"), HasSubstr("b float32"), HasSubstr("expect_partial")));

  const Variable wide = variable({7, 8, 9});
  const Variable whole(Tensor::scalar<int64_t>(1));
  set(a, {0});
  EXPECT_THAT(error_of([&] {
                Checkpoint({{"a", a}, {"b", wide}}).restore(saved);
              }).message(),
              AllOf(HasSubstr("does not fit"), HasSubstr("b is float32(3,), in the checkpoint float32(2,)")));
  EXPECT_THAT(error_of([&] {
                Checkpoint({{"a", whole}, {"b", b}}).restore(saved);
              }).message(),
              HasSubstr("a is int64(), in the checkpoint float32(1,)"));
  EXPECT_THAT(values_of(a), ElementsAre(0)) << "nothing changes where something does not fit";
  int64_t counter = 3;
  EXPECT_THAT(error_of([&] {
                Checkpoint({{"a", counter}, {"b", b}}).restore(saved);
              }).what(),
              AllOf(HasSubstr("a counter is one int64"), HasSubstr("while restoring \"a\"")));
  EXPECT_EQ(counter, 3);
}

TEST_F(Checkpoints, BadNamesAreRefused) {
  const Variable v = variable({1});
  EXPECT_THAT(error_of([&] { Checkpoint({{"", v}}); }).message(), HasSubstr("no name"));
  EXPECT_THAT(error_of([&] { Checkpoint({{"a/b", v}}); }).message(), HasSubstr("no name"));
  EXPECT_THAT(error_of([&] { Checkpoint({{"a", v}, {"a", v}}); }).message(), HasSubstr("two objects"));
  EXPECT_THAT(error_of([&] {
                Checkpoint({{"a\xff", v}}).save(path("ckpt"));
              }).message(),
              HasSubstr("not UTF-8"));
  EXPECT_THAT(error_of([&] {
                Checkpoint({{"a", v}}).save(folder_ + "/");
              }).message(),
              HasSubstr("names a folder only"));
}

// --- variables that come later -----------------------------------------------------------------------------

// An object that makes its variables one by one.
class Growing final : public TrackedObject {
 public:
  explicit Growing(size_t size) : state_(std::make_shared<State>()) { state_->size = size; }

  void grow(const std::string& name, const Variable& variable) {
    state_->variables.emplace_back(name, variable);
    for (const GrownCall& call : std::exchange(state_->calls, {})) (*call)(*this);
  }
  std::string kind() const override { return "Growing"; }
  NamedVariables variables() const override { return state_->variables; }
  bool complete() const override { return state_->variables.size() >= state_->size; }
  void when_grown(const GrownCall& call) const override { state_->calls.push_back(call); }

 private:
  struct State {
    size_t size;
    NamedVariables variables;
    std::vector<GrownCall> calls;
  };
  std::shared_ptr<State> state_;
};

TEST_F(Checkpoints, ValuesWaitForTheirVariables) {
  const Variable a = variable({1}), b = variable({2});
  const auto saved_object = std::make_shared<Growing>(2);
  saved_object->grow("a", a);
  saved_object->grow("b", b);
  const std::string saved = Checkpoint({{"model", Trackable(saved_object)}}).save(path("ckpt"));

  const auto object = std::make_shared<Growing>(2);
  std::optional<Checkpoint> checkpoint(Checkpoint({{"model", Trackable(object)}}));
  const RestoreStatus status = checkpoint->restore(saved);
  EXPECT_THAT(status.deferred(), ElementsAre("model/a float32(1,)", "model/b float32(1,)"));
  EXPECT_THAT(error_of([&] { status.assert_consumed(); }).message(),
              HasSubstr("waiting for their variables"));
  status.assert_existing_objects_matched();
  checkpoint.reset();  // and the file may go too
  fs::remove_all(folder_);
  const Variable c = variable({0}), d = variable({0});
  object->grow("a", c);
  EXPECT_THAT(values_of(c), ElementsAre(1));
  EXPECT_THAT(status.deferred(), ElementsAre("model/b float32(1,)"));
  object->grow("b", d);
  EXPECT_THAT(values_of(d), ElementsAre(2));
  status.assert_consumed();
  EXPECT_EQ(logged_, "");
}

TEST_F(Checkpoints, ValuesThatNeverFindAVariableAreReported) {
  const Variable a = variable({1}), b = variable({2});
  const auto saved_object = std::make_shared<Growing>(2);
  saved_object->grow("a", a);
  saved_object->grow("b", b);
  const std::string saved = Checkpoint({{"model", Trackable(saved_object)}}).save(path("ckpt"));
  {
    const auto object = std::make_shared<Growing>(1);
    Checkpoint({{"model", Trackable(object)}}).restore(saved);
    EXPECT_EQ(logged_, "") << "not known yet";
    object->grow("other", variable({0}));
    EXPECT_THAT(logged_, AllOf(HasSubstr("model/a float32"), HasSubstr("model/b float32"),
                               HasSubstr("model/other float32")));
  }
  logged_.clear();
  {
    const auto object = std::make_shared<Growing>(1);
    Checkpoint({{"model", Trackable(object)}}).restore(saved);
  }
  EXPECT_THAT(logged_, AllOf(HasSubstr("never restored"), HasSubstr("model/a")));
  logged_.clear();
  {
    const auto object = std::make_shared<Growing>(1);
    Checkpoint({{"model", Trackable(object)}}).restore(saved);
    EXPECT_THAT(error_of([&] {
                  object->grow("a", variable({0, 0}));
                }).message(),
                AllOf(HasSubstr("does not fit what was built"), HasSubstr("model/a")));
  }
  // A later restore counts.
  logged_.clear();
  const auto object = std::make_shared<Growing>(1);
  const Checkpoint checkpoint({{"model", Trackable(object)}});
  checkpoint.restore(saved).expect_partial();
  set(a, {5});
  checkpoint
      .restore(Checkpoint({{"model", Trackable(saved_object)}}).save(path("later"), {.asynchronous = false}))
      .expect_partial();
  const Variable c = variable({0});
  object->grow("a", c);
  EXPECT_THAT(values_of(c), ElementsAre(5));
}

// --- the manager -------------------------------------------------------------------------------------------

TEST_F(Checkpoints, TheManagerKeepsTheLastFew) {
  const Variable v = variable({1});
  const CheckpointManager manager(Checkpoint({{"v", v}}), folder_, {.max_to_keep = 2});
  EXPECT_EQ(manager.latest_checkpoint(), std::nullopt);
  for (int i = 0; i < 4; ++i) manager.save();
  manager.wait();
  EXPECT_THAT(manager.checkpoints(), ElementsAre(path("ckpt-3"), path("ckpt-4")));
  EXPECT_EQ(manager.latest_checkpoint(), path("ckpt-4"));
  EXPECT_THAT(files(), ElementsAre("checkpoint", "ckpt-3.safetensors", "ckpt-4.safetensors"));

  // Another process goes on with the same folder.
  const CheckpointManager next(Checkpoint({{"v", v}}), folder_, {.max_to_keep = 3});
  EXPECT_EQ(next.restore_or_initialize(), path("ckpt-4"));
  EXPECT_EQ(next.save({.asynchronous = false}), path("ckpt-5"));
  next.save({.asynchronous = false});
  EXPECT_THAT(next.checkpoints(), ElementsAre(path("ckpt-4"), path("ckpt-5"), path("ckpt-6")));
}

TEST_F(Checkpoints, TheManagerPreservesOneInSoManyHours) {
  const Variable v = variable({1});
  const Checkpoint checkpoint({{"v", v}});
  checkpoint.save(path("ckpt"));
  checkpoint.save(path("ckpt"));
  checkpoint.save(path("ckpt"));
  checkpoint.wait();
  // Saved an hour apart, long ago.
  Json state = Json::read_file(path("checkpoint"));
  Json all = Json::list();
  for (int i = 0; i < 3; ++i)
    all.push_back(Json::object({{"name", "ckpt-" + std::to_string(i + 1)}, {"time", 1e6 + 3600.0 * i}}));
  state.set("all", all);
  state.set("preserved", Json::List{Json::object({{"name", "ckpt-0"}, {"time", 1e6 - 3600.0}})});
  std::ofstream(path("checkpoint")) << state.dump();
  const CheckpointManager manager(checkpoint, folder_,
                                  {.max_to_keep = 1, .keep_checkpoint_every_n_hours = 2});
  manager.save({.asynchronous = false});
  // 1: an hour after 0, goes; 2: two hours after 0, stays; 3: an hour after 2, goes.
  EXPECT_THAT(files(), ElementsAre("checkpoint", "ckpt-2.safetensors", "ckpt-4.safetensors"));
  EXPECT_THAT(manager.checkpoints(), ElementsAre(path("ckpt-4")));
}

TEST_F(Checkpoints, TheManagerCountsSteps) {
  const Variable v = variable({1});
  int64_t step = 0;
  const Checkpoint checkpoint({{"v", v}, {"step", step}});
  const CheckpointManagerOptions options{.checkpoint_interval = 3, .step_counter = [&] { return step; }};
  const CheckpointManager manager(checkpoint, folder_, options);
  std::vector<int64_t> saved;
  for (step = 0; step < 8; ++step)
    if (manager.save()) saved.push_back(step);
  EXPECT_THAT(saved, ElementsAre(0, 3, 6));
  const CheckpointManager next(checkpoint, folder_, options);
  next.restore_or_initialize();
  EXPECT_EQ(step, 6);
  ++step;
  EXPECT_EQ(next.save(), std::nullopt);
  EXPECT_THAT(error_of([&] { CheckpointManager(checkpoint, folder_, {.checkpoint_interval = 3}); }).message(),
              HasSubstr("step_counter"));
  EXPECT_THAT(error_of([&] { CheckpointManager(checkpoint, folder_, {.max_to_keep = -1}); }).message(),
              HasSubstr("max_to_keep is -1"));
}

TEST_F(Checkpoints, TheManagerInitialisesOrFallsBack) {
  const Variable v = variable({1});
  const Checkpoint checkpoint({{"v", v}});
  int initialised = 0;
  CheckpointManagerOptions options{.init_fn = [&] { ++initialised; }};
  const CheckpointManager manager(checkpoint, folder_, options);
  EXPECT_EQ(manager.restore_or_initialize(), std::nullopt);
  EXPECT_EQ(initialised, 1);
  manager.save();
  set(v, {2});
  manager.save();
  manager.wait();
  std::fstream file(path("ckpt-2.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\1');
  file.close();
  set(v, {0});
  EXPECT_THAT(error_of([&] { manager.restore_or_initialize(); }).message(),
              AllOf(HasSubstr("tensor \"v\""), HasSubstr("is damaged"), HasSubstr("newest good checkpoint"),
                    HasSubstr("ckpt-1")));
  EXPECT_THAT(values_of(v), ElementsAre(0));
  options.fall_back = true;
  EXPECT_EQ(CheckpointManager(checkpoint, folder_, options).restore_or_initialize(), path("ckpt-1"));
  EXPECT_THAT(values_of(v), ElementsAre(1));
  EXPECT_THAT(logged_, AllOf(HasSubstr("is damaged"), HasSubstr("going on from")));
  EXPECT_EQ(initialised, 1);
}

// --- writing in the background -----------------------------------------------------------------------------

// Lets nothing be written until it is opened.
class Gate final : public FileSystem {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void make_folders(const std::string& folder) override { real().make_folders(folder); }
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return real().create(path);
  }
  void rename(const std::string& from, const std::string& to) override { real().rename(from, to); }
  void remove(const std::string& path) override { real().remove(path); }
  void sync_folder(const std::string& folder) override { real().sync_folder(folder); }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST_F(Checkpoints, TrainingGoesOnWhileOneIsWritten) {
  Gate gate;
  const FileSystemScope scope(gate);
  const Variable v = variable({1, 2});
  const Checkpoint checkpoint({{"v", v}});
  const std::string saved = checkpoint.save(path("ckpt"));
  set(v, {3, 4});  // while nothing is written yet
  EXPECT_FALSE(fs::exists(saved + ".safetensors"));
  gate.open();
  EXPECT_EQ(latest_checkpoint(folder_), saved) << "saves of this process are waited for";
  checkpoint.restore(saved).assert_consumed();
  EXPECT_THAT(values_of(v), ElementsAre(1, 2));
}

TEST_F(Checkpoints, TwoSavesNeverShareAName) {
  const Variable v = variable({1});
  const Checkpoint one({{"v", v}}), two({{"v", v}});
  EXPECT_EQ(one.save(path("ckpt")), path("ckpt-1"));
  // As a program does that goes on from what it saved.
  one.restore(latest_checkpoint(folder_)).assert_consumed();
  EXPECT_EQ(one.save(path("ckpt")), path("ckpt-2"));
  EXPECT_EQ(latest_checkpoint(folder_), path("ckpt-2"));
  EXPECT_EQ(two.save(path("ckpt")), path("ckpt-3"));
  EXPECT_EQ(one.save(path("ckpt-2")), path("ckpt-2-3")) << "another prefix; its own number goes on";
  one.wait();
  two.wait();
  EXPECT_THAT(Json::read_file(path("checkpoint")).at("all").items(), SizeIs(4));
}

TEST_F(Checkpoints, AFolderThatAnotherProcessSavesToIsRefused) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(folder_);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const Variable v = variable({1});
  const Checkpoint checkpoint({{"v", v}});
  EXPECT_THAT(error_of([&] { checkpoint.save(path("ckpt")); }).message(),
              HasSubstr("is being written by process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(checkpoint.save(path("ckpt")), path("ckpt-1"));
  EXPECT_EQ(latest_checkpoint(folder_), path("ckpt-1"));
}

TEST_F(Checkpoints, WhatWentWrongInTheBackgroundIsThrownByTheNextCall) {
  const Variable v = variable({1});
  FaultyFiles files;
  const FileSystemScope scope(files);
  {
    const Checkpoint checkpoint({{"v", v}});
    files.fault = FaultyFiles::Fault::disk_full;
    files.at = 0;
    checkpoint.save(path("ckpt"));
    EXPECT_THAT(error_of([&] { checkpoint.save(path("ckpt")); }).message(), HasSubstr("No space left"));
    checkpoint.save(path("ckpt"));
    EXPECT_THAT(error_of([&] { checkpoint.wait(); }).message(), HasSubstr("No space left"));
    checkpoint.wait();
    EXPECT_THAT(error_of([&] { checkpoint.save(path("ckpt"), {.asynchronous = false}); }).message(),
                HasSubstr("No space left"));
    EXPECT_EQ(logged_, "");
    checkpoint.save(path("ckpt"));
  }
  EXPECT_THAT(logged_, AllOf(HasSubstr("was not saved"), HasSubstr("No space left")));
  EXPECT_THAT(this->files(), IsEmpty()) << "nothing half-written is left";
}

}  // namespace
}  // namespace lockstep::train
