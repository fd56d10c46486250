#include "graph/emit.h"
#include "lockstep/base/error.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/collective.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::distribute {

int num_replicas_in_sync() {
  const ReplicaTrace* replica = ReplicaTrace::current();
  return replica ? static_cast<int>(replica->begins.size()) : 1;
}

Tensor replica_id(std::source_location where) {
  const ReplicaTrace* replica = ReplicaTrace::current();
  if (!replica) return Tensor::scalar<int32_t>(0);
  const std::vector<int64_t>& begins = replica->begins;
  // Slices begin one after another: as many as begin up to here, this one not counted.
  const Tensor offset = emit_one(kExampleOffset, {}, {}, where);
  const Tensor all = Tensor::from<int64_t>(begins, {static_cast<int64_t>(begins.size())});
  return reduce_sum(cast(greater_equal(offset, all), DType::int32)) - 1.0;
}

Tensor all_reduce(ReduceOp op, const Tensor& value, std::source_location where) {
  const ReplicaTrace* replica = ReplicaTrace::current();
  if (!replica) return value;
  return all_reduce_sum(TensorArg(op == ReduceOp::sum ? value : value * replica->share(), where));
}

Tensor global_mean(const Tensor& per_example, std::source_location where) {
  require(per_example.defined() && per_example.rank() > 0, ErrorCode::shape_mismatch, where,
          "global_mean takes one value per example (first dimension), received ",
          per_example.defined() ? "a scalar" : "none");
  return reduce_sum(per_example) / static_cast<double>(global_size(per_example, where));
}

}  // namespace lockstep::distribute
