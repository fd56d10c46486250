#include "lockstep/keras/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/errors.h"
#include "lockstep/keras/layers.h"
#include "lockstep/keras/losses.h"
#include "lockstep/keras/metrics.h"
#include "lockstep/keras/optimizers.h"

namespace lockstep::keras {
namespace {

using catalogue::Kind;
using testing::Contains;
using testing::ElementsAre;

std::vector<std::string> names(const Json& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, value] : parameters.members()) names.push_back(name);
  return names;
}

TEST(Catalogue, ListsParametersInTheOrderOfKerasConstructors) {
  EXPECT_THAT(catalogue::class_names(Kind::layer), Contains("Dense"));
  EXPECT_THAT(names(catalogue::parameters(Kind::layer, "Dense")),
              ElementsAre("units", "activation", "use_bias", "kernel_initializer", "bias_initializer",
                          "kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint",
                          "activity_regularizer", "name", "trainable", "dtype"));
  EXPECT_EQ(names(catalogue::parameters(Kind::optimizer, "Adam"))[0], "learning_rate");
  EXPECT_EQ(names(catalogue::parameters(Kind::optimizer, "Adam"))[1], "beta_1");
  EXPECT_EQ(names(catalogue::parameters(Kind::loss, "BinaryCrossentropy"))[0], "from_logits");
  EXPECT_EQ(catalogue::parameters(Kind::initializer, "RandomNormal").at("stddev").as_double(), 0.05);
}

// Every parameter with its default is what the class reads: nothing is listed that would be refused.
TEST(Catalogue, DefaultsAreRead) {
  for (const std::string& name : catalogue::class_names(Kind::metric)) {
    Json config = catalogue::parameters(Kind::metric, name);
    if (config.is_null() || config.contains("num_classes")) continue;
    config.erase("name");
    EXPECT_NO_THROW(Metric::deserialize(Json::object({{"class_name", name}, {"config", config}})))
        << name << config;
  }
  for (const std::string& name : catalogue::class_names(Kind::optimizer)) {
    Json config = catalogue::parameters(Kind::optimizer, name);
    if (config.is_null()) continue;
    EXPECT_NO_THROW(
        optimizers::Optimizer::deserialize(Json::object({{"class_name", name}, {"config", config}})))
        << name << config;
  }
}

TEST(Catalogue, NamesWhatIsNear) {
  try {
    catalogue::parameters(Kind::layer, "Dens");
    FAIL();
  } catch (const errors::NotFoundError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean \"Dense\""));
  }
}

}  // namespace
}  // namespace lockstep::keras
