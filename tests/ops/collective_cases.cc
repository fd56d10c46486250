#include "lockstep/ops/collective.h"
#include "ops/op_case.h"

namespace lockstep::testing {
namespace {

// Outside of replicas there is one: the sum over all of them is the tensor itself.
OpCases cases() {
  return {{.name = "all_reduce_sum_alone",
           .op = "all_reduce_sum",
           .inputs = {normal({4, 6})},
           .reference = each([](double x) { return x; }),
           .dtypes = kAll,
           .tolerance = Tolerance::exact,
           .function = [](auto in) { return all_reduce_sum(TensorArg(in[0])); },
           .by_function = true,
           .edge_shapes = {{{}}, {{1}}, {{0}}, {{2, 0}}}}};
}

BadCalls bad_calls() {
  return {{"global_batch_size_of_scalar",
           ErrorCode::shape_mismatch,
           {"global_batch_size: "},
           [] { global_batch_size(sample({})); }},
          {"global_batch_size_of_none", ErrorCode::shape_mismatch, {"global_batch_size: "}, [] {
             global_batch_size(Tensor());
           }}};
}

}  // namespace

const Family kCollectiveFamily{cases, bad_calls};

}  // namespace lockstep::testing
