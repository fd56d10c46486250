// The names that people try in their first hour, written as they write them: each is used here once, and
// stands in docs/names.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "devices.h"
#include "lockstep/lockstep.h"

namespace tf = lockstep;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A folder that ends with its test.
class Folder {
 public:
  Folder()
      : path_(testing::TempDir() + "names_" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <class T = float>
std::vector<T> values(const tf::Tensor& x) {
  return x.to_vector<T>();
}

// --- tensors -----------------------------------------------------------------------------------------------

TEST(Names, ConstantsHaveTensorFlowsDtypes) {
  const tf::Tensor x = tf::constant({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_EQ(x.dtype(), tf::float32);
  EXPECT_EQ(x.shape(), tf::Shape({2, 2}));
  EXPECT_THAT(values(x), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(tf::constant(1).dtype(), tf::int32);
  EXPECT_EQ(tf::constant(1.0F).shape(), tf::Shape());
  EXPECT_EQ(tf::constant(int64_t{1}).dtype(), tf::int64);
  EXPECT_EQ(tf::constant(true).dtype(), tf::boolean);
  EXPECT_EQ(tf::constant({1, 2, 3}).dtype(), tf::int32);
  EXPECT_EQ(tf::constant({1, 2, 3}, tf::float64).dtype(), tf::float64);
  EXPECT_EQ(tf::constant(uint8_t{7}).dtype(), tf::uint8);
  EXPECT_EQ(tf::constant(0.5, tf::float16).dtype(), tf::float16);
  EXPECT_EQ(tf::constant(0.5, tf::bfloat16).dtype(), tf::bfloat16);
  EXPECT_EQ(tf::constant(std::vector<double>{0.1}).dtype(), tf::float64);
  EXPECT_DOUBLE_EQ(tf::constant(0.1, tf::float64).item<double>(), 0.1);
  EXPECT_EQ(tf::constant({{{1}, {2}}, {{3}, {4}}}).shape(), tf::Shape({2, 2, 1}));
  EXPECT_THAT(values(tf::constant(7.0, {}, {{2, 2}})), ElementsAre(7, 7, 7, 7));
  EXPECT_EQ(tf::constant({1, 2, 3, 4}, {}, tf::Shape{2, 2}).shape(), tf::Shape({2, 2}));
}

TEST(Names, ConvertToTensorTakesAllThatIsOneAlready) {
  const tf::Tensor x = tf::constant({1.0, 2.0});
  EXPECT_EQ(tf::convert_to_tensor(x).impl(), x.impl());
  EXPECT_THAT(values(tf::convert_to_tensor({1.0, 2.0})), ElementsAre(1, 2));
  EXPECT_THAT(values<int32_t>(tf::convert_to_tensor({1, 2}, tf::int32)), ElementsAre(1, 2));
  EXPECT_THAT(values(tf::convert_to_tensor(tf::Variable(3.0F))), ElementsAre(3));
}

TEST(Names, VariablesAreMadeOfNumbersAndCountUp) {
  tf::Variable v(1.0F);
  v.assign_add(1.0);
  v += 2.0;
  v -= 1.0;
  v *= 4.0;
  v /= 2.0;
  EXPECT_EQ(v.value().item<float>(), 6);
  tf::Variable steps(0, {.name = "steps", .trainable = false});
  steps += 1;
  EXPECT_EQ(steps.dtype(), tf::int32);
  EXPECT_EQ(steps.value().item<int32_t>(), 1);
  tf::Variable w({1.0, 2.0});
  w.assign({3.0, 4.0});
  w += tf::constant({1.0, 1.0});
  EXPECT_THAT(w.numpy(), ElementsAre(4, 5));
}

TEST(Names, ElementsByNumber) {
  const tf::Tensor x = tf::constant({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_THAT(values(x[0]), ElementsAre(1, 2));
  EXPECT_EQ(x[-1][0].item<float>(), 3);
  tf::GradientTape tape;
  tape.watch(x);
  EXPECT_THAT(values(tape.gradient(tf::square(x[1]), x)), ElementsAre(0, 0, 6, 8));
}

TEST(Names, ComparisonsGiveBooleansForEachElement) {
  const tf::Tensor x = tf::constant({1.0, 2.0, 3.0});
  EXPECT_THAT(values<bool>(x == 2.0), ElementsAre(false, true, false));
  EXPECT_THAT(values<bool>(x != 2.0), ElementsAre(true, false, true));
  EXPECT_THAT(values<bool>(x > 1.0), ElementsAre(false, true, true));
  EXPECT_THAT(values<bool>(2.0 >= x), ElementsAre(true, true, false));
  EXPECT_TRUE(tf::reduce_all(x == x).item<bool>());
}

TEST(Names, TheElementsAreASpan) {
  const tf::Tensor x = tf::constant({{1.0, 2.0}, {3.0, 4.0}});
  const std::span<const float> elements = x.numpy();
  EXPECT_EQ(elements.data(), x.data<float>().data()) << "in place";
  EXPECT_THAT(tf::transpose(x).numpy(), ElementsAre(1, 3, 2, 4)) << "a copy, in order";
  EXPECT_EQ(tf::constant({5, 6}).numpy<int32_t>()[1], 6) << "the elements live as long as they are used";
  float sum = 0;
  for (const float element : tf::constant({1.0, 2.0}).numpy()) sum += element;
  EXPECT_EQ(sum, 3);
}

TEST(Names, AxesByPositionListsInBraces) {
  const tf::Tensor x = tf::constant({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_THAT(values(tf::reduce_mean(x, 0)), ElementsAre(2, 3));
  EXPECT_THAT(values(tf::reduce_sum(x, -1)), ElementsAre(3, 7));
  EXPECT_EQ(tf::reduce_sum(x, {0, 1}).item<float>(), 10);
  EXPECT_EQ(tf::reduce_max(x, 1, true).shape(), tf::Shape({2, 1}));
  EXPECT_EQ(tf::reduce_sum(x, {}).item<float>(), 10);
  EXPECT_EQ(tf::stack({x, x}).shape(), tf::Shape({2, 2, 2}));
  EXPECT_EQ(tf::concat({x, x}, 0).shape(), tf::Shape({4, 2}));
  EXPECT_EQ(tf::concat({x, tf::Variable(x)}, 1).shape(), tf::Shape({2, 4}));
  EXPECT_THAT(values<int32_t>(tf::shape(x)), ElementsAre(2, 2));
  tf::Tensor total = tf::zeros({});
  total += 1.0;
  total *= 3.0;
  EXPECT_EQ(total.item<float>(), 3);
}

TEST(Names, MemoryOfOthers) {
  std::vector<float> rows{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(tf::from_blob(rows.data(), {tf::float32, {2, 3}}).numpy().data(), rows.data());
  tf::Tensor x = tf::lend(rows.data(), {tf::float32, {2, 3}});
  const tf::Tensor kept = x;
  tf::give_back(std::move(x));
  rows[0] = 9;
  EXPECT_THAT(values(kept), ElementsAre(1, 2, 3, 4, 5, 6));
}

// --- modules -----------------------------------------------------------------------------------------------

TEST(Names, OfMathAndLinalg) {
  const tf::Tensor x = tf::constant({{1.0, 2.0}, {3.0, 4.0}});
  EXPECT_EQ(tf::math::reduce_sum(x).item<float>(), 10);
  EXPECT_THAT(values(tf::math::square(x)), ElementsAre(1, 4, 9, 16));
  EXPECT_THAT(values<int64_t>(tf::math::argmax(x)), ElementsAre(1, 1));
  EXPECT_THAT(values(tf::linalg::matmul(x, tf::linalg::eye(2))), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(tf::linalg::trace(x).item<float>(), 5);
}

TEST(Names, OfNn) {
  const tf::Tensor x = tf::ones({1, 4, 4, 1});
  const tf::Tensor filters = tf::ones({3, 3, 1, 2});
  EXPECT_EQ(tf::nn::conv2d(x, filters, 1, "SAME").shape(), tf::Shape({1, 4, 4, 2}));
  EXPECT_EQ(tf::nn::conv2d(x, filters, {1, 2, 2, 1}, "VALID").shape(), tf::Shape({1, 1, 1, 2}));
  EXPECT_EQ(tf::nn::conv2d(x, filters, {.padding = "same"}).shape(), tf::Shape({1, 4, 4, 2}));
  EXPECT_EQ(tf::nn::max_pool2d(x).shape(), tf::Shape({1, 2, 2, 1}));
  EXPECT_THAT(values(tf::nn::relu(tf::constant({-1.0, 1.0}))), ElementsAre(0, 1));
  EXPECT_EQ(tf::nn::compute_average_loss(tf::constant({1.0, 3.0})).item<float>(), 2);
  EXPECT_EQ(tf::nn::compute_average_loss(tf::constant({1.0, 3.0}), {.global_batch_size = 4}).item<float>(),
            1);
  EXPECT_EQ(
      tf::nn::compute_average_loss(tf::constant({1.0, 3.0}), {.sample_weight = tf::constant({1.0, 0.0})})
          .item<float>(),
      0.5F);
}

TEST(Names, OfIo) {
  const Folder folder;
  const std::string file = folder.path() + "/note";
  tf::io::write_file(file, "text");
  EXPECT_EQ(tf::io::read_file(file), "text");
  const std::string png = tf::io::encode_png(tf::zeros({2, 3, 1}, tf::uint8));
  EXPECT_EQ(tf::io::decode_png(png).shape(), tf::Shape({2, 3, 1}));
  tf::io::TFRecordWriter writer(folder.path() + "/records");
  writer.write("record");
  writer.close();
}

TEST(Names, OfSummary) {
  const Folder folder;
  const auto writer = tf::summary::create_file_writer(folder.path());
  const uintmax_t before = std::filesystem::file_size(writer.path());
  {
    const auto scope = writer.as_default();
    tf::summary::scalar("loss", tf::constant(0.5), 1);
    tf::summary::scalar("rate", 0.1, 1);
    tf::summary::histogram("weights", tf::constant({1.0, 2.0}), 1);
    tf::summary::flush();
  }
  const uintmax_t after = std::filesystem::file_size(writer.path());
  EXPECT_GT(after, before);
  tf::summary::scalar("loss", 0.5, 2);
  tf::summary::flush();
  writer.flush();
  EXPECT_EQ(std::filesystem::file_size(writer.path()), after) << "outside of the scope nothing is written";
}

TEST(Names, OfErrors) {
  EXPECT_THROW(tf::constant({1.0})[5], tf::errors::InvalidArgumentError);
  EXPECT_THROW(tf::matmul(tf::ones({2, 3}), tf::ones({2, 3})), tf::errors::InvalidArgumentError);
  EXPECT_THROW(tf::io::read_file("/nowhere"), tf::errors::NotFoundError);
  EXPECT_THROW(tf::keras::Model().fit(tf::ones({1, 1}), tf::ones({1, 1})),
               tf::errors::FailedPreconditionError);
  try {  // except RuntimeError as e: print(e)
    (void)tf::device("/gpu:17");
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("GPU:17"));
  }
}

TEST(Names, OfTest) {
  EXPECT_EQ(tf::test::is_gpu_available(), !tf::config::list_physical_devices("GPU").empty());
  EXPECT_EQ(tf::test::gpu_device_name().empty(), tf::config::list_logical_devices("GPU").empty());
  EXPECT_TRUE(tf::test::is_built_with_cuda() || !tf::test::is_gpu_available());
}

// --- devices and strategies --------------------------------------------------------------------------------

TEST(Names, OfDevices) {
  const auto gpus = tf::config::list_physical_devices("GPU");
  if (!gpus.empty()) {
    tf::config::set_visible_devices(gpus[0], "GPU");
    for (const auto& gpu : gpus) tf::config::experimental::set_memory_growth(gpu, true);
  }
  const auto cpus = tf::config::list_physical_devices("CPU");
  tf::config::set_visible_devices(cpus[0], "CPU");
  EXPECT_THAT(tf::config::experimental::list_physical_devices("CPU"), ElementsAre(cpus[0]));
  // Of a CPU memory growth cannot be set: the articles catch it.
  EXPECT_THROW(tf::config::experimental::set_memory_growth(cpus[0], true), std::runtime_error);
}

class NamesOfStrategies : public testing::Test {
 protected:
  tf::distribute::MirroredStrategy strategy_{std::vector<std::string>{"/cpu:0", "/cpu:1"}, {.report = false}};
  void SetUp() override { tf::first_devices(2); }
};

TEST_F(NamesOfStrategies, ALoopAsTheArticlesWriteIt) {
  tf::random::set_seed(1);
  const tf::Tensor x = tf::random::uniform({8, 4}), y = tf::reduce_sum(x, 1, true);
  const auto dataset = tf::data::Dataset::from_tensor_slices({x, y}).batch(4);
  tf::keras::Sequential model;
  tf::keras::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy_.scope();
    EXPECT_EQ(tf::distribute::get_strategy(), strategy_);
    EXPECT_TRUE(tf::distribute::has_strategy());
    model = tf::keras::Sequential({tf::keras::layers::Dense(1, {.input_shape = {4}})});
    optimizer = tf::keras::optimizers::Adam(0.01);
  }
  EXPECT_FALSE(tf::distribute::has_strategy());
  const auto loss_fn = tf::keras::losses::MeanSquaredError();
  const auto train_step = [&](const tf::Tensor& inputs, const tf::Tensor& labels) {
    tf::GradientTape tape;
    const tf::Tensor loss = loss_fn(labels, model(inputs));
    const auto gradients = tape.gradient(loss, model.trainable_variables());
    optimizer.apply_gradients(gradients, model.trainable_variables());
    return loss;
  };
  std::vector<float> losses;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& batch : strategy_.experimental_distribute_dataset(dataset)) {
      const auto loss = strategy_.run(train_step, batch[0], batch[1]);
      losses.push_back(strategy_.reduce(tf::distribute::ReduceOp::SUM, loss).item<float>());
      EXPECT_EQ(strategy_.experimental_local_results(loss).size(), 2u);
    }
  EXPECT_EQ(losses.size(), 4u);
  EXPECT_LT(losses[2], losses[0]);  // of the same batch
}

TEST_F(NamesOfStrategies, TheReplicaContext) {
  const auto ids = strategy_.run([] {
    const auto context = tf::distribute::get_replica_context();
    EXPECT_EQ(context.num_replicas_in_sync(), 2);
    return context.all_reduce(tf::distribute::ReduceOp::SUM, context.replica_id_in_sync_group());
  });
  EXPECT_EQ(strategy_.reduce(tf::distribute::ReduceOp::MEAN, ids).item<int32_t>(), 1);
}

TEST_F(NamesOfStrategies, WhatIsNotDistributedSaysSo) {
  const tf::Tensor x = tf::ones({8, 4});
  const auto mean = [](const tf::Tensor& t) { return tf::nn::compute_average_loss(tf::reduce_sum(t, 1)); };
  try {
    strategy_.run(mean, x);
    FAIL();
  } catch (const tf::Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("distribute() it"));
  }
  try {
    for (const auto& batch : tf::data::Dataset::from_tensor_slices(x).batch(4)) strategy_.run(mean, batch);
    FAIL();
  } catch (const tf::Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("distribute() it"));
  }
  EXPECT_EQ(strategy_.reduce(tf::distribute::ReduceOp::SUM, strategy_.run(mean, strategy_.distribute(x)))
                .item<float>(),
            4);
}

// --- keras -------------------------------------------------------------------------------------------------

tf::keras::Sequential small_model() {
  return tf::keras::models::Sequential({tf::keras::layers::Input({4}),
                                        tf::keras::layers::Dense(3, {.activation = "relu"}),
                                        tf::keras::layers::Dense(1)});
}

TEST(Names, OfLayers) {
  const tf::keras::Sequential model({
      tf::keras::layers::InputLayer({.input_shape = {8, 8, 1}}),
      tf::keras::layers::Conv2D(4, 3, {.activation = "relu"}),
      tf::keras::layers::MaxPooling2D(2),
      tf::keras::layers::MaxPooling2D({1, 3}),
      tf::keras::layers::Flatten(),
      tf::keras::layers::Dense(2),
  });
  EXPECT_EQ(model.layers().size(), 5u) << "the input is no layer";
  EXPECT_TRUE(model.built());
  EXPECT_EQ(model(tf::ones({2, 8, 8, 1})).shape(), tf::Shape({2, 2}));
  EXPECT_EQ(small_model().count_params(), 4 * 3 + 3 + 3 + 1);
  EXPECT_EQ(model.trainable_variables().size(), 4u);
  EXPECT_EQ(model.variables().size(), 4u);
  EXPECT_THAT(model.non_trainable_variables(), IsEmpty());
}

TEST(Names, OfOptimizers) {
  EXPECT_FLOAT_EQ(tf::keras::optimizers::Adam(0.01).current_learning_rate(), 0.01F);
  EXPECT_FLOAT_EQ(tf::keras::optimizers::SGD(0.1, {.momentum = 0.9}).current_learning_rate(), 0.1F);
  const auto decay = tf::keras::optimizers::schedules::CosineDecay(0.02, 100);
  EXPECT_FLOAT_EQ(tf::keras::optimizers::RMSprop(decay).current_learning_rate(), 0.02F);
  tf::keras::optimizers::Optimizer later;
  EXPECT_FALSE(later.defined());
  later = tf::keras::optimizers::AdamW({.learning_rate = 0.01, .weight_decay = 0.1, .beta_1 = 0.8});
  EXPECT_TRUE(later.defined());
}

TEST(Names, OfTraining) {
  const auto model = small_model();
  model.compile({.optimizer = "adam", .loss = "mse", .metrics = "mae"});
  const tf::Tensor x = tf::random::uniform({8, 4}), y = tf::ones({8, 1});
  const tf::keras::Logs logs = model.train_on_batch(x, y);
  EXPECT_GT(logs["loss"], 0);
  EXPECT_GT(model.test_on_batch(x, y)["mae"], 0);
  const auto history = model.fit(x, y, {.batch_size = 4, .epochs = 2, .verbose = 0});
  EXPECT_EQ(history["loss"].size(), 2u);
}

TEST(Names, SummaryPrints) {
  testing::internal::CaptureStdout();
  small_model().summary();
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("Trainable params: 19"));
  std::string text;
  small_model().summary({.print_fn = [&](const std::string& part) { text += part; }});
  EXPECT_THAT(text, HasSubstr("Total params: 19"));
}

TEST(Names, DataSetsAreLoaded) {
  try {
    tf::keras::datasets::mnist::load_data({.folder = "/nowhere", .download = false});
  } catch (const tf::Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("train-images"));
  }
  const auto [train, test] = tf::keras::datasets::digits({.train_size = 10, .test_size = 5});
  const auto [x_train, y_train] = train;
  EXPECT_EQ(x_train.shape(), tf::Shape({10, 28, 28}));
  EXPECT_EQ(tf::keras::utils::to_categorical(y_train, 10).shape(), tf::Shape({10, 10}));
}

TEST(Names, CheckpointsByKeyword) {
  const Folder folder;
  const auto model = small_model();
  auto optimizer = tf::keras::optimizers::Adam(0.01);
  optimizer.build(model.trainable_variables());
  const tf::train::Checkpoint checkpoint({.optimizer = optimizer, .model = model});
  checkpoint.save(folder.path() + "/ckpt");
  checkpoint.wait();
  const auto saved = model.trainable_variables()[0].value();
  model.trainable_variables()[0].assign(tf::zeros_like(saved));
  checkpoint.restore(tf::train::latest_checkpoint(folder.path())).assert_consumed();
  EXPECT_TRUE(tf::reduce_all(model.trainable_variables()[0] == saved).item<bool>());
}

TEST(Names, FunctionsRunEagerlyForDebugging) {
  int calls = 0;
  auto f = tf::function([&](const tf::Tensor& x) {
    ++calls;
    return x + 1.0;
  });
  f(tf::ones({2})), f(tf::ones({2}));
  EXPECT_EQ(calls, 1);
  tf::config::run_functions_eagerly(true);
  f(tf::ones({2})), f(tf::ones({2}));
  tf::config::run_functions_eagerly(false);
  EXPECT_EQ(calls, 3) << "the C++ of a step runs with every call, and sees values";
  f(tf::ones({2}));
  EXPECT_EQ(calls, 3);
}

// A model of one's own, as Keras' guides write it: layers are members, and call() uses them.
class TwoLayers final : public tf::keras::ModelBase {
 public:
  tf::Tensor call(const tf::Tensor& x, const tf::keras::CallContext&) override { return second_(first_(x)); }

 private:
  tf::keras::Layer first_ = tf::keras::layers::Dense(4, {.activation = "relu"});
  tf::keras::Layer second_ = tf::keras::layers::Dense(1);
};

TEST(Names, ASubclassNeedsNoTrack) {
  const tf::keras::Model model = tf::keras::make_model<TwoLayers>();
  model.compile({.optimizer = "adam", .loss = "mse"});
  const tf::Tensor x = tf::random::uniform({16, 3}), y = tf::reduce_sum(x, 1, true);
  const auto history = model.fit(x, y, {.epochs = 20, .verbose = 0});
  EXPECT_EQ(model.trainable_variables().size(), 4u);
  EXPECT_EQ(model.layers().size(), 2u);
  EXPECT_LT(history["loss"].back(), history["loss"].front());
}

// --- the page ----------------------------------------------------------------------------------------------

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Every name in the first column of the tables of names in docs/names.md is used in this file.
TEST(Names, OfThePageAreUsedHere) {
  const std::string all = text_of(LOCKSTEP_SOURCE_DIR "/docs/names.md");
  const std::string page = all.substr(0, all.find("## When it does not compile"));
  const std::string here = text_of(LOCKSTEP_SOURCE_DIR "/tests/names_test.cc");
  const std::regex row("\n\\| ((?:`[^`]+`,? ?)+) \\|"), code("`([^`]+)`");
  const std::regex name("(?:[A-Za-z_]\\w*(?:::|\\.))*([A-Za-z_]\\w*)");
  int names = 0;
  for (auto it = std::sregex_iterator(page.begin(), page.end(), row); it != std::sregex_iterator(); ++it) {
    const std::string cell = (*it)[1];
    for (auto part = std::sregex_iterator(cell.begin(), cell.end(), code); part != std::sregex_iterator();
         ++part) {
      const std::string text = (*part)[1];
      std::smatch found;
      ASSERT_TRUE(std::regex_search(text, found, name)) << text;
      ++names;
      EXPECT_THAT(here, HasSubstr(found[1].str()))
          << text << " stands in docs/names.md, and nothing here uses it";
    }
  }
  EXPECT_GT(names, 60);
}

}  // namespace
