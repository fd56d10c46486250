#include "execute/memory.h"

#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "lockstep/tensor/from_blob.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::counting;
using lockstep::testing::Floats;
using lockstep::testing::one_thread_devices;

TEST(Memory, FindsOperandsByTheirSpace) {
  char device_arena[16], replica_arena[16];
  int64_t first_example = 0;
  float parameter = 0, variables[2] = {}, captured = 0, constant = 0, output = 0;
  Memory memory;
  memory.device_arena = device_arena;
  memory.replica_arena = replica_arena;
  memory.parameters = {&parameter};
  memory.variables = {&variables[0], &variables[1]};
  memory.captured_inputs = {&captured};
  memory.constants = {&constant};
  memory.outputs = {&output};
  memory.example_offset = &first_example;
  EXPECT_EQ(memory.at({.space = Space::device_arena, .offset = 8}), device_arena + 8);
  EXPECT_EQ(memory.at({.space = Space::replica_arena, .offset = 4}), replica_arena + 4);
  EXPECT_EQ(memory.at({.space = Space::parameter}), &parameter);
  EXPECT_EQ(memory.at({.space = Space::variable, .index = 1}), &variables[1]);
  EXPECT_EQ(memory.at({.space = Space::captured_input}), &captured);
  EXPECT_EQ(memory.at({.space = Space::constant}), &constant);
  EXPECT_EQ(memory.at({.space = Space::output}), &output);
  EXPECT_EQ(memory.at({.space = Space::example_offset}), &first_example);
}

class HeldSourcesTest : public ::testing::Test {
 protected:
  static Floats floats_at(const void* data, size_t count) {
    const auto* begin = static_cast<const float*>(data);
    return {begin, begin + count};
  }

  Device& here_ = *one_thread_devices(2)[0];
  Device& elsewhere_ = *one_thread_devices(2)[1];
  HeldSources held_{here_};
};

TEST_F(HeldSourcesTest, CapturedInputsOfTheDeviceStayWhereTheyAre) {
  const Tensor captured = counting({2, 3}).to(here_);
  EXPECT_EQ(held_.hold(captured), captured.impl()->data());
}

TEST_F(HeldSourcesTest, CapturedInputsFromElsewhereAreCopied) {
  const Tensor captured = counting({2, 3}).to(elsewhere_);
  const void* const data = held_.hold(captured);
  EXPECT_NE(data, captured.impl()->data());
  EXPECT_EQ(floats_at(data, 6), captured.to_vector<float>());
}

TEST_F(HeldSourcesTest, LentMemoryIsCopied) {
  Floats rows = {1, 2, 3};
  DeviceScope scope(here_);
  const Tensor captured = from_blob(rows.data(), {DType::float32, {3}});
  const void* const data = held_.hold(captured);
  rows = {0, 0, 0};
  EXPECT_EQ(floats_at(data, 3), (Floats{1, 2, 3})) << "its owner may write there while the plan lives";
}

TEST_F(HeldSourcesTest, ConstantsFillTheirMemory) {
  EXPECT_EQ(floats_at(held_.hold({DType::float32, {4}}, 1.5), 4), (Floats{1.5, 1.5, 1.5, 1.5}));
}

}  // namespace
}  // namespace lockstep::execute
