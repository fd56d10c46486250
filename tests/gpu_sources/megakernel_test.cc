// Small programs as one kernel, as text that compiles.
#include <functional>
#include <set>

#include "gpu/small_nets.h"
#include "gpu_sources/gpu_sources.h"
#include "lockstep/autodiff/gradient_tape.h"
#include "lockstep/execute/function.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/linalg.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/nn.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::testing {
namespace {

class MegakernelSources : public GpuSources {
 protected:
  // The ops of the megakernels that `program` makes; it launches them.
  static std::vector<std::set<std::string>> made_by(const std::function<void()>& program) {
    const DeviceScope scope(gpu());
    const Made& all = driver().made();
    const size_t before = all.megakernels.size();
    const int launched_before = launches_of("megakernel");
    program();
    std::vector<std::set<std::string>> made;
    for (size_t i = before; i < all.megakernels.size(); ++i)
      made.emplace_back(all.megakernels[i].begin(), all.megakernels[i].end());
    EXPECT_EQ(launches_of("megakernel") - launched_before, static_cast<int>(made.size()));
    return made;
  }
};

template <class N>
void step(const N& net, const Shape& inputs) {
  const keras::Model model = made(net);
  model.train_on_batch(
      keras::Batch{{models::random_inputs(inputs, 1)}, {models::random_labels(net.batch, 10, 1)}, {}});
}

const ExampleNet& example_net(std::string_view name) {
  static const std::vector<ExampleNet> nets = example_nets();
  return *std::find_if(nets.begin(), nets.end(), [&](const ExampleNet& net) { return net.name == name; });
}

// Two layers, and a loss of the logits and the labels.
void train_on(const std::function<Tensor(const Tensor& logits, const Tensor& labels)>& loss_of) {
  const std::vector<Variable> weights = {Variable(Tensor::full(DType::float32, {40, 16}, 0.1)),
                                         Variable(Tensor::full(DType::float32, {16, 10}, 0.1))};
  const auto optimizer = keras::optimizers::SGD();
  auto step = function([&](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor loss = loss_of(matmul(tanh(matmul(x, weights[0].value())), weights[1].value()), y);
    optimizer.apply_gradients(tape.gradient(loss, weights), weights);
    return loss;
  });
  step(Tensor::full(DType::float32, {32, 40}, 0.5), Tensor::full(DType::int32, {32}, 3.0));
}

// A program, and the ops with rules for which it is there.
struct OpsCase {
  const char* name;
  std::set<std::string> ops;
  std::function<void()> run;
};
void PrintTo(const OpsCase& c, std::ostream* out) { *out << c.name; }

std::vector<OpsCase> ops_cases() {
  const auto net = [](std::string_view name) {
    return [name] {
      const ExampleNet& found = example_net(name);
      step(found, batch_shape(found));
    };
  };
  const auto loss = [](Tensor (*of)(const Tensor& logits, const Tensor& labels)) {
    return [of] { train_on(of); };
  };
  return {
      {"Mlp",
       {"matmul", "argmax", "reduce_sum", "sparse_softmax_cross_entropy_with_grad"},
       [] {
         step(Net{}, {32, 784});
       }},
      {"LeNet",
       {"conv2d", "conv2d_backprop_filter", "conv2d_backprop_input", "max_pool2d", "max_pool2d_grad"},
       net("lenet")},
      // Windows that overlap, which have code of their own.
      {"OddWindows",
       {"conv2d", "conv2d_backprop_filter", "conv2d_backprop_input", "max_pool2d", "max_pool2d_grad"},
       net("odd windows")},
      {"Causal", {"attention", "attention_grad", "layer_norm", "layer_norm_grad"}, net("causal")},
      {"LogSoftmax", {"one_hot", "log_softmax"}, loss([](const Tensor& z, const Tensor& y) {
         return -reduce_mean(reduce_sum(one_hot(y, 10) * log_softmax(z), {-1}));
       })},
      {"Softmax", {"softmax"}, loss([](const Tensor& z, const Tensor& y) {
         return reduce_mean(square(softmax(z) - one_hot(y, 10)));
       })},
      {"Folds", {"reduce_max", "reduce_min", "reduce_prod"}, loss([](const Tensor& z, const Tensor&) {
         // The gradient of a product is made of cumulative ones, which no megakernel computes.
         return reduce_mean(
             square(reduce_max(z, {-1}) - reduce_min(z, {-1}) * reduce_prod(stop_gradient(z), {-1})));
       })},
      // What arrives at the loss depends on it, so that its gradient is an op of its own.
      {"LossAndGradient",
       {"sparse_softmax_cross_entropy", "sparse_softmax_cross_entropy_grad"},
       loss([](const Tensor& z, const Tensor& y) {
         return reduce_mean(square(sparse_softmax_cross_entropy_with_logits(y, z)));
       })},
  };
}

class MegakernelSourcesOf : public MegakernelSources, public ::testing::WithParamInterface<OpsCase> {};

TEST_P(MegakernelSourcesOf, Compile) {
  const auto made = made_by(GetParam().run);
  ASSERT_EQ(made.size(), 1U);
  for (const std::string& op : GetParam().ops) EXPECT_TRUE(made[0].contains(op)) << op;
}

INSTANTIATE_TEST_SUITE_P(All, MegakernelSourcesOf, ::testing::ValuesIn(ops_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(MegakernelSources, EveryRuleIsInOneOfThem) {
  std::set<std::string> met;
  for (const OpsCase& c : ops_cases()) met.insert(c.ops.begin(), c.ops.end());
  for (const std::string& op : driver().ops_with_rules())
    EXPECT_TRUE(met.contains(op)) << "the op \"" << op << "\" has a rule, and no case here";
}

TEST_F(MegakernelSources, OfAllNetsThatGpusAreTestedWithLong) {
  for (const ExampleNet& net : example_nets()) {
    SCOPED_TRACE(net.name);
    EXPECT_EQ(made_by([&] { step(net, batch_shape(net)); }).size(), 1U);
  }
  const std::vector<Net> nets = small_nets();
  for (size_t i = 0; i < nets.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(made_by([&] {
                step(nets[i], {nets[i].batch, nets[i].inputs});
              }).size(),
              nets[i].joins ? 1U : 0U);
  }
}

}  // namespace
}  // namespace lockstep::testing
