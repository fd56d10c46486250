#include "lockstep/keras/regularizers.h"

#include "keras/rule_test.h"

namespace lockstep::keras {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the helpers

const Tensor& matrix() {
  static const Tensor all = Tensor::from<float>(
      {-1.972, -0.318, -0.148, -1.778, 0.166, 0.432, 1.314, 1.768, -1.488, -1.078, 0.636, -1.47}, {3, 4});
  return all;
}

struct Case {
  const char* json;
  std::vector<double> values;
};

// clang-format off
const Case kCases[] = {
    {R"({"module": "keras.regularizers", "class_name": "L1", "config": {"l1": 0.019999999552965164}, "registered_name": null})", {0.251359999}},
    {R"({"module": "keras.regularizers", "class_name": "L2", "config": {"l2": 0.03}, "registered_name": null})", {0.545439601}},
    {R"({"module": "keras.regularizers", "class_name": "L1L2", "config": {"l1": 0.02, "l2": 0.03}, "registered_name": null})", {0.7967996}},
    {R"({"module": "keras.regularizers", "class_name": "OrthogonalRegularizer", "config": {"factor": 0.5, "mode": "rows"}, "registered_name": null})", {0.328328103}},
    {R"({"module": "keras.regularizers", "class_name": "OrthogonalRegularizer", "config": {"factor": 0.5, "mode": "columns"}, "registered_name": null})", {0.24870123}},
};
// clang-format on

TEST(Regularizers, AreKerasValues) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const Regularizer regularizer = Regularizer::deserialize(Json::parse(c.json));
    EXPECT_TRUE(near(regularizer(matrix()), c.values));
    expect_written(regularizer.serialize(), Json::parse(c.json));
    EXPECT_EQ(regularizer.serialize().at("module"), Json("keras.regularizers"));
  }
  EXPECT_TRUE(near(Regularizer("l2")(matrix()), {0.545439601 / 3}));
  EXPECT_TRUE(near(regularizers::L1L2()(matrix()), {0}));
}

TEST(Regularizers, RefuseWhatIsNoFactor) {
  EXPECT_THROW(regularizers::L1(-1), Error);
  EXPECT_THROW(regularizers::OrthogonalRegularizer({.mode = "diagonals"}), Error);
  EXPECT_THROW(regularizers::OrthogonalRegularizer()(Tensor::scalar(1.0f)), Error);
  EXPECT_THROW(Regularizer("l3"), Error);
  EXPECT_FALSE(Regularizer::deserialize({}).defined());
  EXPECT_TRUE(Regularizer().serialize().is_null());
}

}  // namespace
}  // namespace lockstep::keras
