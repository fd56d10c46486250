#include "cli/trained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "cli/run.h"
#include "lockstep/keras/layers.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainedRun : public ::testing::Test {
 protected:
  TrainedRun() {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("trained_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const random::Generator generator(3);
    x_ = random::normal({20, 4}, {.generator = &generator});
    y_ = cast(random::uniform({20}, {.generator = &generator}) * 2.999, DType::int32);
    train::save_safetensors(path("data.safetensors"), {{"x", x_}, {"y", y_}});
  }
  ~TrainedRun() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  RunFile run(const std::string& more) const {
    return parse_run(Json::parse(R"({"model": {"zoo": "mlp", "input_shape": [4], "hidden": [5], "classes": 3},
                        "data": {"safetensors": "data.safetensors", "validation_split": 0.3},
                        "fit": {"epochs": 2, "batch_size": 4, "verbose": 0})" +
                                 more + "}"),
                     folder_.string());
  }
  Json trained(const RunFile& run) const {
    std::FILE* out = std::fopen(path("out.txt").c_str(), "w");
    const Json result = carry_out(run, {}, {.out = out});
    std::fclose(out);
    return result;
  }
  static std::string mistake(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }
  static std::vector<float> numbers(const train::NamedTensors& predictions) {
    return predictions.at(0).second.to_vector<float>();
  }

  std::filesystem::path folder_;
  Tensor x_, y_;
};

TEST_F(TrainedRun, EvaluatesToWhatTrainingEndedWith) {
  const RunFile run = this->run(R"(, "output": "out")");
  const Json result = trained(run);
  // The folder says all that the file did.
  for (const RunFile& used : {run, read_trained_run(path("out"))}) {
    const Json logs = evaluate_run(used, {.part = Part::validation});
    EXPECT_NEAR(logs.at("loss").as_double(), result.at("loss").as_double(), 1e-6);
    EXPECT_EQ(logs.at("accuracy"), result.at("accuracy"));
    EXPECT_NE(evaluate_run(used, {.part = Part::train}).at("loss"), logs.at("loss"));
    const train::NamedTensors predictions = predict_run(used, {.part = Part::train});
    ASSERT_EQ(predictions.size(), 1u);
    EXPECT_EQ(predictions[0].first, "prediction");
    EXPECT_EQ(predictions[0].second.shape(), (Shape{14, 3}));
    const keras::Model model = trained_model(used);
    EXPECT_EQ(numbers(predictions),
              model.predict(slice(x_, {0, 0}, {14, 4}), {.batch_size = 4, .verbose = 0}).to_vector<float>());
  }
}

TEST_F(TrainedRun, MayBeAKerasFile) {
  trained(run(R"(, "output": "out")"));
  const keras::Model model = trained_model(read_trained_run(path("out")));
  model.save(path("m.keras"));
  const RunFile file = with_data(read_trained_run(path("m.keras")), path("data.safetensors"));
  EXPECT_EQ(numbers(predict_run(file, {.part = Part::all})),
            model.predict(x_, {.batch_size = 4, .verbose = 0}).to_vector<float>());
  // And a run may begin with one.
  RunFile run = this->run("");
  run.model.json = path("m.keras");
  EXPECT_EQ(make_model(run).get_weights()[0].to_vector<float>(), model.get_weights()[0].to_vector<float>());
}

TEST_F(TrainedRun, IsTheSameRunWhereverItsFileLies) {
  const RunFile run =
      this->run(R"(, "output": "out", "seed": 7, "compile": {"loss": "mse", "steps_per_execution": 2,
      "exclude_from_weight_decay": ["bias"]}, "initial_weights": "w.safetensors")");
  const Json written = written_run(run);
  EXPECT_EQ(written.at("data").at("safetensors").as_string(), path("data.safetensors"));
  EXPECT_EQ(written.at("initial_weights").as_string(), path("w.safetensors"));
  EXPECT_EQ(written_run(parse_run(written, "elsewhere")), written);
  EXPECT_FALSE(written.at("fit").contains("shuffle")) << "what is as it would be by itself is left out";
  EXPECT_EQ(written_run(parse_run(Json::parse(R"({"model": "mlp", "data": "digits"})"), "")).dump(),
            R"({"model":"mlp","data":{"name":"digits"}})");
}

TEST_F(TrainedRun, TakesOtherExamples) {
  trained(run(R"(, "output": "out")"));
  const RunFile run = read_trained_run(path("out"));
  const std::vector<float> all =
      trained_model(run).predict(x_, {.batch_size = 4, .verbose = 0}).to_vector<float>();
  const UseOptions use{.part = Part::all};
  // Data of the run's own kind: names of tensors are the run's.
  EXPECT_EQ(numbers(predict_run(with_data(run, path("data.safetensors")), use)), all);
  train::save_safetensors(path("other.safetensors"), {{"features", x_}});
  EXPECT_EQ(numbers(predict_run(
                with_data(run, R"({"safetensors": ")" + path("other.safetensors") + R"(", "x": "features"})"),
                use)),
            all);
  // Tables with labels and without; the model says which.
  const std::vector<float> x = x_.to_vector<float>();
  const std::vector<int32_t> y = y_.to_vector<int32_t>();
  std::ofstream with(path("with.csv")), without(path("without.csv"));
  with.precision(9);
  without.precision(9);
  with << "a,b,c,d,y\n";
  without << "a,b,c,d\n";
  for (size_t row = 0; row < y.size(); ++row) {
    for (size_t i = 0; i < 4; ++i) {
      with << x[4 * row + i] << ',';
      without << x[4 * row + i] << (i == 3 ? "\n" : ",");
    }
    with << y[row] << '\n';
  }
  with.close();
  without.close();
  EXPECT_EQ(numbers(predict_run(with_data(run, path("with.csv")), use)), all);
  EXPECT_EQ(numbers(predict_run(with_data(run, path("without.csv")), use)), all);
  EXPECT_EQ(evaluate_run(with_data(run, path("with.csv")), use),
            evaluate_run(with_data(run, path("data.safetensors")), use));
  EXPECT_THAT(mistake([&] { predict_run(with_data(run, path("data.xlsx")), use); }),
              HasSubstr("expected a file that ends in .csv, .safetensors or .txt"));
  EXPECT_THAT(mistake([&] { predict_run(with_data(run, path("nowhere.csv")), use); }),
              HasSubstr("nowhere.csv"));
}

// A stateful model takes batches of one size: the examples left over at the end lose no run.
TEST_F(TrainedRun, OfAFixedBatchIsEvaluatedInWholeBatches) {
  keras::Sequential model;
  model.add(keras::Input({2, 2}, {.batch_size = 4}));
  model.add(keras::layers::LSTM(3, {.stateful = true}));
  model.add(keras::layers::Dense(3));
  Json file = Json::parse(R"({"data": {"safetensors": "data.safetensors", "validation_split": 0.3},
                              "compile": {"loss": {"class_name": "SparseCategoricalCrossentropy",
                                                   "config": {"from_logits": true}}},
                              "fit": {"epochs": 1, "batch_size": 4, "verbose": 0},
                              "output": "out"})");
  file.set("model", Json::parse(model.to_json()));
  EXPECT_TRUE(trained(parse_run(file, folder_.string())).contains("loss"));
  EXPECT_EQ(predict_run(read_trained_run(path("out")), {.part = Part::train})[0].second.shape(),
            (Shape{12, 3}));
}

TEST_F(TrainedRun, ThatLeftNothingSaysWhatIsMissing) {
  EXPECT_THAT(mistake([&] { evaluate_run(run("")); }), HasSubstr("output: the run names no folder"));
  EXPECT_THAT(mistake([&] { evaluate_run(run(R"(, "output": "out")")); }),
              AllOf(HasSubstr("weights.safetensors"), HasSubstr("`lockstep train` writes it")));
  EXPECT_THAT(mistake([&] { read_trained_run(folder_.string()); }), HasSubstr("holds no run.json"));
  RunFile whole = run(R"(, "output": "out")");
  whole.data.options.validation_split = 0;
  trained(whole);
  EXPECT_THAT(mistake([&] { evaluate_run(whole); }), HasSubstr("--on train"));
}

}  // namespace
}  // namespace lockstep::cli
