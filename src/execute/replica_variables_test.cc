#include "execute/replica_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/compile_test.h"
#include "graph/variable_impl.h"

namespace lockstep::execute {
namespace {

using lockstep::testing::one_thread_devices;

TEST(ReplicaVariables, PartsLieWithTheirReplicasAndAddUpToTheVariable) {
  ReplicaLayout layout;
  layout.devices = one_thread_devices(2);
  layout.replicas = 4;
  layout.slices = slice_batch(8, 4);
  Variable variable(Tensor::full(DType::float32, {1}, 10, *layout.devices[0]), {.per_replica = true});
  const auto part = [](const ReplicaVariables& parts, int r) {
    return static_cast<float*>(parts.part(0, r));
  };
  {
    const ReplicaVariables parts({variable}, layout);
    parts.spread();
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(*part(parts, r), r == 0 ? 10 : 0) << r;
      EXPECT_EQ(&variable.impl()->parts[static_cast<size_t>(r)].device(),
                layout.devices[static_cast<size_t>(r / 2)]);
      *part(parts, r) += static_cast<float>(r + 1);
    }
  }
  // Two replicas have no examples in the next step: what they hold moves to the first.
  layout.slices = slice_batch(2, 4);
  const ReplicaVariables parts({variable}, layout);
  parts.spread();
  EXPECT_EQ(*part(parts, 0), 11 + 3 + 4);
  EXPECT_EQ(*part(parts, 1), 2);
  EXPECT_EQ(variable.value().to_vector<float>()[0], 20);
}

}  // namespace
}  // namespace lockstep::execute
