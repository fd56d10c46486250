// Small programs that a GPU runs as one kernel, against the same programs launched step by step.
#include <cmath>
#include <cstdlib>
#include <limits>

#include "gpu/gpu.h"
#include "gpu/outcome.h"
#include "gpu/small_nets.h"
#include "lockstep/execute/function.h"
#include "lockstep/keras/callbacks.h"

namespace lockstep::testing {
namespace {

class Megakernel : public Gpu {
 protected:
  void TearDown() override { unsetenv("LOCKSTEP_WHOLE_STEP_FUSION"); }
  static void join(bool on) { setenv("LOCKSTEP_WHOLE_STEP_FUSION", on ? "1" : "0", 1); }
};

Outcome train(Device& device, const Net& net, int steps = 5) {
  const DeviceScope scope(device);
  keras::Sequential model = made(net);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const keras::Logs logs =
        model.train_on_batch(keras::Batch{{models::random_inputs({net.batch, net.inputs}, seed)},
                                          {models::random_labels(net.batch, 10, seed)},
                                          {}});
    outcome.losses.push_back(logs.find("loss").value());
    outcome.losses.push_back(logs.find("accuracy").value());
  }
  for (const Variable& variable : model.weights())
    outcome.weights.push_back(variable.value().to_vector<float>());
  return outcome;
}

TEST_F(Megakernel, EqualStepsOneByOneLong) {
  const std::vector<Net> nets = small_nets();
  for (size_t i = 0; i < nets.size(); ++i) {
    SCOPED_TRACE(i);
    join(false);
    const Outcome apart = train(gpu(), nets[i]);
    join(true);
    const Outcome joined = train(gpu(), nets[i]);
    EXPECT_EQ(joined.weights != apart.weights, nets[i].joins) << "sums have another order, if it was joined";
    expect_close(apart, joined, 1e-4);
    // The same bits every time.
    const Outcome again = train(gpu(), nets[i]);
    EXPECT_EQ(joined.losses, again.losses);
    EXPECT_EQ(joined.weights, again.weights);
  }
}

// One step on a batch in which one pixel is this number: what the loss and every weight become.
std::vector<float> after_a_pixel(Device& device, const Net& net, float pixel) {
  const DeviceScope scope(device);
  keras::Sequential model = made(net);
  std::vector<float> x = models::random_inputs({net.batch, net.inputs}, 1).to_vector<float>();
  x[x.size() / 2] = pixel;
  const keras::Logs logs = model.train_on_batch(keras::Batch{
      {Tensor::from(x, {net.batch, net.inputs})}, {models::random_labels(net.batch, 10, 1)}, {}});
  std::vector<float> all = {static_cast<float>(logs.find("loss").value())};
  for (const Variable& variable : model.weights()) {
    const std::vector<float> values = variable.value().to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_F(Megakernel, NaNAndInfinityGoWhereTheyGoOneByOne) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const char* activation : {"relu", "tanh", "sigmoid", "gelu"})
    for (const float pixel : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf,
                              std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest()}) {
      SCOPED_TRACE(activation + std::string(" of ") + std::to_string(pixel));
      const Net net{.hidden = {64}, .batch = 32, .optimizer = "sgd", .activation = activation};
      join(false);
      const std::vector<float> apart = after_a_pixel(gpu(), net, pixel);
      join(true);
      const std::vector<float> joined = after_a_pixel(gpu(), net, pixel);
      ASSERT_EQ(joined.size(), apart.size());
      EXPECT_TRUE(!std::isnan(pixel) || std::isnan(joined[0]));
      for (size_t i = 0; i < apart.size(); ++i)
        ASSERT_TRUE(std::isnan(apart[i]) == std::isnan(joined[i]) &&
                    std::isinf(apart[i]) == std::isinf(joined[i]))
            << "number " << i << " is " << joined[i] << ", one by one " << apart[i];
    }
}

TEST_F(Megakernel, ALargeProgramKeepsItsKernels) {
  const Net net{.hidden = {2048, 2048}, .batch = 512};
  join(false);
  const Outcome apart = train(gpu(), net, 2);
  join(true);
  const Outcome same = train(gpu(), net, 2);
  EXPECT_EQ(apart.losses, same.losses);
  EXPECT_EQ(apart.weights, same.weights);
}

TEST_F(Megakernel, RefuseALabelThatDoesNotExist) {
  const DeviceScope scope(gpu());
  models::Mlp model(7);
  auto optimizer = keras::optimizers::SGD();
  auto step =
      function([&](const Tensor& x, const Tensor& y) { return models::train_step(model, optimizer, x, y); });
  const Tensor x = models::random_inputs({4, 784}, 1);
  step(x, Tensor::from<int32_t>({1, 2, 3, 4}, {4}));
  gpu().synchronize();
  step(x, Tensor::from<int32_t>({1, 2, 11, 4}, {4}));
  EXPECT_THROW(gpu().synchronize(), Error);
}

// --- several steps per launch, on rows of arrays that are on the GPU ---------------------------------------

struct Fit {
  std::vector<double> losses, accuracies;
  std::vector<std::vector<float>> weights;
};

Fit fitted(Device& device, int64_t examples, int64_t batch, int steps_per_execution, bool shuffle,
           bool on_card) {
  const DeviceScope scope(device);
  keras::Sequential model = made({.hidden = {32}, .inputs = 50}, steps_per_execution);
  Tensor x = models::random_inputs({examples, 50}, 5), y = models::random_labels(examples, 10, 5);
  if (on_card) x = x.to(device), y = y.to(device);
  const keras::History history =
      model.fit({x, y}, {.batch_size = batch, .epochs = 2, .verbose = 0, .shuffle = shuffle});
  Fit fit{history["loss"], history["accuracy"], {}};
  for (const Variable& variable : model.weights()) fit.weights.push_back(variable.value().to_vector<float>());
  return fit;
}

TEST_F(Megakernel, SeveralStepsPerLaunchAreTheSameSteps) {
  for (const bool shuffle : {false, true}) {
    SCOPED_TRACE(shuffle);
    // 200 examples make six whole batches and a part of one.
    const Fit one = fitted(gpu(), 200, 32, 1, shuffle, false);
    for (const int steps : {2, 4, 100})
      for (const bool on_card : {false, true}) {
        SCOPED_TRACE(steps);
        const Fit many = fitted(gpu(), 200, 32, steps, shuffle, on_card);
        EXPECT_EQ(one.losses, many.losses);
        EXPECT_EQ(one.accuracies, many.accuracies);
        EXPECT_EQ(one.weights, many.weights);
      }
    join(false);
    const Fit apart = fitted(gpu(), 200, 32, 4, shuffle, true);
    join(true);
    for (size_t i = 0; i < apart.losses.size(); ++i) EXPECT_NEAR(apart.losses[i], one.losses[i], 1e-4);
    const Fit on_cpu = fitted(cpu(), 200, 32, 4, shuffle, false);
    for (size_t i = 0; i < apart.losses.size(); ++i) EXPECT_NEAR(on_cpu.losses[i], one.losses[i], 1e-3);
  }
}

class Ear final : public keras::CallbackBase {
 public:
  explicit Ear(bool every) : every_(every) {}
  bool needs_every_batch() const override { return every_; }
  void on_train_batch_end(int64_t batch, const keras::Logs&) override { batches.push_back(batch); }
  std::vector<int64_t> batches;

 private:
  bool every_;
};

TEST_F(Megakernel, CallbacksThatNeedEveryBatchHearOfIt) {
  const DeviceScope scope(gpu());
  keras::Sequential model = made({.hidden = {32}, .inputs = 50});
  const keras::Data data(models::random_inputs({200, 50}, 5), models::random_labels(200, 10, 5));
  const auto every = std::make_shared<Ear>(true), some = std::make_shared<Ear>(false);
  model.fit(data, {.batch_size = 32, .verbose = 0, .callbacks = {keras::Callback(every)}});
  EXPECT_EQ(every->batches, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  model.fit(data, {.batch_size = 32, .verbose = 0, .callbacks = {keras::Callback(some)}});
  EXPECT_EQ(some->batches, (std::vector<int64_t>{6})) << "six whole batches and the rest, told of together";
}

// They are queued in no time: the clock sees what they take where the next ones wait for them.
TEST_F(Megakernel, TheStepClockSeesWhatTheGpuTakes) {
  const DeviceScope scope(gpu());
  keras::Sequential model = made({.hidden = {128}, .inputs = 784});
  const keras::Data data(models::random_inputs({32768, 784}, 5), models::random_labels(32768, 10, 5));
  model.fit(data, {.batch_size = 32, .verbose = 0});  // compiles
  const observe::RunSummary time = model.fit(data, {.batch_size = 32, .epochs = 4, .verbose = 0}).time;
  const observe::ReplicaSummary& replica = time.replicas[0];
  EXPECT_EQ(replica.wall.count, 4096);
  EXPECT_GT(replica[observe::Category::compute].total, replica.wall.total / 2) << observe::to_text(time);
}

// The order does not depend on where it is made.
TEST_F(Megakernel, PermutationsAreTheCpus) {
  for (const int64_t count : {1, 10, 5000, 60000}) {
    const auto made_on = [&](Device& device) {
      const DeviceScope scope(device);
      const random::Generator generator(3);
      return random::permutation(count, {.generator = &generator}).to_vector<int64_t>();
    };
    EXPECT_EQ(made_on(gpu()), made_on(cpu())) << count;
  }
}

}  // namespace
}  // namespace lockstep::testing
