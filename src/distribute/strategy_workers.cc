#include "comm/connection.h"
#include "comm/workers.h"
#include "distribute/strategy_impl.h"
#include "execute/same_program.h"
#include "graph/eager.h"
#include "graph/tensor_bytes.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::distribute {

namespace {

// What all workers hold, in their order.
TensorList of_all_workers(comm::Workers* workers, const char* what, const TensorList& own) {
  if (!workers) return own;
  comm::MessageWriter message;
  message.put(static_cast<int32_t>(own.size()));
  for (const Tensor& tensor : own) {
    message.put(static_cast<int32_t>(tensor.dtype())).put(int32_t{tensor.rank()});
    for (int i = 0; i < tensor.rank(); ++i) message.put(tensor.shape()[i]);
    message.put_text(bytes_of(tensor));
  }
  TensorList all;
  for (const std::string& each : workers->gather_large(what, message.take())) {
    comm::MessageReader reader(each);
    for (auto count = reader.get<int32_t>(); count > 0; --count) {
      TensorSpec spec;
      spec.dtype = static_cast<DType>(reader.get<int32_t>());
      for (auto rank = reader.get<int32_t>(); rank > 0; --rank) spec.shape.push_back(reader.get<int64_t>());
      all.push_back(tensor_of(spec, reader.get_text()));
    }
  }
  return all;
}

}  // namespace

TensorList Strategy::gather_from_workers(const char* what, const TensorList& own) const {
  return of_all_workers(impl_->workers.get(), what, own);
}

void Strategy::share_values(const std::vector<Variable>& variables) const {
  if (!impl_->workers) return;
  comm::Workers& workers = *impl_->workers;
  execute::require_same_variables(workers, variables, std::source_location::current());
  std::string bytes;
  for (const Variable& variable : variables) {
    impl_->shared.insert(variable.id());
    if (!variable.per_replica()) bytes += bytes_of(variable.value());
  }
  const bool own_counts = workers.chief();
  workers.broadcast("the values of variables", bytes.data(), static_cast<int64_t>(bytes.size()));
  size_t at = 0;
  for (const Variable& variable : variables) {
    const TensorSpec spec{variable.dtype(), variable.shape()};
    if (variable.per_replica()) {
      // Parts that all workers have become one of the chief's.
      TensorList own;
      for (const Tensor& part : variable.impl()->parts)
        if (part.defined()) own.push_back(part);
      if (own.empty()) own.push_back(variable.value());
      // One after the other, as one process sums them.
      const TensorList parts = of_all_workers(&workers, "the parts of a variable", own);
      Tensor sum = parts[0];
      for (size_t r = 1; r < parts.size(); ++r) sum = variable.impl()->sum_of_parts(sum, parts[r]);
      const Tensor mine = own_counts ? sum : Tensor::full(spec.dtype, spec.shape, 0, sum.device());
      variable.assign(mine.to(variable.value().device()));
      continue;
    }
    if (!own_counts && bytes.compare(at, spec.bytes(), bytes_of(variable.value())) != 0)
      variable.assign(tensor_of(spec, bytes.substr(at, spec.bytes())).to(variable.value().device()));
    at += spec.bytes();
  }
}

void Strategy::share_new_values(const std::vector<Variable>& variables) const {
  if (!impl_->workers) return;
  std::vector<Variable> fresh;
  for (const Variable& variable : variables)
    if (!impl_->shared.contains(variable.id())) fresh.push_back(variable);
  if (!fresh.empty()) share_values(fresh);
}

Tensor Strategy::reduce(ReduceOp op, const Distributed& value, std::optional<int> axis,
                        std::source_location where) const {
  TensorList parts = of_all_workers(impl_->workers.get(), "a reduction", value.local_results());
  require(!parts.empty(), ErrorCode::invalid_argument, where, "reduce: the value is empty on every replica");
  double count = static_cast<double>(parts.size());
  if (axis) {
    count = 0;
    for (Tensor& part : parts) {
      count += static_cast<double>(part.shape()[normalize_axis(*axis, part.rank(), "reduce", where)]);
      part = reduce_sum(part, {.axis = {*axis}});
    }
  }
  Tensor sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    require(parts[i].shape() == sum.shape(), ErrorCode::shape_mismatch, where,
            "reduce: replicas hold values of different shapes, ", sum.shape(), " and ", parts[i].shape(),
            "; say which axis to reduce along, or gather() them");
    sum = sum + parts[i];
  }
  return op == ReduceOp::sum ? sum : sum / count;
}

Tensor Strategy::gather(const Distributed& value, int axis, std::source_location where) const {
  if (axis == 0 && value.whole().defined() && !impl_->workers) return value.whole();
  const TensorList parts = of_all_workers(impl_->workers.get(), "a gathering", value.local_results());
  require(!parts.empty(), ErrorCode::invalid_argument, where, "gather: the value is empty on every replica");
  return concat(parts, axis, where);
}

}  // namespace lockstep::distribute
