// What callbacks do and write.
#include "lockstep/keras/callbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>

#include "data/tfrecord.h"
#include "execute/compile_test.h"
#include "keras/callbacks/number_text.h"
#include "keras/callbacks/progress_bar.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/folder_lock.h"
#include "lockstep/base/terminal.h"
#include "lockstep/data/dataset.h"
#include "lockstep/device/device.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/safetensors.h"
#include "observe/fake_clock.h"

namespace lockstep::keras {
namespace {

// Datasets work ahead in threads, which the thread sanitizer does not support in a forked child.
#if defined(__SANITIZE_THREAD__)
constexpr bool kForkedChildrenHaveThreads = false;
#else
constexpr bool kForkedChildrenHaveThreads = true;
#endif

namespace fs = std::filesystem;
template <class F>
std::string refusal(F&& f) {
  return lockstep::testing::error_of(f).what();
}
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json recorded(const std::string& name) {
  return Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/" + name + ".json");
}

class Callbacks : public ::testing::Test {
 protected:
  Callbacks() : folder_(fs::path(::testing::TempDir()) / ("callbacks_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Callbacks() override { fs::remove_all(folder_); }

  std::string in_folder(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

Model small(double rate = 0.1) {
  const Sequential model({layers::Dense(1, {.kernel_initializer = "zeros", .input_shape = {1}})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = rate}), .loss = "mse"});
  return model;
}

// Drives a callback through epochs whose logs have the next value of a sequence, as fit would; the weights
// are the number of the epoch. Ends where the model is stopped.
struct Driven {
  std::vector<double> learning_rates;
  std::vector<bool> stopped;
  float weights_of_epoch = -1;
  std::string printed;
};
Driven drive(const Callback& callback, const std::string& monitor, const std::vector<double>& sequence,
             int batches = 1, const std::function<void(int)>& after_epoch = {}) {
  Model model = small();
  Driven driven;
  CallbackBase& base = *callback.base();
  base.bind(&model, {static_cast<int>(sequence.size()), batches, 0});
  ::testing::internal::CaptureStdout();
  base.on_train_begin({});
  for (size_t epoch = 0; epoch < sequence.size() && !model.training_stopped(); ++epoch) {
    const int number = static_cast<int>(epoch);
    base.on_epoch_begin(number, {});
    model.set_weights({Tensor::full(DType::float32, {1, 1}, static_cast<double>(epoch)),
                       Tensor::full(DType::float32, {1}, 0.0)});
    Logs logs;
    logs.set(monitor, sequence[epoch]);
    for (int batch = 0; batch < batches; ++batch) base.on_train_batch_end(batch, logs);
    base.add_logs(number, logs);
    base.on_epoch_end(number, logs);
    driven.learning_rates.push_back(model.optimizer().current_learning_rate());
    driven.stopped.push_back(model.training_stopped());
    if (after_epoch) after_epoch(number);
  }
  base.on_train_end({});
  driven.printed = ::testing::internal::GetCapturedStdout();
  driven.weights_of_epoch = model.get_weights()[0].to_vector<float>()[0];
  return driven;
}

std::vector<double> numbers(const Json& json) {
  std::vector<double> values;
  for (const Json& item : json.items()) values.push_back(item.as_double());
  return values;
}

TEST_F(Callbacks, StopAndReduceAsKerasDoes) {
  const Json all = recorded("callbacks");
  for (const Json& trace : all.at("traces").items()) {
    const Json& arguments = trace.at("arguments");
    SCOPED_TRACE(trace.at("class_name").as_string() + arguments.dump());
    const auto number = [&](const char* name, double otherwise) {
      const Json* found = arguments.find(name);
      return found ? found->as_double() : otherwise;
    };
    const auto whole = [&](const char* name, int otherwise) {
      return static_cast<int>(number(name, otherwise));
    };
    const std::string monitor = arguments.at("monitor").as_string();
    const std::string mode = arguments.contains("mode") ? arguments.at("mode").as_string() : "auto";
    const bool stops = trace.at("class_name").as_string() == "EarlyStopping";
    Callback callback;
    if (stops) {
      callbacks::EarlyStoppingOptions options{
          .monitor = monitor,
          .min_delta = number("min_delta", 0),
          .patience = whole("patience", 0),
          .verbose = whole("verbose", 0),
          .mode = mode,
          .restore_best_weights = arguments.contains("restore_best_weights"),
          .start_from_epoch = whole("start_from_epoch", 0)};
      if (arguments.contains("baseline")) options.baseline = number("baseline", 0);
      callback = callbacks::EarlyStopping(options);
    } else {
      callback = callbacks::ReduceLROnPlateau({.monitor = monitor,
                                               .factor = number("factor", 0.1),
                                               .patience = whole("patience", 10),
                                               .verbose = whole("verbose", 0),
                                               .mode = mode,
                                               .min_delta = number("min_delta", 1e-4),
                                               .cooldown = whole("cooldown", 0),
                                               .min_lr = number("min_lr", 0)});
    }
    const Driven driven = drive(callback, monitor, numbers(trace.at("sequence")));
    const Json::List& epochs = trace.at("epochs").items();
    ASSERT_EQ(driven.learning_rates.size(), epochs.size());
    for (size_t i = 0; i < epochs.size(); ++i) {
      EXPECT_EQ(driven.stopped[i], epochs[i].at("stop").as_bool()) << i;
      if (!stops) {
        EXPECT_FLOAT_EQ(static_cast<float>(driven.learning_rates[i]),
                        static_cast<float>(epochs[i].at("learning_rate").as_double()))
            << i;
      }
    }
    EXPECT_EQ(driven.weights_of_epoch, static_cast<float>(trace.at("weights_of_epoch").as_int()));
    EXPECT_EQ(driven.printed, trace.at("printed").as_string());
  }
}

TEST_F(Callbacks, CheckpointsAreNamedAndWrittenAsInKeras) {
  const Json all = recorded("callbacks");
  for (const Json& record : all.at("checkpoints").items()) {
    const Json& arguments = record.at("arguments");
    SCOPED_TRACE(arguments.dump());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    callbacks::ModelCheckpointOptions options{.verbose = 1, .save_weights_only = true};
    bool known = true;
    for (const auto& [name, value] : arguments.members()) {
      if (name == "save_best_only")
        options.save_best_only = value.as_bool();
      else if (name == "save_freq")
        options.save_freq = value.as_int();
      else if (name == "initial_value_threshold")
        options.initial_value_threshold = value.as_double();
      else if (name == "mode")
        options.mode = value.as_string();
      else if (name == "monitor")
        options.monitor = value.as_string();
      else
        known = false;
    }
    ASSERT_TRUE(known) << arguments.dump();
    size_t epoch = 0;
    const Json& files = record.at("files_after_each_epoch");
    const Driven driven = drive(callbacks::ModelCheckpoint(in_folder(record.at("file").as_string()), options),
                                "val_loss", numbers(record.at("sequence")),
                                static_cast<int>(record.at("batches_per_epoch").as_int()), [&](int) {
                                  std::vector<std::string> ours, theirs;
                                  for (const auto& entry : fs::directory_iterator(folder_))
                                    ours.push_back(entry.path().filename());
                                  std::sort(ours.begin(), ours.end());
                                  for (const Json& name : files.at(epoch).items())
                                    theirs.push_back(name.as_string());
                                  EXPECT_EQ(ours, theirs) << "epoch " << epoch;
                                  ++epoch;
                                });
    std::string printed = driven.printed;
    for (size_t at; (at = printed.find(folder_.string() + "/")) != std::string::npos;)
      printed.erase(at, folder_.string().size() + 1);
    EXPECT_EQ(printed, record.at("printed").as_string());
  }
}

TEST_F(Callbacks, ACheckpointMayBeAnArchiveOfKeras) {
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {4, 1}, 1.0);
  model.fit(
      x, x,
      {.epochs = 2, .verbose = 0, .callbacks = {callbacks::ModelCheckpoint(in_folder("m-{epoch}.keras"))}});
  EXPECT_TRUE(fs::exists(in_folder("m-1.keras")));
  const Model read = models::load_model(in_folder("m-2.keras"));
  EXPECT_EQ(read.get_weights()[0].to_vector<float>(), model.get_weights()[0].to_vector<float>());
  EXPECT_EQ(read.optimizer().iterations().value().item<int64_t>(),
            model.optimizer().iterations().value().item<int64_t>());
  read.fit(x, x, {.verbose = 0});  // goes on
  EXPECT_THAT(refusal([&] { callbacks::ModelCheckpoint(in_folder("w.keras"), {.save_weights_only = true}); }),
              HasSubstr(".keras"));
}

TEST_F(Callbacks, ACheckpointIsAModelAndItsWeights) {
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {4, 1}, 1.0);
  model.fit(x, x,
            {.epochs = 2,
             .verbose = 0,
             .callbacks = {callbacks::ModelCheckpoint(in_folder("m-{epoch}.safetensors"))}});
  std::ifstream file(in_folder("m-2.json"));
  const Model read = Model::from_json({std::istreambuf_iterator<char>(file), {}});
  read.load_weights(in_folder("m-2.safetensors"));
  EXPECT_EQ(read.get_weights()[0].to_vector<float>(), model.get_weights()[0].to_vector<float>());
  EXPECT_THAT(refusal([&] {
                model.fit(x, x,
                          {.verbose = 0, .callbacks = {callbacks::ModelCheckpoint(in_folder("{nobody}.w"))}});
              }),
              AllOf(HasSubstr("cannot be filled in"), HasSubstr("there are epoch, batch, loss")));
  EXPECT_THAT(refusal([&] { callbacks::ModelCheckpoint("model.json"); }), HasSubstr("is for the weights"));
  EXPECT_THAT(refusal([&] { callbacks::ModelCheckpoint(""); }), HasSubstr("empty"));
}

TEST_F(Callbacks, TheScheduleOfEpochsIsKeras) {
  const Json all = recorded("callbacks");
  for (const Json& record : all.at("scheduler").items()) {
    const auto halve = [](int epoch, double rate) { return epoch % 2 == 1 ? rate * 0.5 : rate; };
    const std::vector<double> rates = numbers(record.at("learning_rate"));
    const Driven driven =
        drive(callbacks::LearningRateScheduler(halve, static_cast<int>(record.at("verbose").as_int())),
              "loss", std::vector<double>(rates.size(), 1));
    EXPECT_EQ(driven.printed, record.at("printed").as_string());
    for (size_t i = 0; i < rates.size(); ++i)
      EXPECT_FLOAT_EQ(static_cast<float>(driven.learning_rates[i]), static_cast<float>(rates[i]));
  }
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {4, 1}, 1.0);
  const History history = model.fit(
      x, x, {.epochs = 2, .verbose = 0, .callbacks = {callbacks::LearningRateScheduler([](int epoch, double) {
                                          return epoch == 0 ? 0.5 : 0.25;
                                        })}});
  EXPECT_THAT(history["learning_rate"], ElementsAre(0.5, 0.25));
}

// --- progress ----------------------------------------------------------------------------------------------

// What a person sees of each line: no colours, no cursor movements.
std::vector<std::string> lines_seen(const std::string& text) {
  std::string plain = std::regex_replace(text, std::regex("\x1b\\[[0-9]*[mK]|\b"), "");
  std::vector<std::string> lines;
  static const std::regex separator("[\\r\\n]");
  for (auto at = std::sregex_token_iterator(plain.begin(), plain.end(), separator, -1);
       at != std::sregex_token_iterator(); ++at) {
    std::string line = at->str();
    while (line.ends_with(' ')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

TEST(ProgressBar, ShowsWhatKerasShows) {
  const Json all = recorded("progress");
  for (const Json& record : all.at("bars").items()) {
    const Json& arguments = record.at("arguments");
    // Figures come as running means here; these records average them.
    const bool averages = !arguments.contains("stateful_metrics") && !arguments.contains("verbose");
    if (arguments.contains("unit_name")) continue;
    // A millisecond that Python's subtraction makes a little shorter.
    if (record.at("clock_step").as_double() == 0.001) continue;
    SCOPED_TRACE(record.at("printed").as_string());
    observe::FakeClock clock;
    const auto pass = [&] { clock.sleep(static_cast<int64_t>(record.at("clock_step").as_double() * 1e9)); };
    ProgressBar bar(
        {.target = record.at("target").is_null() ? -1 : record.at("target").as_int(),
         .verbose = arguments.contains("verbose") ? static_cast<int>(arguments.at("verbose").as_int()) : 1,
         .terminal = true,
         .colours = true,
         .clock = &clock});
    std::string text;
    const Json::List& updates = record.at("updates").items();
    const bool unknown = record.at("target").is_null();
    for (size_t i = 0; i < updates.size(); ++i) {
      pass();
      Logs logs;
      for (const Json& value : updates[i].at(1).items())
        logs.set(value.at(size_t{0}).as_string(), value.at(1).as_double());
      const bool due = bar.due(updates[i].at(size_t{0}).as_int());
      const bool last = i + 1 == updates.size() && !unknown;
      if (last)
        text += bar.final_text(logs);
      else if (due)
        text += bar.text(logs);
    }
    std::vector<std::string> ours = lines_seen(text), theirs = lines_seen(record.at("printed").as_string());
    if (averages) {
      const std::regex figure("(loss: )[0-9.e+-]+");
      for (std::string& line : ours) line = std::regex_replace(line, figure, "$1");
      for (std::string& line : theirs) line = std::regex_replace(line, figure, "$1");
    }
    EXPECT_EQ(ours, theirs);
  }
}

TEST(ProgressBar, IsOneLineWhereThereIsNoTerminal) {
  observe::FakeClock clock;
  ProgressBar bar({.target = 2, .clock = &clock});
  clock.sleep(3'000'000'000);
  EXPECT_FALSE(bar.due(1));
  clock.sleep(20'000'000);
  EXPECT_FALSE(bar.due(2));
  Logs logs;
  logs.set("loss", 0.5);
  EXPECT_EQ(bar.final_text(logs), "2/2 ━━━━━━━━━━━━━━━━━━━━ 3s 20ms/step - loss: 0.5000\n")
      << "the first step, which compiles, is not part of the mean";
}

TEST(ProgressBar, IsNeverWiderThanTheTerminal) {
  observe::FakeClock clock;
  Logs logs;
  for (const char* name : {"accuracy", "loss", "mean_absolute_error", "val_accuracy", "val_loss"})
    logs.set(name, 0.5);
  for (const int columns : {20, 40, 79, 120}) {
    ProgressBar bar({.target = 100, .terminal = true, .colours = true, .columns = columns, .clock = &clock});
    clock.sleep(100'000'000);
    ASSERT_TRUE(bar.due(50));
    const std::string moving = bar.text(logs);
    EXPECT_LE(terminal::width(moving), std::max(columns, 25)) << moving;
    EXPECT_EQ(moving.find('\n'), std::string::npos);
    std::istringstream lines(bar.final_text(logs));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(terminal::width(line), columns) << line;
  }
}

TEST(ProgressBar, WithoutColoursTheRestLooksDifferent) {
  observe::FakeClock clock;
  ProgressBar bar({.target = 2, .terminal = true, .clock = &clock});
  bar.due(1);
  EXPECT_THAT(bar.text({}), HasSubstr("━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌"));
  EXPECT_EQ(bar.text({}).find("\x1b[3"), std::string::npos);
}

TEST(ProgressBar, IsToldOfSeveralStepsAtOnce) {
  observe::FakeClock clock;
  ProgressBar bar({.target = 200, .clock = &clock});
  clock.sleep(3'000'000'000);
  bar.due(64);
  clock.sleep(64'000'000);
  bar.due(128);
  clock.sleep(72'000'000);
  bar.due(200);
  EXPECT_EQ(bar.final_text({}), "200/200 ━━━━━━━━━━━━━━━━━━━━ 3s 1ms/step\n")
      << "the first steps, of which one compiles, are not part of the mean";
}

TEST(NumberText, IsPythons) {
  EXPECT_EQ(number_text(1), "1.0");
  EXPECT_EQ(number_text(-3), "-3.0");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1e-5), "1e-05");
  EXPECT_EQ(number_text(1e22), "1e+22");
  EXPECT_EQ(number_text(0.1F), "0.10000000149011612");
  EXPECT_EQ(number_text(-std::nan("")), "nan");
}

// --- files -------------------------------------------------------------------------------------------------

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Callbacks, CSVLoggerAppends) {
  const auto log = [&](bool append) {
    drive(callbacks::CSVLogger(in_folder("log.csv"), {.separator = ";", .append = append}), "loss", {0.5, 1});
  };
  log(true);
  const std::string once = "epoch;loss;val_loss\r\n0;0.5;NA\r\n1;1.0;NA\r\n";
  EXPECT_EQ(read(in_folder("log.csv")), once);
  log(true);
  EXPECT_EQ(read(in_folder("log.csv")), once + "0;0.5;NA\r\n1;1.0;NA\r\n") << "one header";
  log(false);
  EXPECT_EQ(read(in_folder("log.csv")), once);
  EXPECT_THAT(refusal([] { callbacks::CSVLogger("/proc/nowhere/log.csv").base()->on_train_begin({}); }),
              HasSubstr("/proc/nowhere"));
}

TEST_F(Callbacks, TensorBoardWritesEventsOfBothRuns) {
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {4, 1}, 1.0);
  model.fit(
      x, x,
      {.batch_size = 2,
       .epochs = 2,
       .verbose = 0,
       .callbacks = {callbacks::TensorBoard(in_folder("logs"), {.histogram_freq = 1, .update_freq = 1})},
       .validation_data = Data(x, x)});
  const auto events = [&](const char* run) {
    std::string all;
    for (const auto& entry : fs::directory_iterator(folder_ / "logs" / run)) {
      data::RecordReader reader(entry.path().string());
      while (auto event = reader.next()) all += *event;
    }
    return all;
  };
  EXPECT_THAT(events("train"),
              AllOf(HasSubstr("epoch_loss"), HasSubstr("batch_loss"), HasSubstr("/histogram"),
                    HasSubstr("epoch_learning_rate"), HasSubstr("memory_mib/CPU:0"), HasSubstr("dense")));
  EXPECT_THAT(events("validation"), AllOf(HasSubstr("epoch_loss"), ::testing::Not(HasSubstr("val_loss"))));
}

TEST_F(Callbacks, TerminateOnNaNStops) {
  const Model model = small(1e30);
  const Tensor x = Tensor::full(DType::float32, {40, 1}, 1e20);
  ::testing::internal::CaptureStdout();
  const History history = model.fit(
      x, x, {.batch_size = 4, .epochs = 5, .verbose = 0, .callbacks = {callbacks::TerminateOnNaN()}});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("Invalid loss, terminating training\n"));
  EXPECT_EQ(history.epoch.size(), 1U);
}

TEST_F(Callbacks, SayWhatTheyCannotWatch) {
  EXPECT_THAT(refusal([] { callbacks::EarlyStopping({.monitor = "figure"}); }),
              HasSubstr("not known whether \"figure\" should fall or rise"));
  EXPECT_THAT(refusal([] { callbacks::EarlyStopping({.mode = "down"}); }), HasSubstr("received \"down\""));
  EXPECT_THAT(refusal([] { callbacks::ReduceLROnPlateau({.factor = 1}); }), HasSubstr("below 1"));
}

// --- backup ------------------------------------------------------------------------------------------------

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;
};

// A run with everything that has a state: shuffling, dropout, Adam, moving statistics.
Outcome train(const std::string& backup, bool dataset, int64_t save_freq, int64_t steps_per_epoch,
              int kill_epoch = -1, int64_t kill_batch = -1) {
  set_random_seed(11);
  const Sequential model({layers::Dense(8, {.activation = "relu", .name = "a"}), layers::Dropout(0.3),
                          layers::BatchNormalization({.name = "b"}), layers::Dense(1, {.name = "c"})},
                         {.name = "backed_up"});
  model.compile({.optimizer = "adam", .loss = "mse"});
  std::vector<float> values;
  for (int i = 0; i < 44; ++i) values.push_back(static_cast<float>((i * 37) % 23) / 23);
  int epoch_now = 0;
  std::vector<Callback> list;
  if (!backup.empty())
    list.push_back(callbacks::BackupAndRestore(backup, {.save_freq = save_freq, .delete_checkpoint = true}));
  list.push_back(
      callbacks::LambdaCallback({.on_epoch_begin = [&](int epoch, const Logs&) { epoch_now = epoch; },
                                 .on_train_batch_end =
                                     [&](int64_t batch, const Logs&) {
                                       if (epoch_now == kill_epoch && batch == kill_batch)
                                         kill(getpid(), SIGKILL);
                                     }}));
  const Tensor x = Tensor::from(values, {22, 2}), y = Tensor::from(std::vector<float>(22, 0.5F), {22, 1});
  const History history = model.fit(
      dataset ? Data(data::Dataset::from_tensor_slices({x, y}).shuffle(10).batch(4).prefetch()) : Data(x, y),
      {.batch_size = 4, .epochs = 4, .verbose = 0, .callbacks = list, .steps_per_epoch = steps_per_epoch});
  Outcome run{{}, history["loss"]};
  for (const Tensor& weight : model.get_weights())
    for (const float value : weight.to_vector<float>()) run.weights.push_back(value);
  return run;
}

// They fork, and a child would wait for threads that its parent has and it does not: of other cases, and of
// OpenMP's teams.
class CallbacksOwnProcess : public Callbacks {
 protected:
  CallbacksOwnProcess() { set_logical_cpus({.count = 1, .threads = 1}); }
};

TEST_F(CallbacksOwnProcess, ARunThatWasKilledGoesOnWithTheSameBits) {
  struct Case {
    bool dataset;
    int64_t save_freq, steps_per_epoch;
    int kill_epoch;
    int64_t kill_batch;
  };
  // With steps_per_epoch the epochs of 4 steps go through 6 batches: 4, 2, 4, 2.
  std::vector<Case> cases;
  for (const bool dataset : kForkedChildrenHaveThreads ? std::vector{false, true} : std::vector{false})
    for (Case c : {Case{false, 0, -1, 2, 3}, Case{false, 2, -1, 1, 3}, Case{false, 6, -1, 2, 0},
                   Case{false, 1, -1, 0, 2}, Case{false, 0, 4, 2, 1}, Case{false, 3, 4, 2, 3},
                   Case{false, 1, 4, 1, 1}}) {
      c.dataset = dataset;
      cases.push_back(c);
    }
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.dataset << " " << c.save_freq << " " << c.steps_per_epoch << " "
                                      << c.kill_epoch << " " << c.kill_batch);
    const Outcome whole = train("", c.dataset, 0, c.steps_per_epoch);
    const std::string backup = in_folder("backup");
    const pid_t child = fork();
    if (child == 0) {
      train(backup, c.dataset, c.save_freq, c.steps_per_epoch, c.kill_epoch, c.kill_batch);
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ASSERT_TRUE(fs::exists(backup + "/backup.safetensors"));
    const Outcome resumed = train(backup, c.dataset, c.save_freq, c.steps_per_epoch);
    EXPECT_EQ(resumed.weights, whole.weights);
    EXPECT_EQ(resumed.losses, whole.losses) << "the history is of all of it";
    EXPECT_FALSE(fs::exists(backup + "/backup.safetensors")) << "a run that ended needs no backup";
  }
}

class BreaksOff final : public CallbackBase {
 public:
  explicit BreaksOff(int validation) : left_(validation) {}
  void on_test_begin(const Logs&) override {
    require(--left_ != 0, ErrorCode::io, std::source_location::current(), "broken off");
  }

 private:
  int left_;
};

// Broken off in the validation, it goes on behind the last step of the epoch: that one's metrics are in the
// history, and the order of the next epochs is as it would have been.
TEST_F(Callbacks, ARunThatGoesOnInItsValidationKeepsTheMetricsOfTheEpoch) {
  for (const bool known : {true, false}) {
    SCOPED_TRACE(known);
    const auto run = [&](const std::string& backup, int break_off) {
      set_random_seed(11);
      const Sequential model({layers::Dense(4, {.activation = "relu", .name = "a", .input_shape = {2}}),
                              layers::Dropout(0.3), layers::Dense(1, {.name = "c"})},
                             {.name = "validated"});
      model.compile({.optimizer = "adam", .loss = "mse", .metrics = {"mae"}});
      std::vector<float> values;
      for (int i = 0; i < 44; ++i) values.push_back(static_cast<float>((i * 37) % 23) / 23);
      const Tensor x = Tensor::from(values, {22, 2}), y = Tensor::from(std::vector<float>(22, 0.5F), {22, 1});
      data::Dataset dataset = data::Dataset::from_tensor_slices({x, y}).shuffle(22, {.seed = 5}).batch(4);
      if (!known) dataset = dataset.filter([](const data::Element&) { return true; });
      std::vector<Callback> list{make_callback<BreaksOff>(break_off)};
      if (!backup.empty()) list.push_back(callbacks::BackupAndRestore(backup, {.save_freq = 3}));
      return model.fit(dataset, {.epochs = 4, .verbose = 0, .callbacks = list, .validation_data = {x, y}})
          .history;
    };
    const auto whole = run("", -1);
    const std::string backup = in_folder(known ? "known" : "unknown");
    EXPECT_THROW(run(backup, 2), Error);
    EXPECT_EQ(run(backup, -1), whole);
  }
}

// Data that counts its passes: a run that goes on in the middle of an epoch opens it once, and its metrics
// are those of the whole epoch, whether steps are compiled or run op by op.
TEST_F(Callbacks, ARunThatGoesOnReadsItsDataOnceAndKeepsItsMetrics) {
  for (const bool eagerly : {false, true}) {
    SCOPED_TRACE(eagerly);
    int passes = 0;
    const auto data = data::Dataset::from_generator([&passes]() -> data::Dataset::Generator {
                        ++passes;
                        return [at = 0]() mutable -> std::optional<data::Element> {
                          if (at == 24) return {};
                          const auto i = static_cast<float>(at++);
                          return data::Element(Tensor::from<float>({i / 24, 1}, {2}),
                                               Tensor::from<float>({i > 11 ? 1.0F : 0.0F}, {1}));
                        };
                      }).batch(4);
    const auto run = [&](const std::string& backup, int64_t stop_after) {
      set_random_seed(3);
      const Sequential model({Input({2}), layers::Dense(1, {.activation = "sigmoid", .name = "a"})},
                             {.name = "resumed"});
      model.compile({.optimizer = "sgd",
                     .loss = "binary_crossentropy",
                     .metrics = {"mae", metrics::AUC()},
                     .run_eagerly = eagerly});
      std::vector<Callback> list;
      if (!backup.empty()) list.push_back(callbacks::BackupAndRestore(backup, {.save_freq = 1}));
      list.push_back(callbacks::LambdaCallback({.on_train_batch_begin = [&](int64_t batch, const Logs&) {
        if (batch == stop_after) throw std::runtime_error("stopped");
      }}));
      passes = 0;
      const History history = model.fit(data, {.verbose = 0, .callbacks = list, .steps_per_epoch = 6});
      return std::vector{history["loss"][0], history["mae"][0], history["auc"][0]};
    };
    const std::vector<double> whole = run("", -1);
    const int passes_of_one_run = passes;
    const std::string backup = in_folder(eagerly ? "eager" : "compiled");
    EXPECT_THROW(run(backup, 3), std::exception);
    EXPECT_EQ(run(backup, -1), whole);
    EXPECT_EQ(passes, passes_of_one_run);
  }
}

TEST_F(Callbacks, ABackupOfAnotherModelIsRefused) {
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {4, 1}, 1.0);
  fs::create_directories(in_folder("b"));
  train::save_safetensors(in_folder("b/backup.safetensors"), {{"other", Tensor::scalar(1.0F)}});
  EXPECT_THAT(refusal([&] {
                model.fit(x, x, {.verbose = 0, .callbacks = {callbacks::BackupAndRestore(in_folder("b"))}});
              }),
              HasSubstr("does not fit this model"));
}

// A run in which every callback that has a state changes what comes after: the rate falls, weights are kept,
// lines and files are written, and it ends before its time.
struct Watched {
  std::vector<float> weights;
  Json history;
  std::string csv;
  std::vector<double> seen;  // by a callback of the user's own

  bool operator==(const Watched&) const = default;
};

class Worst final : public CallbackBase {
 public:
  explicit Worst(std::vector<double>& seen) : seen_(seen) {}
  void on_train_begin(const Logs&) override { worst_ = 0; }
  void on_epoch_end(int, const Logs& logs) override {
    worst_ = std::max(worst_, *logs.find("loss"));
    seen_.push_back(worst_);
  }
  std::string state_name() const override { return "Worst"; }
  void visit_state(CallbackState& state) override { state("worst", worst_); }

 private:
  std::vector<double>& seen_;
  double worst_ = 0;
};

Watched watched_run(const fs::path& folder, bool first, int64_t save_freq, int kill_epoch) {
  set_random_seed(5);
  const Sequential model(
      {layers::Dense(6, {.activation = "relu", .name = "a"}), layers::Dense(1, {.name = "b"})},
      {.name = "watched"});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.3}), .loss = "mse", .metrics = {"mae"}});
  std::vector<float> values;
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<float>((i * 37) % 23) / 23);
  const Tensor x = Tensor::from(values, {20, 2});
  const Tensor y = Tensor::from(std::vector<float>(values.begin(), values.begin() + 20), {20, 1});
  Watched run;
  // Before and behind the backup: the order makes no difference.
  std::vector<Callback> list{
      callbacks::EarlyStopping({.monitor = "loss", .patience = 3, .restore_best_weights = true}),
      callbacks::CSVLogger((folder / "log.csv").string()),
      // It multiplies the rate before: in an epoch that is resumed it must not be applied again.
      callbacks::LearningRateScheduler([](int, double rate) { return 0.97 * rate; }),
      callbacks::BackupAndRestore((folder / "backup").string(), {.save_freq = save_freq}),
      callbacks::ReduceLROnPlateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.01}),
      callbacks::ModelCheckpoint((folder / "best.safetensors").string(),
                                 {.monitor = "loss", .save_best_only = true, .save_weights_only = true}),
      make_callback<Worst>(run.seen)};
  int epoch_now = 0;
  list.push_back(
      callbacks::LambdaCallback({.on_epoch_begin = [&](int epoch, const Logs&) { epoch_now = epoch; },
                                 .on_train_batch_end =
                                     [&](int64_t batch, const Logs&) {
                                       if (first && epoch_now == kill_epoch && batch == 3)
                                         kill(getpid(), SIGKILL);
                                     }}));
  const History history = model.fit(x, y, {.batch_size = 4, .epochs = 12, .verbose = 0, .callbacks = list});
  for (const Tensor& weight : model.get_weights())
    for (const float value : weight.to_vector<float>()) run.weights.push_back(value);
  run.history = history.to_json();
  run.csv = read_file((folder / "log.csv").string());
  return run;
}

TEST_F(CallbacksOwnProcess, AKilledRunsCallbacksGoOnWhereTheyStood) {
  const Watched whole = watched_run(folder_ / "whole", false, 0, -1);
  ASSERT_NE(whole.history.at("learning_rate").at(size_t{0}), whole.history.at("learning_rate").at(4))
      << "nothing to be forgotten happens";
  for (const int64_t save_freq : {0, 2})
    for (const int kill_epoch : {1, 4, 6}) {
      SCOPED_TRACE(::testing::Message() << save_freq << " " << kill_epoch);
      const fs::path killed = folder_ / ("killed_" + std::to_string(save_freq) + std::to_string(kill_epoch));
      const pid_t child = fork();
      if (child == 0) {
        watched_run(killed, true, save_freq, kill_epoch);
        _exit(1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      const Watched resumed = watched_run(killed, false, save_freq, -1);
      EXPECT_EQ(resumed.weights, whole.weights);
      EXPECT_EQ(resumed.history, whole.history);
      EXPECT_EQ(resumed.csv, whole.csv);
      EXPECT_EQ(resumed.seen.back(), whole.seen.back());
      EXPECT_EQ(read_file((killed / "best.safetensors").string()),
                read_file((folder_ / "whole/best.safetensors").string()));
    }
}

TEST_F(Callbacks, ABackupOfAnotherRunIsRefusedByName) {
  const Tensor x = Tensor::full(DType::float32, {8, 1}, 1.0), y = x;
  const std::string backup = in_folder("b");
  const auto fit = [&](const Data& data, FitOptions options, std::vector<Callback> others = {}) {
    const Sequential model(
        {layers::Dense(1, {.kernel_initializer = "zeros", .name = "a", .input_shape = {1}})}, {.name = "m"});
    model.compile({.optimizer = "sgd", .loss = "mse"});
    options.verbose = 0;
    options.callbacks = {callbacks::BackupAndRestore(backup, {.delete_checkpoint = false})};
    options.callbacks.insert(options.callbacks.end(), others.begin(), others.end());
    model.fit(data, options);
  };
  fit(Data(x, y), {.batch_size = 4, .epochs = 1});
  EXPECT_THAT(refusal([&] { fit(Data(x, y), {.batch_size = 2, .epochs = 2}); }),
              HasSubstr("it is of a run with batch_size = 4, this one has 2"));
  const Tensor more = Tensor::full(DType::float32, {9, 1}, 1.0);
  EXPECT_THAT(refusal([&] { fit(Data(more, more), {.batch_size = 4, .epochs = 2}); }),
              HasSubstr("it is of a run with examples = 8, this one has 9"));
  const data::Dataset dataset = data::Dataset::from_tensor_slices({x, y}).batch(4);
  EXPECT_THAT(refusal([&] { fit(Data(dataset), {.epochs = 2}); }),
              AllOf(HasSubstr("arrays: float32(1,)"), HasSubstr("this one has a dataset")));
  EXPECT_THAT(refusal([&] {
                fit(Data(x, y), {.batch_size = 4, .epochs = 2},
                    {callbacks::EarlyStopping({.monitor = "loss"})});
              }),
              HasSubstr("had no callback EarlyStopping"));
  fit(Data(x, y), {.batch_size = 4, .epochs = 2});
  // A run that is to make fewer epochs would be given the weights of more.
  EXPECT_THAT(refusal([&] { fit(Data(x, y), {.batch_size = 4, .epochs = 1}); }),
              HasSubstr("has come to epoch 2, this one is to end after epoch 1; ask for as many epochs"));
  fit(Data(x, y), {.batch_size = 4, .epochs = 2});
}

TEST_F(Callbacks, ABackupFolderOfAnotherProcessIsRefused) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(in_folder("b"));
    if (::write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const Tensor x = Tensor::full(DType::float32, {4, 1}, 1.0);
  const Model model = small();
  EXPECT_THAT(refusal([&] {
                model.fit(x, x, {.verbose = 0, .callbacks = {callbacks::BackupAndRestore(in_folder("b"))}});
              }),
              HasSubstr("is being written by process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(Callbacks, SigtermEndsARunAsCtrlCDoes) {
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {8, 1}, 1.0);
  const History history = model.fit(x, x,
                                    {.batch_size = 4,
                                     .epochs = 100,
                                     .verbose = 0,
                                     .callbacks = {callbacks::LambdaCallback(
                                         {.on_epoch_end = [](int, const Logs&) { std::raise(SIGTERM); }})}});
  EXPECT_TRUE(history.interrupted);
  EXPECT_EQ(history.signal, SIGTERM);
  EXPECT_EQ(history.epoch.size(), 1u);
}

TEST_F(Callbacks, ABackupOfAnInterruptedEpochIsOfTheLastWholeOne) {
  std::signal(SIGINT, SIG_DFL);  // what a shell runs in the background ignores it
  const Model model = small();
  const Tensor x = Tensor::full(DType::float32, {8, 1}, 1.0);
  std::vector<float> after_first;
  int epoch_now = 0;
  const auto press = [&](int64_t, const Logs&) {
    if (epoch_now == 1) std::raise(SIGINT);
  };
  const auto begin = [&](int epoch, const Logs&) {
    epoch_now = epoch;
    if (epoch == 1) after_first = model.get_weights()[0].to_vector<float>();
  };
  const Callback backup = callbacks::BackupAndRestore(in_folder("b"));
  model.fit(x, x,
            {.batch_size = 4,
             .epochs = 3,
             .verbose = 0,
             .callbacks = {
                 backup, callbacks::LambdaCallback({.on_epoch_begin = begin, .on_train_batch_end = press})}});
  const train::SafetensorsFile file(in_folder("b/backup.safetensors"));
  EXPECT_EQ(file.read("epoch").item<int64_t>(), 1);
  bool found = false;
  for (const auto& entry : file.entries())
    if (entry.name.starts_with("model/") && entry.name.ends_with("/kernel")) {
      EXPECT_EQ(file.read(entry.name).to_vector<float>(), after_first);
      found = true;
    }
  EXPECT_TRUE(found);
}

// A scheduler takes the machine away: the run goes on elsewhere from that step.
TEST_F(Callbacks, SigtermSavesTheStepAtWhichItEndsARun) {
  const Tensor x = Tensor::full(DType::float32, {20, 1}, 1.0);
  const auto train = [&](const std::string& folder, int64_t press_after) {
    set_random_seed(3);
    const Model model = small();
    int64_t batches = 0;
    const auto press = [&](int64_t, const Logs&) {
      if (++batches == press_after) std::raise(SIGTERM);
    };
    const History history =
        model.fit(x, x,
                  {.batch_size = 4,
                   .epochs = 3,
                   .verbose = 0,
                   .callbacks = {callbacks::BackupAndRestore(in_folder(folder), {.delete_checkpoint = false}),
                                 callbacks::LambdaCallback({.on_train_batch_end = press})}});
    return std::pair(model.get_weights()[0].to_vector<float>(), history.history);
  };
  const auto whole = train("whole", -1);
  train("broken", 8);
  const train::SafetensorsFile file(in_folder("broken/backup.safetensors"));
  EXPECT_EQ(file.read("epoch").item<int64_t>(), 1);
  EXPECT_EQ(file.read("batch").item<int64_t>(), 3);
  const auto resumed = train("broken", -1);
  EXPECT_EQ(resumed.first, whole.first);
  EXPECT_EQ(resumed.second, whole.second);
}

}  // namespace
}  // namespace lockstep::keras
