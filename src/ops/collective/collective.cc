// Sums over replicas. Outside a replicated function there is one replica, and the sum is its value.
#include "lockstep/ops/collective.h"

#include "graph/emit.h"
#include "graph/graph.h"
#include "ops/collective/conditional.h"
#include "ops/elementwise/expander.h"

namespace lockstep {

// Every replica's loss depends on the sum, so the gradient is the sum of all replicas' gradients.
constinit const OpDef kAllReduceSum{
    .name = "all_reduce_sum",
    .max_inputs = 2,  // with a condition
    .infer = [](const InferContext& c) -> SpecList { return {c.inputs[0]}; },
    .grad = [](const GradContext& g) -> TensorList { return {all_reduce_sum(g.dout())}; }};

namespace {
const RegisterOp registered(kAllReduceSum);
}

Tensor all_reduce_sum(const TensorArg& x) {
  if (!ReplicaTrace::current()) return x.tensor();
  return emit_one(kAllReduceSum, {x.tensor()}, CollectiveAttrs{Trace::current()->next_collective(x.where())},
                  x.where());
}

Tensor all_reduce_sum_where(const Tensor& condition, const Tensor& x, std::source_location where) {
  if (!ReplicaTrace::current()) return x;
  return emit_one(kAllReduceSum, {x, condition}, CollectiveAttrs{Trace::current()->next_collective(where)},
                  where);
}

TensorList all_reduce_sum(std::span<const Tensor> tensors, std::source_location where) {
  TensorList sums;
  for (const Tensor& tensor : tensors)
    sums.push_back(tensor.defined() ? all_reduce_sum(TensorArg(tensor, where)) : tensor);
  return sums;
}

int64_t global_batch_size(const Tensor& batch, std::source_location where) {
  require(batch.defined() && batch.rank() >= 1, ErrorCode::shape_mismatch, where,
          "global_batch_size: takes a tensor with a batch dimension");
  const ReplicaTrace* replica = ReplicaTrace::current();
  // One replica alone has the whole batch, whatever it was told of it.
  if (!replica || replica->begins.size() == 1) return batch.shape()[0];
  require(batch.shape()[0] == replica->local_batch, ErrorCode::shape_mismatch, where,
          "global_batch_size: the first dimension of ", batch.shape(), " is not this replica's slice of ",
          replica->local_batch,
          " examples: the tensor is the same for all replicas; strategy.distribute() it "
          "before it is given to run()");
  return replica->global_batch;
}

int64_t global_size(const Tensor& slice, std::source_location where) {
  if (slice.rank() == 0) return 1;
  int64_t size = global_batch_size(slice, where);
  for (int d = 1; d < slice.rank(); ++d) size *= slice.shape()[d];
  return size;
}

}  // namespace lockstep
