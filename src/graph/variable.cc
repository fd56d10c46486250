#include "lockstep/graph/variable.h"

#include <utility>

#include "graph/eager.h"
#include "graph/emit.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/graph/tensor_arg.h"

namespace lockstep {

const Tensor& TensorArg::tensor(const char* op) const {
  require(tensor_.defined(), ErrorCode::invalid_argument, where_, op,
          ": an input is none (a default-constructed Tensor or an unconnected gradient)");
  return tensor_;
}

Variable::Variable(TensorLike value, VariableOptions options, std::source_location where) {
  Tensor initial = std::move(value).tensor();
  require(initial.defined() && !initial.symbolic(), ErrorCode::failed_precondition, where, "variable \"",
          options.name, "\": variables are made outside traced functions, from a tensor that has elements");
  impl_ = std::make_shared<VariableImpl>();
  impl_->options = std::move(options);
  impl_->spec = initial.spec();
  impl_->where = CallSite::of(where);
  Device* scoped = scoped_device();
  Tensor first = scoped && &initial.device() != scoped ? initial.to(*scoped, where) : std::move(initial);
  // The memory is taken over from a tensor that nobody else holds, but not what it was: its mask is none of
  // the variable's, and a view would keep all of the tensor that it is a part of.
  const TensorImpl& made = *first.impl();
  const bool whole = made.offset == 0 && made.storage->bytes() == impl_->spec.bytes();
  impl_->value = make_view(made, impl_->spec, made.strides, made.offset);
  if (whole) first = {};
  if (impl_->owner && impl_->options.trainable) impl_->owner->mark_used();
  impl_->mutable_data(true);
  impl_->value.impl()->storage->set_use(memory_use("variables"));
}

void* VariableImpl::mutable_data(bool keep) {
  static const MemoryLedger::Use use = memory_use("variables");
  const MemoryUseScope scope(use);
  const TensorImpl* held = value.impl().get();
  if (!sole_owner(value) || !is_contiguous(spec.shape, held->strides)) {
    const Tensor fresh = Tensor::empty(spec.dtype, spec.shape, value.device(), where);
    if (keep && backend_of(value.device()).has_memory())
      backend_of(value.device())
          .compute_stream()
          .copy(fresh.impl()->data(), contiguous(value, where).impl()->data(), spec.bytes());
    value = fresh;
  }
  return value.impl()->data();
}

void VariableImpl::gather() {
  if (parts.empty()) return;
  Tensor sum;
  for (Tensor& held : parts) {
    const Tensor part = std::move(held);
    if (part.defined()) sum = sum.defined() ? sum_of_parts(sum, part) : part;
  }
  parts.clear();
  // All may be undefined: another process has them.
  if (!sum.defined()) sum = Tensor::full(spec.dtype, spec.shape, 0, value.device());
  value = sum.to(value.device(), where);
  ++version;
}

TensorList& VariableImpl::spread(int replicas) {
  if (parts.size() == static_cast<size_t>(replicas)) return parts;
  gather();
  mutable_data(true);
  parts.resize(static_cast<size_t>(replicas));
  parts[0] = value;
  return parts;
}

namespace {
const VariableImpl& defined_variable(const std::shared_ptr<VariableImpl>& impl,
                                     std::source_location where = std::source_location::current()) {
  require(impl != nullptr, ErrorCode::failed_precondition, where,
          "this Variable was default-constructed: it names no variable");
  return *impl;
}
}  // namespace

uint64_t Variable::id(std::source_location where) const { return defined_variable(impl_, where).id; }
const std::string& Variable::name(std::source_location where) const {
  return defined_variable(impl_, where).options.name;
}
bool Variable::trainable(std::source_location where) const {
  return defined_variable(impl_, where).options.trainable;
}
const TensorSpec& Variable::spec(std::source_location where) const {
  return defined_variable(impl_, where).spec;
}
bool Variable::per_replica() const { return defined_variable(impl_).options.per_replica; }
bool Variable::autocast() const { return defined_variable(impl_).options.autocast; }
const std::function<Tensor(const Tensor&)>& Variable::constraint() const {
  return defined_variable(impl_).options.constraint;
}
std::source_location Variable::where() const { return defined_variable(impl_).where; }

const std::shared_ptr<const VariableOwner>& Variable::owner() const { return defined_variable(impl_).owner; }
void Variable::set_owner(std::shared_ptr<const VariableOwner> owner) const {
  defined_variable(impl_);
  impl_->owner = std::move(owner);
  if (impl_->owner && impl_->options.trainable) impl_->owner->mark_used();
}

namespace {
thread_local std::shared_ptr<const VariableOwner> current_owner;
}
VariableOwnerScope::VariableOwnerScope(std::shared_ptr<const VariableOwner> owner)
    : previous_(std::exchange(current_owner, std::move(owner))) {}
VariableOwnerScope::~VariableOwnerScope() { current_owner = std::move(previous_); }
const std::shared_ptr<const VariableOwner>& VariableOwnerScope::current() { return current_owner; }

namespace {
thread_local const VariableReadScope* read_scope = nullptr;
}

VariableReadScope::VariableReadScope() : outer_(std::exchange(read_scope, this)) {}
VariableReadScope::VariableReadScope(Convert convert, DType dtype)
    : convert_(convert), dtype_(dtype), outer_(std::exchange(read_scope, this)) {}
VariableReadScope::~VariableReadScope() { read_scope = outer_; }

Tensor Variable::value(std::source_location where) const {
  Trace* trace = Trace::current();
  defined_variable(impl_, where);
  if (!trace) impl_->gather();
  const Tensor value = trace ? trace->read(*this, where) : impl_->value;
  tell_recorders_of_read(*this, value);
  if (!read_scope || !read_scope->convert_ || !autocast()) return value;
  return read_scope->convert_(value, read_scope->dtype_, where);
}

void Variable::assign(const TensorLike& given, std::source_location where) const {
  const Tensor value = given.tensor(dtype(where));
  require(value.defined(), ErrorCode::invalid_argument, where, "assign: the value for variable \"", name(),
          "\" is none");
  require(value.dtype() == dtype(), ErrorCode::dtype_mismatch, where, "assign: variable \"", name(), "\" is ",
          spec(), ", the value is ", value.spec(), "; cast() it first");
  require(value.shape() == shape(), ErrorCode::shape_mismatch, where, "assign: variable \"", name(), "\" is ",
          spec(), ", the value is ", value.spec());
  if (Trace* trace = Trace::current()) {
    trace->assign(*this, value);
    return;
  }
  require(!value.symbolic(), ErrorCode::failed_precondition, where,
          "assign: the value is a tensor of a traced function that has ended");
  // Tensors never change, so the variable may share the value's memory until it is next written.
  // A tensor of its own, so that no tape takes what is read from now on for what was assigned.
  const Tensor own = contiguous(value.to(impl_->value.device(), where), where);
  impl_->value = make_view(*own.impl(), own.spec(), own.impl()->strides, own.impl()->offset);
  impl_->parts.clear();
  ++impl_->version;
}

}  // namespace lockstep
