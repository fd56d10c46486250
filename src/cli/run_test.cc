#include "cli/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "cli/run_data.h"
#include "lockstep/base/log.h"
#include "lockstep/data/image.h"
#include "lockstep/keras/applications.h"
#include "lockstep/keras/callbacks.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/run_record.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A folder of its own, removed at the end.
class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("run_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    out_ = std::fopen((folder_ / "out.txt").c_str(), "w");
  }
  void TearDown() override {
    std::fclose(out_);
    std::filesystem::remove_all(folder_);
  }

  RunFile parsed(const std::string& text) const { return parse_run(Json::parse(text), folder_.string()); }
  Json carried_out(const std::string& text, RunReports reports = {}) const {
    reports.out = out_;
    RunFile run = parsed(text);
    run.fit.verbose = 0;
    return carry_out(run, {}, reports);
  }
  std::string mistake(const std::string& text) const {
    try {
      carried_out(text);
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }

  std::filesystem::path folder_;
  std::FILE* out_ = nullptr;
};

constexpr const char* kDigits = R"("data": {"name": "digits", "train_size": 600, "test_size": 100})";

// --- training ----------------------------------------------------------------------------------------------

TEST_F(RunTest, ApplicationOnDigits) {
  const Json result = carried_out(std::string(R"({"model": "mlp", "fit": {"epochs": 4}, )") + kDigits + "}");
  EXPECT_GT(result.at("accuracy").as_double(), 0.5);
  EXPECT_EQ(result.at("epochs").as_int(), 4);
  EXPECT_EQ(result.at("parameters").as_int(), 101770);
  EXPECT_GT(result.at("examples_per_s").as_double(), 0);
  EXPECT_FALSE(result.at("devices").items().empty());
  EXPECT_TRUE(result.contains("step_clock"));
}

TEST_F(RunTest, WritesItsFilesAndStartsFromThem) {
  const std::string model = R"({"zoo": "mlp", "hidden": [16]})";
  const Json first =
      carried_out(R"({"model": )" + model + R"(, "output": "done", "fit": {"epochs": 2}, )" + kDigits + "}");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done/weights.safetensors"));
  const Json history = Json::read_file((folder_ / "done/history.json").string());
  EXPECT_EQ(history.at("loss").items().size(), 2u);
  EXPECT_EQ(history.at("val_accuracy").items().size(), 2u);
  // The model's JSON says how it was trained, so that the file needs no "compile".
  const Json again = carried_out(
      std::string(
          R"({"model": "done/model.json", "initial_weights": "done/weights.safetensors", "fit": {"epochs": 0}, )") +
      kDigits + "}");
  EXPECT_EQ(again.at("loss"), first.at("loss"));
  EXPECT_EQ(again.at("accuracy"), first.at("accuracy"));
}

TEST_F(RunTest, PrintsTheReportOnItsRunWhereProgressGoes) {
  ::testing::internal::CaptureStdout();
  carried_out(std::string(R"({"model": "mlp", "fit": {"epochs": 1, "batch_size": 100}, )") + kDigits + "}");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  std::fflush(out_);
  EXPECT_THAT(read_text(folder_ / "out.txt"), HasSubstr("6 steps on 1 replica: mean"));
}

TEST_F(RunTest, TheSameSeedGivesTheSameRun) {
  const auto loss = [&](const std::string& seed) {
    return carried_out(R"({"model": {"zoo": "mlp", "hidden": [8], "dropout": 0.2}, "seed": )" + seed + ", " +
                       kDigits + "}")
        .at("loss")
        .as_double();
  };
  EXPECT_EQ(loss("3"), loss("3"));
  EXPECT_NE(loss("3"), loss("4"));
}

TEST_F(RunTest, ABackupOfAnotherRunIsRefused) {
  const auto write = [&](const char* name, const char* first) {
    std::ofstream(folder_ / name) << "a,b,y\n" << first << "\n3,4,0\n5,6,1\n7,8,0\n";
  };
  write("table.csv", "1,2,1");
  write("held.csv", "1,2,1");
  Json model = Json::parse(keras::Sequential({keras::layers::Dense(1, {.input_shape = {2}})}).to_json());
  const auto write_model = [&] { std::ofstream(folder_ / "net.json") << model.dump(); };
  write_model();
  // What cannot be written leaves the backup.
  std::filesystem::create_directories(folder_ / "full/weights.safetensors");
  const auto run = [&](const std::string& epochs, const std::string& fit, const std::string& compile,
                       const std::string& more) {
    return R"({"model": "net.json", "data": {"csv": "table.csv", "validation": {"csv": "held.csv"}}, "backup": "b",
        "fit": {"epochs": )" +
           epochs + fit + R"(}, "compile": {"loss": "mse", "optimizer": )" + compile + "}" + more + "}";
  };
  const std::string full = R"(, "output": "full")";
  EXPECT_THAT(mistake(run("2", "", "\"sgd\"", full)), HasSubstr("weights.safetensors"));
  ASSERT_TRUE(std::filesystem::exists(folder_ / "b/backup.safetensors"));

  EXPECT_THAT(mistake(run("3", "", "\"sgd\"", R"(, "seed": 4)")),
              HasSubstr("it is of a run with seed 0, this one has 4; to go on with it, set that back"));
  EXPECT_THAT(mistake(run("3", "", "{\"class_name\": \"SGD\", \"config\": {\"learning_rate\": 0.5}}", "")),
              HasSubstr("it is of a run with compile {"));
  EXPECT_THAT(mistake(run("3", R"(, "validation_freq": 2)", "\"sgd\"", "")),
              HasSubstr(R"(it is of a run with fit {}, this one has {"validation_freq")"));
  EXPECT_THAT(mistake(run("3", "", "\"sgd\"", R"(, "initial_weights": "full/none.safetensors")")),
              HasSubstr("none.safetensors"));
  write("table.csv", "1,2,0");
  EXPECT_THAT(mistake(run("3", "", "\"sgd\"", "")),
              HasSubstr("it is of a run with training examples 4 of checksum"));
  write("table.csv", "1,2,1");
  write("held.csv", "1,2.5,1");
  EXPECT_THAT(mistake(run("3", "", "\"sgd\"", "")),
              HasSubstr("it is of a run with validation examples 4 of"));
  write("held.csv", "1,2,1");
  model.set("note", "another file");
  write_model();
  EXPECT_THAT(mistake(run("3", "", "\"sgd\"", "")), HasSubstr("it is of a run with model of checksum"));
  model.erase("note");
  write_model();
  EXPECT_THAT(mistake(run("1", "", "\"sgd\"", "")),
              HasSubstr("has come to epoch 2, this one is to end after epoch 1"));
  // More epochs, other words on the way and another place for the results are no other run.
  EXPECT_EQ(mistake(run("3", R"(, "verbose": 0)", "\"sgd\"", R"(, "output": "out")")), "no error");
  EXPECT_EQ(Json::read_file((folder_ / "out/history.json").string()).at("loss").items().size(), 3u);
}

// As versions before wrote it: the run goes on, for nothing says that it is another one.
TEST_F(RunTest, ABackupWithoutTheSettingsOfItsRunIsTakenWithAWarning) {
  const auto run = [&](const char* epochs) {
    return std::string(R"({"model": "mlp", "backup": "b", "output": "out", "fit": {"epochs": )") + epochs +
           "}, " + kDigits + "}";
  };
  const RunFile first = parsed(run("1"));
  const keras::Model model = make_model(first);
  model.compile({.optimizer = "adam",
                 .loss = keras::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(data_of(load_data(first, model).train),
            {.batch_size = first.fit.batch_size,
             .epochs = 1,
             .verbose = 0,
             .callbacks = {keras::callbacks::RunRecord((folder_ / "out").string()),
                           keras::callbacks::BackupAndRestore((folder_ / "b").string(),
                                                              {.delete_checkpoint = false})}});
  std::vector<std::string> warnings;
  const LogSink before =
      set_log_sink([&](const LogMessage& message) { warnings.emplace_back(message.text); });
  EXPECT_EQ(mistake(run("3")), "no error");
  set_log_sink(before);
  EXPECT_THAT(warnings,
              testing::Contains(HasSubstr("whether they are the same as in this run is not checked")));
  EXPECT_EQ(Json::read_file((folder_ / "out/history.json").string()).at("loss").items().size(), 3u);
}

// The numbers are those of CRC-32C, as any build finds them: a backup must outlive an upgrade.
TEST_F(RunTest, ABackupKnowsItsExamplesByAChecksumThatEveryBuildFinds) {
  std::ofstream(folder_ / "table.csv") << "a,y\n1,0\n2,1\n";
  std::filesystem::create_directories(folder_ / "full/weights.safetensors");
  EXPECT_THAT(mistake(R"({"model": {"zoo": "mlp", "input_shape": [1], "classes": 2}, "backup": "b",
                          "data": {"csv": "table.csv"}, "fit": {"epochs": 1}, "output": "full"})"),
              HasSubstr("weights.safetensors"));
  const train::SafetensorsFile backup((folder_ / "b/backup.safetensors").string());
  std::string found;
  for (const auto& entry : backup.entries()) {
    if (entry.name.find("training examples") == std::string::npos) continue;
    const std::vector<uint8_t> bytes = backup.read(entry.name).to_vector<uint8_t>();
    found.assign(bytes.begin(), bytes.end());
  }
  EXPECT_EQ(found, "2 of checksum 88643066");
}

// Who trains a run file has no line of a program to look at.
TEST_F(RunTest, ErrorsNameNoLinesOfTheTool) {
  try {
    carried_out(std::string(R"({"model": "mlp", "compile": {"loss": "sparse_categorical_crossentropy",
        "optimizer": {"class_name": "SGD", "config": {"learning_rate": 1e30}}}, "fit": {"epochs": 2}, )") +
                kDigits + "}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("use a smaller learning rate"));
    EXPECT_THAT(error.notes(), testing::Each(testing::Not(HasSubstr("run.cc"))));
  }
}

TEST_F(RunTest, StepLogHoldsEveryStepsOwnLoss) {
  const std::string log = (folder_ / "steps.csv").string();
  const std::string run = std::string(R"({"model": {"zoo": "mlp", "hidden": [8]}, "output": "done",
      "compile": {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.0}},
                  "loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}}},
      "fit": {"epochs": 2, "batch_size": 200, "shuffle": false}, )") +
                          kDigits + "}";
  carried_out(run, {.step_log = log});
  std::istringstream lines(read_text(log));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "step,epoch,loss");
  std::vector<double> losses;
  for (int step = 1; std::getline(lines, line); ++step) {
    EXPECT_EQ(line.find(std::to_string(step) + "," + std::to_string((step - 1) / 3 + 1) + ","), 0u) << line;
    losses.push_back(std::stod(line.substr(line.rfind(',') + 1)));
  }
  // Nothing is learnt at rate 0: the epochs are alike, their batches are not, and the mean is the epoch's
  // loss.
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_EQ(losses[0], losses[3]);
  EXPECT_NE(losses[0], losses[1]);
  const double mean = (losses[0] + losses[1] + losses[2]) / 3;
  const Json history = Json::read_file((folder_ / "done/history.json").string());
  EXPECT_NEAR(history.at("loss").at(size_t{0}).as_double(), mean, 1e-5);
}

TEST_F(RunTest, TensorBoardFolderIsWritten) {
  carried_out(std::string(R"({"model": {"zoo": "mlp", "hidden": [4]}, )") + kDigits + "}",
              {.tensorboard = (folder_ / "events").string()});
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "events/train"));
}

TEST_F(RunTest, KerasModelInTheFileItself) {
  const Json model =
      Json::parse(keras::applications::mlp({.input_shape = {28, 28}, .hidden = {8}}).to_json());
  Json run =
      Json::object({{"model", model},
                    {"data", Json::parse(R"({"name": "digits", "train_size": 200, "test_size": 50})")},
                    {"compile", Json::parse(R"({"optimizer": "sgd", "loss": "sparse_categorical_crossentropy",
                                                       "metrics": ["accuracy"]})")}});
  EXPECT_TRUE(carried_out(run.dump()).contains("accuracy"));
  run.erase("compile");
  EXPECT_THAT(mistake(run.dump()), HasSubstr("compile: the model's file does not say how to train it"));
}

// --- data --------------------------------------------------------------------------------------------------

TEST_F(RunTest, CsvWithRegression) {
  std::ofstream file(folder_ / "table.csv");
  file << "a,b,target\n";
  for (int i = 0; i < 64; ++i) file << i % 8 << ',' << i / 8 << ',' << i % 8 + 2 * (i / 8) << '\n';
  file.close();
  const Json result = carried_out(R"({"model": {"zoo": "mlp", "input_shape": [2], "hidden": [], "classes": 1},
      "data": {"csv": "table.csv", "label_column": "target", "scale": 0.125, "validation_split": 0.25},
      "compile": {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.5}}, "loss": "mse"},
      "fit": {"epochs": 80, "batch_size": 48}})");
  EXPECT_LT(result.at("loss").as_double(), 1.0);
}

TEST_F(RunTest, SafetensorsAndValidationOfItsOwn) {
  const Tensor x = random::uniform({40, 3});
  const Tensor y = cast(reduce_sum(x, {.axis = {1}}) > 1.5, DType::int32);
  train::save_safetensors((folder_ / "train.safetensors").string(), {{"x", x}, {"y", y}});
  train::save_safetensors((folder_ / "test.safetensors").string(), {{"x", x}, {"y", y}});
  const RunFile run = parsed(R"({"model": {"zoo": "mlp", "input_shape": [3], "classes": 2},
      "data": {"safetensors": "train.safetensors", "one_hot": true, "validation": {"safetensors": "test.safetensors"}}})");
  const RunData data = load_data(run, make_model(run));
  EXPECT_EQ(data.train.x[0].to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(data.train.y[0].shape(), (Shape{40, 2}));
  EXPECT_EQ(data.validation.y[0].shape(), (Shape{40, 2}));
}

TEST_F(RunTest, ValidationIsTheEndOrDrawnAtRandom) {
  const Tensor numbers = range(10, DType::float32);
  train::save_safetensors((folder_ / "data.safetensors").string(),
                          {{"x", reshape(numbers, {10, 1})}, {"y", numbers}});
  const auto load = [&](const std::string& options) {
    const RunFile run = parsed(R"({"model": {"zoo": "mlp", "input_shape": [1]},
                                   "data": {"safetensors": "data.safetensors", "validation_split": 0.3)" +
                               options + "}}");
    return load_data(run, make_model(run));
  };
  EXPECT_EQ(load("").validation.y[0].to_vector<float>(), (std::vector<float>{7, 8, 9}));
  const RunData drawn = load(R"(, "validation_random": true)");
  EXPECT_EQ(drawn.validation.x[0].to_vector<float>(), drawn.validation.y[0].to_vector<float>());
  EXPECT_NE(drawn.validation.y[0].to_vector<float>(), (std::vector<float>{7, 8, 9}));
  std::vector<float> all = drawn.train.y[0].to_vector<float>();
  for (const float y : drawn.validation.y[0].to_vector<float>()) all.push_back(y);
  EXPECT_THAT(all, ::testing::UnorderedElementsAreArray(numbers.to_vector<float>()));
  EXPECT_EQ(load(R"(, "validation_random": true)").validation.y[0].to_vector<float>(),
            drawn.validation.y[0].to_vector<float>());
}

TEST_F(RunTest, IdxFilesAreScaledAndShapedForTheModel) {
  const auto write = [&](const char* name, const std::vector<unsigned char>& bytes) {
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  write("images", {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 51, 102, 255});
  write("labels", {0, 0, 8, 1, 0, 0, 0, 2, 1, 0});
  const RunFile run = parsed(R"({"model": {"zoo": "mlp", "input_shape": [2], "classes": 2},
                                 "data": {"idx": {"images": "images", "labels": "labels"}}})");
  const RunData data = load_data(run, make_model(run));
  EXPECT_EQ(data.train.x[0].shape(), (Shape{2, 2}));
  EXPECT_THAT(data.train.x[0].to_vector<float>(),
              ::testing::Pointwise(::testing::FloatEq(), {0.0F, 0.2F, 0.4F, 1.0F}));
  EXPECT_EQ(data.train.y[0].to_vector<int32_t>(), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(examples_in(data.validation), 0);
}

TEST_F(RunTest, ImageFoldersAreBroughtToTheModelsSize) {
  for (const char* name : {"cats", "dogs"}) {
    std::filesystem::create_directories(folder_ / "pets" / name);
    const Tensor image = Tensor::full(DType::uint8, {4, 6, 3}, name[0] == 'c' ? 255 : 0);
    std::ofstream(folder_ / "pets" / name / "a.png", std::ios::binary) << data::encode_png(image);
  }
  const RunFile run =
      parsed(R"({"model": {"zoo": "resnet18", "input_shape": [8, 8, 3], "classes": 2, "width": 2},
                                 "data": {"image_folder": "pets"}})");
  const RunData data = load_data(run, make_model(run));
  ASSERT_EQ(data.train.x[0].shape(), (Shape{2, 8, 8, 3}));
  const std::vector<float> x = data.train.x[0].to_vector<float>();
  const std::vector<int32_t> y = data.train.y[0].to_vector<int32_t>();
  for (size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(x[i * 8 * 8 * 3], y[i] == 0 ? 1.0F : 0.0F);
}

TEST_F(RunTest, TextGivesTheNextByte) {
  std::ofstream(folder_ / "text") << "abcdefghi";
  const RunFile run = parsed(R"({"model": "gpt_tiny", "data": {"text": "text", "context": 4}})");
  const RunData data = load_data(run, make_model(run));
  EXPECT_EQ(data.train.x[0].to_vector<int32_t>(),
            (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}));
  EXPECT_EQ(data.train.y[0].to_vector<int32_t>(),
            (std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'}));
  EXPECT_EQ(data.train.x[0].shape(), (Shape{2, 4}));
}

TEST_F(RunTest, GptLearnsAText) {
  std::ofstream file(folder_ / "text");
  for (int i = 0; i < 200; ++i) file << "abcd";
  file.close();
  const Json result =
      carried_out(R"({"model": {"zoo": "gpt_tiny", "context": 16, "dim": 16, "heads": 2, "depth": 1},
      "data": {"text": "text", "context": 16}, "fit": {"epochs": 20, "batch_size": 10},
      "compile": {"optimizer": {"class_name": "Adam", "config": {"learning_rate": 0.01}}, "metrics": ["accuracy"],
                  "loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}}}})");
  EXPECT_GT(result.at("accuracy").as_double(), 0.9);
}

// --- several inputs and outputs ----------------------------------------------------------------------------

constexpr const char* kTwoEnds = R"({"class_name": "Functional", "config": {"name": "two", "layers": [
    {"class_name": "InputLayer", "name": "size", "config": {"batch_shape": [null, 2], "name": "size"}, "inbound_nodes": []},
    {"class_name": "InputLayer", "name": "word", "config": {"batch_shape": [null], "dtype": "int32", "name": "word"}, "inbound_nodes": []},
    {"class_name": "Embedding", "name": "table", "config": {"input_dim": 3, "output_dim": 2, "name": "table"}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"shape": [null], "dtype": "int32", "keras_history": ["word", 0, 0]}}], "kwargs": {}}]},
    {"class_name": "Add", "name": "sum", "config": {"name": "sum"}, "inbound_nodes": [
      {"args": [[{"class_name": "__keras_tensor__", "config": {"shape": [null, 2], "dtype": "float32", "keras_history": ["size", 0, 0]}},
                 {"class_name": "__keras_tensor__", "config": {"shape": [null, 2], "dtype": "float32", "keras_history": ["table", 0, 0]}}]], "kwargs": {}}]},
    {"class_name": "Dense", "name": "kind", "config": {"units": 3, "name": "kind"}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"shape": [null, 2], "dtype": "float32", "keras_history": ["sum", 0, 0]}}], "kwargs": {}}]},
    {"class_name": "Dense", "name": "price", "config": {"units": 1, "name": "price"}, "inbound_nodes": [
      {"args": [{"class_name": "__keras_tensor__", "config": {"shape": [null, 2], "dtype": "float32", "keras_history": ["sum", 0, 0]}}], "kwargs": {}}]}],
    "input_layers": [["size", 0, 0], ["word", 0, 0]], "output_layers": [["kind", 0, 0], ["price", 0, 0]]}})";

class TwoEndsTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    train::save_safetensors((folder_ / "data.safetensors").string(),
                            {{"sizes", random::uniform({8, 2})},
                             {"height", random::uniform({8, 1})},
                             {"width", random::uniform({8, 1})},
                             {"words", Tensor::from<int64_t>({0, 1, 2, 0, 1, 2, 0, 1}, {8})},
                             {"kinds", Tensor::from<int32_t>({0, 1, 2, 2, 1, 0, 0, 1}, {8})},
                             {"prices", random::uniform({8})},
                             {"w", Tensor::from<float>({1, 0, 1, 0, 1, 0, 1, 0}, {8})},
                             {"none", Tensor::full(DType::float32, {8}, 0)}});
  }
  static std::string run(const std::string& data, const std::string& more = "") {
    return std::string(R"({"model": )") + kTwoEnds + R"(, "data": )" + data +
           R"(, "compile": {"optimizer": "sgd",
        "loss": {"kind": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}},
                 "price": "mse"}, "loss_weights": {"price": 0.5}, "metrics": {"kind": ["accuracy"]}})" +
           more + "}";
  }
};

TEST_F(TwoEndsTest, AreNamedOrListed) {
  const std::string named = R"({"safetensors": "data.safetensors", "x": {"word": "words", "size": "sizes"},
                                "y": {"price": "prices", "kind": "kinds"}, "sample_weight": {"kind": "w"}})";
  const std::string listed =
      R"({"safetensors": "data.safetensors", "x": ["sizes", "words"], "y": ["kinds", "prices"]})";
  for (const std::string& text : {named, listed}) {
    const RunFile run = parsed(TwoEndsTest::run(text));
    const RunData data = load_data(run, make_model(run));
    ASSERT_EQ(data.train.x.size(), 2u);
    EXPECT_EQ(data.train.x[0].spec(), (TensorSpec{DType::float32, {8, 2}}));
    EXPECT_EQ(data.train.x[1].spec(), (TensorSpec{DType::int32, {8}}));
    EXPECT_EQ(data.train.y[0].spec(), (TensorSpec{DType::int32, {8}}));
    EXPECT_EQ(data.train.y[1].spec(), (TensorSpec{DType::float32, {8}}));
  }
  const RunFile run = parsed(TwoEndsTest::run(named));
  const RunData data = load_data(run, make_model(run));
  ASSERT_EQ(data.train.sample_weight.size(), 2u);
  EXPECT_TRUE(data.train.sample_weight[0].defined());
  EXPECT_FALSE(data.train.sample_weight[1].defined());
  const Json result = carried_out(TwoEndsTest::run(named, R"(, "fit": {"epochs": 2, "batch_size": 4})"));
  EXPECT_TRUE(result.contains("kind_accuracy"));
  EXPECT_TRUE(result.contains("price_loss"));
}

TEST_F(TwoEndsTest, OneWeightIsForAllOutputsAndReachesTheLoss) {
  const auto loss = [&](const std::string& weight) {
    return carried_out(
               run(R"({"safetensors": "data.safetensors", "x": ["sizes", "words"], "y": ["kinds", "prices"],
                                "sample_weight": )" +
                       weight + "}",
                   R"(, "fit": {"epochs": 0})"))
        .at("loss")
        .as_double();
  };
  EXPECT_EQ(loss("\"none\""), 0);
  EXPECT_GT(loss("\"w\""), 0);
  EXPECT_GT(loss(R"({"price": "none"})"), loss(R"({"kind": "none", "price": "w"})"));
}

TEST_F(TwoEndsTest, PartsOfAnInputAreJoined) {
  const RunFile run = parsed(TwoEndsTest::run(R"({"safetensors": "data.safetensors",
      "x": {"size": ["height", "width"], "word": "words"}, "y": {"kind": "kinds"}})"));
  const RunData data = load_data(run, make_model(run));
  EXPECT_EQ(data.train.x[0].shape(), (Shape{8, 2}));
  EXPECT_FALSE(data.train.y[1].defined());
}

TEST_F(TwoEndsTest, AreColumnsOfATable) {
  std::ofstream file(folder_ / "table.csv");
  file << "kind,height,word,width,price,weight\n";
  for (int i = 0; i < 6; ++i)
    file << i % 3 << ',' << i << ',' << i % 2 << ',' << 10 * i << ",0.5," << i << '\n';
  file.close();
  const RunFile run =
      parsed(TwoEndsTest::run(R"({"csv": "table.csv", "x": {"size": ["height", "width"], "word": "word"},
      "label_column": {"kind": "kind", "price": "price"}, "sample_weight_column": "weight", "validation_split": 0.5})"));
  const RunData data = load_data(run, make_model(run));
  EXPECT_EQ(data.train.x[0].to_vector<float>(), (std::vector<float>{0, 0, 1, 10, 2, 20}));
  EXPECT_EQ(data.validation.x[1].to_vector<int32_t>(), (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(data.train.y[0].to_vector<float>(), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(data.validation.sample_weight[1].to_vector<float>(), (std::vector<float>{3, 4, 5}));
}

TEST_F(TwoEndsTest, MistakesNameThem) {
  const auto says = [&](const std::string& data) { return mistake(run(data)); };
  EXPECT_THAT(says(R"({"safetensors": "data.safetensors"})"),
              HasSubstr("data: x: there is 1 name for the model's size, word"));
  EXPECT_THAT(says(R"({"safetensors": "data.safetensors", "x": {"sizes": "sizes", "word": "words"}})"),
              HasSubstr("x.sizes: there is no such key; did you mean \"size\"?"));
  EXPECT_THAT(says(R"({"safetensors": "data.safetensors", "x": {"word": "words"}})"),
              HasSubstr("x: nothing is named for the model's input \"size\""));
  EXPECT_THAT(says(R"({"safetensors": "data.safetensors", "x": {"word": 3}})"),
              HasSubstr("data.x.word: expected a name or a list of names, received 3"));
  EXPECT_THAT(says(R"("digits")"), HasSubstr("\"safetensors\" and \"csv\" files hold several"));
  EXPECT_THAT(
      says(R"({"safetensors": "data.safetensors", "x": ["sizes", "wrds"], "y": ["kinds", "prices"]})"),
      HasSubstr("did you mean \"words\"?"));
}

TEST_F(RunTest, WeightsOfTheseNamesDoNotDecay) {
  const auto bias = [&](const std::string& excluded) {
    carried_out(
        std::string(
            R"({"model": {"zoo": "mlp", "hidden": []}, "output": "out", "fit": {"epochs": 1, "batch_size": 600},
        "initial_weights": "start.safetensors",
        "compile": {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 1e-9, "weight_decay": 1e8}},
                    "loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}},
                    "exclude_from_weight_decay": )") +
        excluded + "}, " + kDigits + "}");
    const keras::Model model = keras::applications::mlp({.hidden = {}});
    model.load_weights((folder_ / "out/weights.safetensors").string());
    return model.weights().back().value().to_vector<float>()[0];
  };
  const keras::Model model = keras::applications::mlp({.hidden = {}});
  for (const Variable& weight : model.weights())
    weight.assign(Tensor::full(DType::float32, weight.shape(), 1));
  model.save_weights((folder_ / "start.safetensors").string());
  EXPECT_NEAR(bias("[\"bias\"]"), 1, 1e-6);
  EXPECT_NEAR(bias("[]"), 0.9, 1e-3);
  EXPECT_THAT(
      mistake(
          std::string(
              R"({"model": "mlp", "compile": {"loss": "mse", "exclude_from_weight_decay": ["biass"]}, )") +
          kDigits + "}"),
      HasSubstr("compile.exclude_from_weight_decay: no weight has \"biass\" in its name; there are "));
}

// --- mistakes ----------------------------------------------------------------------------------------------

TEST_F(RunTest, MistakesNameTheirKey) {
  const auto with = [&](const std::string& key, const std::string& value) {
    Json run = Json::parse(std::string(R"({"model": {"zoo": "mlp", "hidden": [4]}, )") + kDigits + "}");
    run.set(key, Json::parse(value));
    return mistake(run.dump());
  };
  EXPECT_EQ(with("fit", R"({"batch_size": "many"})"),
            "fit.batch_size: expected an integer of at least 1, received \"many\"");
  EXPECT_EQ(with("fit", R"({"batch_size": 0})"),
            "fit.batch_size: expected an integer of at least 1, received 0");
  EXPECT_EQ(with("fit", R"({"epochs": 1.5})"),
            "fit.epochs: expected an integer from 0 to 2147483647, received 1.5");
  EXPECT_THAT(
      with("fit", R"({"batchsize": 3})"),
      HasSubstr(
          "fit.batchsize: there is no such key; did you mean \"batch_size\"? There are epochs, batch_size"));
  EXPECT_THAT(with("ouput", R"("x")"), HasSubstr("ouput: there is no such key; did you mean \"output\"?"));
  EXPECT_THAT(with("model", R"("lenett")"), HasSubstr("model: expected one of mlp, lenet"));
  EXPECT_THAT(with("model", R"("lenett")"), HasSubstr("did you mean \"lenet\"?"));
  EXPECT_THAT(with("model", R"({"zoo": "mlp", "hiden": 3})"),
              HasSubstr("model.hiden: there is no such key; did you mean \"hidden\"?"));
  EXPECT_THAT(with("model", R"({"zoo": "mlp", "hidden": "wide"})"), HasSubstr("model: "));
  EXPECT_THAT(with("model", R"("nowhere.json")"), HasSubstr("nowhere.json"));
  EXPECT_THAT(
      with("data", R"("minst")"),
      HasSubstr(
          "data: expected one of digits, mnist, fashion_mnist, cifar10, cifar100 (did you mean \"mnist\"?)"));
  EXPECT_THAT(with("data", R"({"path": "x"})"), HasSubstr("data: expected one of the names digits, mnist"));
  EXPECT_THAT(with("data", R"({"csv": "x.csv", "images": "y"})"),
              HasSubstr("data.images: there is no such key"));
  EXPECT_THAT(with("data", R"({"idx": {"images": "x"}})"),
              HasSubstr("data.idx: expected the key \"labels\""));
  EXPECT_THAT(with("data", R"({"csv": "nowhere.csv"})"), HasSubstr("nowhere.csv"));
  EXPECT_THAT(with("data", R"({"name": "digits", "validation_split": 1})"),
              HasSubstr("data.validation_split: expected a number of at least 0 and below 1, received 1"));
  EXPECT_THAT(with("compile", R"({"optimizer": "adaam"})"), HasSubstr("compile.optimizer: "));
  EXPECT_THAT(with("compile", R"({"optimizer": "adaam"})"), HasSubstr("did you mean \"adam\"?"));
  EXPECT_THAT(with("compile", R"({"loss": "nonsense"})"), HasSubstr("compile.loss: "));
  EXPECT_THAT(with("compile", R"({"metric": ["accuracy"]})"),
              HasSubstr("compile.metric: there is no such key; did you mean \"metrics\"?"));
  EXPECT_THAT(with("initial_weights", R"("nowhere.safetensors")"), HasSubstr("initial_weights: "));
  EXPECT_THAT(mistake(R"({"model": "mlp"})"), HasSubstr("expected the key \"data\""));
  EXPECT_THAT(mistake(R"([])"), HasSubstr("expected an object"));
}

TEST_F(RunTest, DataThatDoesNotFitTheModelIsRefused) {
  EXPECT_THAT(mistake(std::string(R"({"model": {"zoo": "mlp", "input_shape": [100]}, )") + kDigits + "}"),
              HasSubstr("data: an example has shape (28, 28), the model takes (100,)"));
  EXPECT_THAT(mistake(std::string(R"({"model": {"zoo": "mlp", "classes": 5}, )") + kDigits + "}"),
              HasSubstr("; the model tells 5 classes apart, whose numbers are 0 to 4"));
}

TEST_F(RunTest, LabelsThatAreNoClassNumbersAreRefused) {
  const auto refusal = [&](const Tensor& y, const std::string& options, const std::string& loss) {
    train::save_safetensors((folder_ / "data.safetensors").string(),
                            {{"x", Tensor::full(DType::float32, {3, 2}, 0.0)}, {"y", y}});
    return mistake(R"({"model": {"zoo": "mlp", "input_shape": [2], "hidden": [], "classes": 4},
        "data": {"safetensors": "data.safetensors")" +
                   options + R"(}, "compile": {"loss": )" + loss + "}}");
  };
  const std::string hot = R"(, "one_hot": true)";
  constexpr const char* kHot =
      R"({"class_name": "CategoricalCrossentropy", "config": {"from_logits": true}})";
  constexpr const char* kSparse =
      R"({"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}})";
  const auto both = [&](const Tensor& y, const std::string& says) {
    EXPECT_THAT(refusal(y, hot, kHot), HasSubstr(says));
    EXPECT_THAT(refusal(y, "", kSparse), HasSubstr(says));
  };
  const char* range = "; the model tells 4 classes apart, whose numbers are 0 to 3";
  both(Tensor::from<int32_t>({0, 4, 1}, {3}),
       std::string("data: the label of row 1 (counted from 0) is 4") + range);
  both(Tensor::from<int32_t>({0, 1, -1}, {3}), std::string("row 2 (counted from 0) is -1") + range);
  both(Tensor::from<int64_t>({(int64_t{1} << 32) + 1, 0, 0}, {3}),
       std::string("row 0 (counted from 0) is 4294967297") + range);
  both(Tensor::from<float>({0, 1.5F, 1}, {3}), std::string("is 1.5, which is no whole number") + range);
  both(Tensor::from<float>({0, 1, NAN}, {3}), "row 2 (counted from 0) is nan, which is no whole number");
  both(Tensor::from<float>({0, 1, 7}, {3, 1}), std::string("row 2 (counted from 0) is 7") + range);
  EXPECT_EQ(refusal(Tensor::from<int64_t>({0, 1, 3}, {3}), hot, kHot), "no error");
  EXPECT_EQ(refusal(Tensor::from<float>({0, 1, 3}, {3, 1}), "", kSparse), "no error");
  // Whole numbers that are not classes must fit all the same.
  EXPECT_THAT(refusal(Tensor::from<int64_t>({0, 1, int64_t{1} << 40}, {3, 1}), "", "\"mse\""),
              HasSubstr("the label of row 2 (counted from 0) is 1099511627776"));
}

TEST_F(RunTest, NumbersThatDoNotFitAreRefused) {
  for (const char* key : {"epochs", "initial_epoch", "validation_freq"})
    EXPECT_THAT(
        mistake(R"({"model": "mlp", "data": "digits", "fit": {")" + std::string(key) + R"(": 4294967297}})"),
        HasSubstr(std::string("fit.") + key + ": expected an integer from "));
  EXPECT_THAT(mistake(R"({"model": "mlp", "data": "digits", "seed": 1e30})"),
              HasSubstr("seed: expected an integer"));
  EXPECT_THAT(mistake(R"({"model": {"class_name": "Sequential", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "config": {"batch_shape": [null, 28, 28], "name": "in"}},
      {"class_name": "BatchNormalization", "config": {"name": "b", "axis": 4294967295}}]}},
      "data": "digits", "compile": {"loss": "mse"}})"),
              HasSubstr("axis 4294967295 does not exist in a tensor of rank 3"));
}

// --- the schema --------------------------------------------------------------------------------------------

TEST_F(RunTest, PublishedSchemaIsTheReaders) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/docs/run.schema.json";
  EXPECT_EQ(read_text(path), run_schema().dump(2) + "\n")
      << "write it anew with: lockstep train --schema > docs/run.schema.json";
}

// Every key of the schema, as a path to where the reader would meet it.
void each_key(const Json& schema, const std::vector<std::string>& path,
              const std::function<void(const std::vector<std::string>&, const Json& parent)>& f) {
  if (const Json* choices = schema.find("anyOf"))
    for (const Json& choice : choices->items()) each_key(choice, path, f);
  const Json* properties = schema.find("properties");
  if (!properties) return;
  for (const auto& [key, value] : properties->members()) {
    std::vector<std::string> inner = path;
    inner.push_back(key);
    f(inner, schema);
    each_key(value, inner, f);
  }
}

TEST_F(RunTest, EveryKeyOfTheSchemaIsRead) {
  int keys = 0;
  each_key(run_schema(), {}, [&](const std::vector<std::string>& path, const Json& parent) {
    // An object with what the schema requires and this key, around which the objects that lead to it.
    Json value = Json::object();
    if (const Json* required = parent.find("required"))
      for (const Json& name : required->items()) {
        const std::string& key = name.as_string();
        value.set(key, key == "name"  ? Json("digits")
                       : key == "idx" ? Json::object({{"images", "?"}, {"labels", "?"}})
                                      : Json("?"));
      }
    if (const Json* zoo = parent.at("properties").find("zoo")) value.set("zoo", zoo->at("const"));
    if (!value.contains(path.back())) value.set(path.back(), Json());
    for (size_t i = path.size() - 1; i > 0; --i) {
      Json outer = Json::object({{path[i - 1], value}});
      if (path[i - 1] == "validation") outer.set("name", "digits");
      value = outer;
    }
    if (path[0] != "model") value.set("model", "mlp");
    if (path[0] != "data") value.set("data", "digits");
    ++keys;
    try {
      parse_run(value, "");
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find("there is no such key"), std::string::npos) << error.message();
    }
  });
  EXPECT_GT(keys, 80);
}

// --- the real thing ----------------------------------------------------------------------------------------

// 9,000 real digits to learn from and 1,000 held back: the files of MNIST's test half are enough. They are
// drawn at random, since the writers of that half are in no random order.
void expect_accuracy_on_mnist(const char* model, double accuracy, std::FILE* out) {
  std::vector<std::filesystem::path> folders;
  if (const char* folder = std::getenv("LOCKSTEP_MNIST_DIR")) folders.emplace_back(folder);
  if (const char* folder = std::getenv("LOCKSTEP_DATA_DIR"))
    folders.emplace_back(std::filesystem::path(folder) / "mnist");
  if (const char* folder = std::getenv("XDG_CACHE_HOME"))
    folders.emplace_back(std::filesystem::path(folder) / "lockstep/mnist");
  else if (const char* home = std::getenv("HOME"))
    folders.emplace_back(std::filesystem::path(home) / ".cache/lockstep/mnist");
  for (const auto& folder : folders) {
    if (!std::filesystem::exists(folder / "t10k-images-idx3-ubyte.gz")) continue;
    const Json run = Json::object(
        {{"model", model},
         {"data",
          Json::object({{"idx", Json::object({{"images", (folder / "t10k-images-idx3-ubyte.gz").string()},
                                              {"labels", (folder / "t10k-labels-idx1-ubyte.gz").string()}})},
                        {"validation_split", 0.1},
                        {"validation_random", true}})},
         {"fit", Json::object({{"epochs", 10}, {"verbose", 0}})}});
    EXPECT_GE(carry_out(parse_run(run, ""), {}, {.out = out}).at("accuracy").as_double(), accuracy);
    return;
  }
  GTEST_SKIP()
      << "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz are neither in $LOCKSTEP_MNIST_DIR nor in "
         "the folder mnist of the data cache";
}

TEST_F(RunTest, LongMlpOnRealDigits) { expect_accuracy_on_mnist("mlp", 0.95, out_); }
TEST_F(RunTest, LongLenetOnRealDigits) { expect_accuracy_on_mnist("lenet", 0.98, out_); }

}  // namespace
}  // namespace lockstep::cli
