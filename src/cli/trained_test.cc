#include "cli/trained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "cli/run.h"
#include "cli/run_data.h"
#include "lockstep/data/image.h"
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

// Columns and classes are told apart by their names: other examples may have them in another order.
TEST_F(TrainedRun, ReadsOtherTablesByTheNamesOfItsColumns) {
  const std::vector<float> x = x_.to_vector<float>();
  const std::vector<int32_t> y = y_.to_vector<int32_t>();
  const auto write = [&](const std::string& name, const std::string& order, bool header = true) {
    std::ofstream file(path(name));
    file.precision(9);
    const auto line = [&](auto field) {
      for (size_t i = 0; i < order.size(); ++i) file << (i > 0 ? "," : "") << field(order[i]);
      file << '\n';
    };
    if (header) line([](char column) { return std::string(1, column); });
    for (size_t row = 0; row < y.size(); ++row)
      line([&](char column) {
        return column == 'y'   ? static_cast<float>(y[row])
               : column == 'i' ? static_cast<float>(row)
                               : x[4 * row + static_cast<size_t>(column - 'a')];
      });
  };
  write("train.csv", "abcdy");
  write("turned.csv", "yidcba");
  write("unlabelled.csv", "dcbai");
  write("bare.csv", "abcdy", false);
  const auto csv = [](const std::string& more) {
    return parse_run(Json::parse(R"({"model": {"zoo": "mlp", "input_shape": [4], "hidden": [5], "classes": 3},
      "fit": {"epochs": 2, "verbose": 0}, "output": "out", )" +
                                 more + "}"),
                     "");
  };
  for (const char* named : {"", R"(, "x": ["a", "b", "c", "d"], "label_column": "4")"}) {
    RunFile run = csv(R"("data": {"csv": "train.csv")" + std::string(named) +
                      R"(, "validation": {"csv": "turned.csv"}})");
    run.folder = folder_.string();
    const Json result = trained(run);
    const RunFile left = read_trained_run(path("out"));
    const auto with = [&](const std::string& data) { return with_data(left, data); };
    const UseOptions use{.part = Part::all};
    const Json logs = evaluate_run(with(path("train.csv")), use);
    EXPECT_EQ(evaluate_run(left, {.part = Part::validation}), logs) << "the validation examples are the same";
    EXPECT_NEAR(result.at("loss").as_double(), logs.at("loss").as_double(), 1e-6);
    EXPECT_EQ(evaluate_run(with(path("turned.csv")), use), logs);
    EXPECT_EQ(evaluate_run(with(R"({"csv": ")" + path("turned.csv") + "\"}"), use), logs);
    const std::vector<float> all = numbers(predict_run(with(path("train.csv")), use));
    EXPECT_EQ(numbers(predict_run(with(path("turned.csv")), use)), all);
    EXPECT_EQ(numbers(predict_run(with(path("unlabelled.csv")), use)), all);
    EXPECT_THAT(mistake([&] { evaluate_run(with(path("unlabelled.csv")), use); }), HasSubstr("\"y\""));
    EXPECT_THAT(mistake([&] { evaluate_run(with(path("bare.csv")), use); }), HasSubstr("bare.csv"));
  }
  // Where names are missing or the same, the columns are numbers.
  write("same.csv", "aacdy");
  for (const char* table :
       {R"("data": {"csv": "same.csv"})", R"("data": {"csv": "bare.csv", "header": false})"}) {
    RunFile run = csv(table);
    run.folder = folder_.string();
    trained(run);
    EXPECT_EQ(evaluate_run(read_trained_run(path("out")), {.part = Part::train}).contains("accuracy"), true);
  }
}

TEST_F(TrainedRun, ReadsOtherFoldersByTheNamesOfItsClasses) {
  const auto image = [&](const std::string& folder, const std::string& name, int value) {
    std::filesystem::create_directories(folder_ / folder);
    std::ofstream(folder_ / folder / name, std::ios::binary)
        << data::encode_png(Tensor::full(DType::uint8, {16, 16, 3}, value));
  };
  for (const char* name : {"1.png", "2.png"})
    image("pets/ant", name, 0), image("pets/bee", name, 100), image("pets/cow", name, 255);
  image("some/cow", "1.png", 255);
  image("others/cow", "1.png", 255), image("others/dog", "1.png", 20);
  const auto run = [&](const std::string& data) {
    return parse_run(Json::parse(R"({"model": {"zoo": "lenet", "input_shape": [16, 16, 3], "classes": 3},
        "compile": {"loss": {"class_name": "SparseCategoricalCrossentropy", "config": {"from_logits": true}},
                    "optimizer": "adam", "metrics": ["accuracy"]},
        "fit": {"epochs": 20, "batch_size": 3, "verbose": 0}, "output": "out", "data": )" +
                                 data + "}"),
                     folder_.string());
  };
  EXPECT_EQ(
      trained(run(R"({"image_folder": "pets", "validation": {"image_folder": "some"}})")).at("accuracy"),
      Json(1.0));
  const RunFile left = read_trained_run(path("out"));
  const UseOptions use{.part = Part::all};
  EXPECT_EQ(evaluate_run(with_data(left, path("some")), use).at("accuracy"), Json(1.0));
  EXPECT_THAT(mistake([&] { evaluate_run(with_data(left, path("others")), use); }),
              HasSubstr("there is a folder \"dog\", but class_names has ant, bee, cow"));
  EXPECT_EQ(predict_run(with_data(left, path("others")), use)[0].second.shape(), (Shape{2, 3}));
  // What is to be predicted needs no class folders; what is to be judged does.
  const std::vector<float> pets = numbers(predict_run(with_data(left, path("pets")), use));
  EXPECT_EQ(numbers(predict_run(with_data(left, path("pets/bee")), use)),
            std::vector<float>(pets.begin() + 6, pets.begin() + 12));
  EXPECT_THAT(mistake([&] { evaluate_run(with_data(left, path("pets/bee")), use); }),
              HasSubstr("each class has a folder of its own"));
  const RunData turned = load_data(run(R"({"image_folder": "pets", "class_names": ["cow", "bee", "ant"]})"),
                                   trained_model(left), {.shuffle = false});
  EXPECT_EQ(turned.train.y[0].to_vector<int32_t>(), (std::vector<int32_t>{2, 2, 1, 1, 0, 0}));
}

// The class numbers of a run whose file names no loss are looked at with those that the model was trained for.
TEST_F(TrainedRun, RefusesLabelsThatAreNoClasses) {
  trained(run(R"(, "output": "out")"));
  const RunFile left = read_trained_run(path("out"));
  for (const Tensor& y : {Tensor::full(DType::float32, {20}, 1.5), Tensor::full(DType::float32, {20}, 3.0)}) {
    train::save_safetensors(path("other.safetensors"), {{"x", x_}, {"y", y}});
    EXPECT_THAT(
        mistake([&] { evaluate_run(with_data(left, path("other.safetensors")), {.part = Part::all}); }),
        HasSubstr("data: the label of row 0 (counted from 0) is "));
  }
  // One class is a number of classes.
  RunFile one = run("");
  one.model.json.set("classes", 1);
  EXPECT_THAT(mistake([&] { trained(one); }), HasSubstr("the model tells 1 classes apart"));
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
