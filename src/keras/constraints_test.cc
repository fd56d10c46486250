#include "lockstep/keras/constraints.h"

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
    {R"({"module": "keras.constraints", "class_name": "MaxNorm", "config": {"max_value": 1.5, "axis": 0}, "registered_name": null})", {-1.19467783, -0.317999959, -0.147999987, -0.917584002, 0.100566186, 0.431999952, 1.31399989, 0.912423253, -0.901460826, -1.07799983, 0.635999918, -0.758632481}},
    {R"({"module": "keras.constraints", "class_name": "MaxNorm", "config": {"max_value": 2.5, "axis": [0, 1]}, "registered_name": null})", {-1.15620327, -0.186446562, -0.0867738798, -1.04245913, 0.0973274484, 0.253285915, 0.770411313, 1.03659606, -0.872429252, -0.63204211, 0.372893125, -0.861875653}},
    {R"({"module": "keras.constraints", "class_name": "NonNeg", "config": {}, "registered_name": null})", {0, 0, 0, 0, 0.165999994, 0.432000011, 1.31400001, 1.76800001, 0, 0, 0.635999978, 0}},
    {R"({"module": "keras.constraints", "class_name": "UnitNorm", "config": {"axis": 1}, "registered_name": null})", {-0.736297905, -0.118733637, -0.0552596822, -0.663862944, 0.073747918, 0.191922292, 0.583763659, 0.785459757, -0.610450387, -0.442248285, 0.260918289, -0.603065908}},
    {R"({"module": "keras.constraints", "class_name": "MinMaxNorm", "config": {"min_value": 0.5, "max_value": 1.0, "rate": 0.7, "axis": 0}, "registered_name": null})", {-1.14911628, -0.280269921, -0.115005434, -0.961605966, 0.0967308804, 0.38074404, 1.02106178, 0.95619756, -0.867081702, -0.950097382, 0.494212508, -0.795028567}},
};
// clang-format on

TEST(Constraints, AreKerasValues) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.json);
    const Constraint constraint = Constraint::deserialize(Json::parse(c.json));
    EXPECT_TRUE(near(constraint(matrix()), c.values));
    EXPECT_EQ(constraint.serialize().at("module"), Json("keras.constraints"));
    expect_written(constraint.serialize(), Json::parse(c.json));
  }
  EXPECT_TRUE(near(Constraint("max_norm")(matrix()), doubles(constraints::MaxNorm()(matrix()))));
  EXPECT_THROW(Constraint("max"), Error);
  EXPECT_FALSE(Constraint::deserialize({}).defined());
}

}  // namespace
}  // namespace lockstep::keras
