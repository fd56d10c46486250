#include "lockstep/keras/activations.h"

#include "keras/built_in_activations.h"
#include "keras/rule_test.h"
#include "lockstep/keras/layer.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  std::vector<double> values;  // at kAt
};
const std::vector<float> kAt = {-7, -2, -1, -0.5, -0.1, 0, 0.2, 0.5, 1, 2, 3.5, 7};

// clang-format off
const Case kCases[] = {
    {"celu", {-0.999088109, -0.864664733, -0.63212055, -0.393469334, -0.095162563, 0, 0.200000003, 0.5, 1, 2, 3.5, 7}},
    {"elu", {-0.999088109, -0.864664733, -0.63212055, -0.393469334, -0.095162563, 0, 0.200000003, 0.5, 1, 2, 3.5, 7}},
    {"exponential", {0.000911881973, 0.135335281, 0.36787945, 0.606530666, 0.90483743, 1, 1.22140276, 1.64872122, 2.71828175, 7.38905621, 33.1154518, 1096.63318}},
    {"gelu", {-8.95868796e-12, -0.0455002673, -0.158655271, -0.154268771, -0.0460172184, 0, 0.115851939, 0.345731229, 0.841344714, 1.95449972, 3.4991858, 7}},
    {"glu", {-3.84883761, -1.2449187, -0.731058598, -0.440398514, -0.0970687792, 0}},
    {"hard_shrink", {-7, -2, -1, 0, 0, 0, 0, 0, 1, 2, 3.5, 7}},
    {"hard_sigmoid", {0, 0.166666672, 0.333333343, 0.416666687, 0.483333349, 0.5, 0.533333361, 0.583333373, 0.666666687, 0.833333373, 1, 1}},
    {"hard_silu", {-0, -0.333333343, -0.333333343, -0.208333343, -0.0483333357, 0, 0.106666677, 0.291666687, 0.666666687, 1.66666675, 3.5, 7}},
    {"hard_swish", {-0, -0.333333343, -0.333333343, -0.208333343, -0.0483333357, 0, 0.106666677, 0.291666687, 0.666666687, 1.66666675, 3.5, 7}},
    {"hard_tanh", {-1, -1, -1, -0.5, -0.100000001, 0, 0.200000003, 0.5, 1, 1, 1, 1}},
    {"leaky_relu", {-1.39999998, -0.400000006, -0.200000003, -0.100000001, -0.0200000014, 0, 0.200000003, 0.5, 1, 2, 3.5, 7}},
    {"linear", {-7, -2, -1, -0.5, -0.100000001, 0, 0.200000003, 0.5, 1, 2, 3.5, 7}},
    {"log_sigmoid", {-7.00091124, -2.12692809, -1.31326175, -0.974076986, -0.744396687, -0.693147182, -0.598138928, -0.474076986, -0.313261688, -0.126928002, -0.0297504179, -0.000911466486}},
    {"log_softmax", {-14.043807, -9.04380703, -8.04380703, -7.54380751, -7.14380741, -7.04380751, -6.8438077, -6.54380751, -6.04380751, -5.04380751, -3.54380727, -0.0438073799}},
    {"mish", {-0.00638026278, -0.252501458, -0.30340144, -0.220743775, -0.0567885749, 0, 0.132599026, 0.375245243, 0.865098476, 1.943959, 3.49399066, 6.99998903}},
    {"relu", {0, 0, 0, 0, 0, 0, 0.200000003, 0.5, 1, 2, 3.5, 7}},
    {"relu6", {0, 0, 0, 0, 0, 0, 0.200000003, 0.5, 1, 2, 3.5, 6}},
    {"selu", {-1.75649607, -1.52016652, -1.11133075, -0.691758215, -0.167305246, 0, 0.210140213, 0.525350511, 1.05070102, 2.10140204, 3.67745352, 7.35490704}},
    {"sigmoid", {0.000911051175, 0.119202919, 0.268941432, 0.377540678, 0.475020796, 0.5, 0.549833953, 0.622459352, 0.731058598, 0.880797029, 0.970687747, 0.999089003}},
    {"silu", {-0.00637735799, -0.238405839, -0.268941432, -0.188770339, -0.0475020818, 0, 0.109966792, 0.311229676, 0.731058598, 1.76159406, 3.39740705, 6.99362278}},
    {"soft_shrink", {-6.5, -1.5, -0.5, 0, 0, 0, 0, 0, 0.5, 1.5, 3, 6.5}},
    {"softmax", {7.95888013e-07, 0.000118120246, 0.000321084139, 0.000529378245, 0.000789739599, 0.000872797158, 0.00106603664, 0.0014389992, 0.00237250864, 0.00644914713, 0.0289030727, 0.9571383}},
    {"softplus", {0.000911466486, 0.126928002, 0.313261688, 0.474076986, 0.644396663, 0.693147182, 0.798138916, 0.974076986, 1.31326175, 2.12692809, 3.52975035, 7.00091124}},
    {"softsign", {-0.875, -0.666666687, -0.5, -0.333333343, -0.0909090936, 0, 0.166666657, 0.333333343, 0.5, 0.666666687, 0.777777791, 0.875}},
    {"sparse_plus", {0, 0, 0, 0.0625, 0.202499986, 0.25, 0.360000014, 0.5625, 1, 2, 3.5, 7}},
    {"sparse_sigmoid", {0, 0, 0, 0.25, 0.449999988, 0.5, 0.600000024, 0.75, 1, 1, 1, 1}},
    {"sparsemax", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
    {"squareplus", {0.140054941, 0.414213538, 0.618034005, 0.780776381, 0.951249182, 1, 1.10498762, 1.28077638, 1.61803401, 2.41421366, 3.76556444, 7.1400547}},
    {"swish", {-0.00637735799, -0.238405839, -0.268941432, -0.188770339, -0.0475020818, 0, 0.109966792, 0.311229676, 0.731058598, 1.76159406, 3.39740705, 6.99362278}},
    {"tanh", {-0.999998331, -0.964027584, -0.761594176, -0.462117165, -0.0996679887, 0, 0.197375283, 0.462117165, 0.761594176, 0.964027584, 0.998177946, 0.999998331}},
    {"tanh_shrink", {-6.00000191, -1.03597236, -0.238405824, -0.0378828347, -0.000332012773, 0, 0.00262472034, 0.0378828347, 0.238405824, 1.03597236, 2.50182199, 6.00000191}},
};
// clang-format on

Tensor at() { return Tensor::from(kAt, {1, static_cast<int64_t>(kAt.size())}); }

TEST(Activations, AreKerasValues) {
  for (const Case& c : kCases) EXPECT_TRUE(near(Activation(c.name)(at()), c.values)) << c.name;
}

TEST(Activations, SparsemaxOfSeveral) {
  const Tensor x = Tensor::from<float>({0.1, 0.5, 0.3, 2, 2, -1}, {2, 3});
  EXPECT_TRUE(near(Activation("sparsemax")(x), {0.1333333, 0.5333333, 0.3333333, 0.5, 0.5, 0}));
}

TEST(Activations, AreWrittenByName) {
  for (const Case& c : kCases) {
    const Json json = Activation(c.name).serialize();
    EXPECT_EQ(Activation::deserialize(json).name(), json.as_string());
  }
  EXPECT_EQ(Activation("swish").serialize(), Json("silu"));
  EXPECT_EQ(Activation().serialize(), Json("linear"));
  EXPECT_TRUE(Activation("linear").linear());
  EXPECT_TRUE(Activation::deserialize({}).linear());
}

TEST(Activations, OfOnesOwn) {
  const Activation cube = [](const Tensor& x) { return x * x * x; };
  EXPECT_TRUE(near(cube(Tensor::scalar(2.0f)), {8}));
  EXPECT_EQ(error_of([&] { cube.serialize(); }).code(), ErrorCode::unsupported);
  activations::register_activation("my>cube", [](const Tensor& x) { return x * x * x; });
  const Json json = Json::parse(R"({"module": "builtins", "class_name": "function", "config": "my>cube"})");
  EXPECT_TRUE(near(Activation::deserialize(json)(Tensor::scalar(3.0f)), {27}));
  // As Keras has it, which looks for a plain string among its own functions alone.
  const Json written = Activation("my>cube").serialize();
  EXPECT_EQ(written.at("class_name"), Json("function"));
  EXPECT_EQ(written.at("config"), Json("cube"));
  EXPECT_EQ(written.at("registered_name"), Json("my>cube"));
  EXPECT_TRUE(near(Activation::deserialize(written)(Tensor::scalar(3.0f)), {27}));
}

TEST(Activations, LayersWithoutWeights) {
  const Json json =
      Json::parse(R"({"module": "keras.layers", "class_name": "LeakyReLU", "registered_name": null,
                                    "config": {"name": "leaky", "trainable": true, "negative_slope": 0.25}})");
  const Activation leaky = Activation::deserialize(json);
  EXPECT_TRUE(near(leaky(Tensor::from<float>({-4, 2}, {2})), {-1, 2}));
  EXPECT_EQ(leaky.serialize(), json);
  const Layer dense = Layer::deserialize(Json::object(
      {{"class_name", "Dense"},
       {"config", Json::object({{"units", 1}, {"activation", json}, {"kernel_initializer", "ones"}})}}));
  EXPECT_TRUE(near(dense(Tensor::from<float>({-3, -5}, {1, 2})), {-2}));
  EXPECT_EQ(dense.serialize().at("config").at("activation"), json);
  const Json learns = Json::parse(R"({"class_name": "PReLU", "config": {}})");
  EXPECT_EQ(error_of([&] { Activation::deserialize(learns)(ones({1, 2})); }).code(), ErrorCode::unsupported);
}

TEST(Activations, TheLibrarysAreTold) {
  EXPECT_TRUE(is_built_in_activation("tanh"));
  EXPECT_TRUE(is_built_in_activation("sigmoid"));
  EXPECT_FALSE(is_built_in_activation("custom"));
  activations::register_activation("tanh_of_a_test", [](const Tensor& x) { return tanh(x); });
  EXPECT_FALSE(is_built_in_activation("tanh_of_a_test"));
}

TEST(Activations, ThatDoNotExistSaySo) {
  const uint32_t line = std::source_location::current().line() + 1;
  const Error error = error_of([] { Activation("rellu"); });
  EXPECT_EQ(error.where().line(), line);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("did you mean \"relu\"?"), HasSubstr("sigmoid")));
}

}  // namespace
}  // namespace lockstep::keras
