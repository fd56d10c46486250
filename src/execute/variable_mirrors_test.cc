#include "execute/variable_mirrors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "graph/variable_impl.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::error_of;
using lockstep::testing::one_thread_devices;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Variable variable_on(Device& device, float value) {
  return Variable(Tensor::full(DType::float32, {2}, value, device));
}

class Mirrors : public ::testing::Test {
 protected:
  Device& home() { return *devices_[0]; }
  Device& other() { return *devices_[1]; }
  static float* floats(void* data) { return static_cast<float*>(data); }
  // Bytes that have arrived on the other device.
  int64_t copied() { return other().counters().bytes_copied_in - before_; }

  std::vector<Device*> devices_ = one_thread_devices(2);
  int64_t before_ = other().counters().bytes_copied_in;
};

TEST_F(Mirrors, AreRenewedOnlyWhereTheVariableHasChanged) {
  Variable variable = variable_on(home(), 1);
  VariableMirrors mirrors(devices_, {variable}, {false}, {{VariableUse::reads}, {VariableUse::reads}});
  mirrors.renew();
  EXPECT_EQ(mirrors.at(0, 0), variable.impl()->value.impl()->data()) << "at home it is the variable itself";
  ASSERT_NE(mirrors.at(1, 0), mirrors.at(0, 0));
  EXPECT_EQ(floats(mirrors.at(1, 0))[1], 1);
  EXPECT_EQ(copied(), 8);
  mirrors.commit();
  mirrors.renew();
  EXPECT_EQ(copied(), 8);
  variable.assign(Tensor::full(DType::float32, {2}, 5, home()));
  mirrors.renew();
  EXPECT_EQ(floats(mirrors.at(1, 0))[0], 5);
  EXPECT_EQ(copied(), 16);
}

TEST_F(Mirrors, ThatAStepUpdatesItselfAreUpToDate) {
  Variable variable = variable_on(home(), 1);
  VariableMirrors mirrors(devices_, {variable}, {true}, {{VariableUse::updates}, {VariableUse::updates}});
  mirrors.renew();
  const uint64_t version = variable.impl()->version;
  for (size_t d = 0; d < 2; ++d) floats(mirrors.at(d, 0))[0] = 7;
  mirrors.commit();
  EXPECT_GT(variable.impl()->version, version) << "others must see that it has changed";
  mirrors.renew();
  EXPECT_EQ(copied(), 8) << "only the first time";
  EXPECT_EQ(floats(mirrors.at(1, 0))[0], 7);
}

TEST_F(Mirrors, OfCentralUpdatesAreFetchedWithEveryStep) {
  Variable variable = variable_on(home(), 1);
  VariableMirrors mirrors(devices_, {variable}, {true}, {{VariableUse::updates}, {VariableUse::reads}});
  for (int step = 0; step < 3; ++step) {
    mirrors.renew();
    EXPECT_EQ(floats(mirrors.at(1, 0))[0], 1 + step);
    floats(mirrors.at(0, 0))[0] += 1;
    mirrors.commit();
  }
  EXPECT_EQ(copied(), 3 * 8);
}

// Wherever it lives, the device that makes the updates brings them home.
TEST_F(Mirrors, BringUpdatesHome) {
  for (Device* where : {one_thread_devices(3)[2], devices_[1]}) {
    Variable variable = variable_on(*where, 1);
    VariableMirrors mirrors(devices_, {variable}, {true}, {{VariableUse::updates}, {VariableUse::reads}});
    for (int step = 0; step < 2; ++step) {
      mirrors.renew();
      floats(mirrors.at(0, 0))[1] += 2;
      mirrors.commit();
    }
    EXPECT_THAT(variable.value().to_vector<float>(), ElementsAre(1, 5)) << where->name();
  }
}

TEST_F(Mirrors, AreNotTrustedAfterAStepThatFailed) {
  Variable variable = variable_on(home(), 1);
  VariableMirrors mirrors(devices_, {variable}, {true}, {{VariableUse::updates}, {VariableUse::updates}});
  mirrors.renew();
  floats(mirrors.at(1, 0))[0] = 9;  // and not on the other
  const uint64_t version = variable.impl()->version;
  mirrors.invalidate();
  EXPECT_GT(variable.impl()->version, version);
  mirrors.renew();
  EXPECT_EQ(floats(mirrors.at(1, 0))[0], 1);
}

TEST_F(Mirrors, AStepThatWritesAVariableAtHomeRefusesOneThatHasMoved) {
  Variable variable = variable_on(home(), 1);
  VariableMirrors mirrors(devices_, {variable}, {true}, {{VariableUse::unused}, {VariableUse::reads}});
  EXPECT_THAT(error_of([&] { mirrors.renew(); }).message(),
              AllOf(HasSubstr("has moved to " + home().name()), HasSubstr("make the function again")));
}

TEST_F(Mirrors, OfVariablesThatNobodyUsesAreNotMade) {
  Variable variable = variable_on(home(), 1);
  VariableMirrors mirrors(devices_, {variable}, {false}, {{VariableUse::reads}, {VariableUse::unused}});
  mirrors.renew();
  EXPECT_EQ(mirrors.at(1, 0), nullptr);
  EXPECT_EQ(copied(), 0);
}

}  // namespace
}  // namespace lockstep::execute
