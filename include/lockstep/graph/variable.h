// Variable: a tensor whose elements are updated in place (weights, optimizer slots, counters).
//
// A Variable is a handle; copies name the same variable. Reading one gives a Tensor that keeps the
// value it had when it was read, whatever is assigned later. It lives on the device of the scope in which it
// is made, else with its initial value, and is updated there. Inside a traced function reads and
// assignments are recorded in program order; the memory is updated when the compiled function runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>

#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_like.h"

namespace lockstep {

struct VariableImpl;

// Whom a variable belongs to: a distribution strategy. Compared by address.
class VariableOwner {
 public:
  virtual ~VariableOwner() = default;
  virtual std::string description() const = 0;  // "MirroredStrategy on /CPU:0, /CPU:1"

  // Whether anything that can be trained was ever made for it: a trainable variable, or a layer.
  bool used() const { return used_; }
  void mark_used() const { used_ = true; }

 private:
  mutable std::atomic<bool> used_{false};
};

struct VariableOptions {
  std::string name = "Variable";
  bool trainable = true;  // watched by every GradientTape
  bool autocast = false;  // a VariableReadScope converts what is read
  // Every replica of a strategy keeps a part of its own, which it alone reads and writes, and the value is
  // the sum of the parts: accumulated gradients, say, that need not be the same everywhere until they are
  // used. Reading the variable outside of replicas adds the parts up, and the replicas go on from there.
  bool per_replica = false;
  // What optimizers put in place of the value after an update.
  std::function<Tensor(const Tensor&)> constraint = {};
};

class Variable {
 public:
  Variable() = default;
  // Variable(1.0F), Variable({1, 2, 3}), Variable(zeros({2, 3}), {.name = "w"})
  // It begins with a copy of a tensor that others hold, too; one that is handed over alone becomes its
  // memory.
  explicit Variable(TensorLike initial, VariableOptions options = {},
                    std::source_location where = std::source_location::current());

  bool defined() const { return impl_ != nullptr; }
  uint64_t id(std::source_location where = std::source_location::current()) const;
  const std::string& name(std::source_location where = std::source_location::current()) const;
  bool trainable(std::source_location where = std::source_location::current()) const;
  bool autocast() const;
  bool per_replica() const;
  const std::function<Tensor(const Tensor&)>& constraint() const;
  const TensorSpec& spec(std::source_location where = std::source_location::current()) const;
  const Shape& shape(std::source_location where = std::source_location::current()) const {
    return spec(where).shape;
  }
  DType dtype(std::source_location where = std::source_location::current()) const {
    return spec(where).dtype;
  }
  // Where it was created: scope errors name it.
  std::source_location where() const;
  // Its owner: that of the VariableOwnerScope in which it was made, or the one that set_owner() gave; null:
  // there is none.
  const std::shared_ptr<const VariableOwner>& owner() const;
  void set_owner(std::shared_ptr<const VariableOwner> owner) const;

  // The current value, as the innermost VariableReadScope wants it.
  Tensor value(std::source_location where = std::source_location::current()) const;

  // All elements, as Tensor::numpy() gives them.
  template <class T = float>
  Elements<T> numpy(std::source_location where = std::source_location::current()) const {
    return value(where).template numpy<T>(where);
  }

  // Dtype and shape must be the variable's; numbers take its dtype. `variable += delta` is assign_add().
  void assign(const TensorLike& value, std::source_location where = std::source_location::current()) const;
  void assign_add(const TensorLike& delta,
                  std::source_location where = std::source_location::current()) const;
  void assign_sub(const TensorLike& delta,
                  std::source_location where = std::source_location::current()) const;

  const std::shared_ptr<VariableImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<VariableImpl> impl_;
};

// Variables made on this thread while it lives belong to `owner`, which may be none.
class VariableOwnerScope {
 public:
  explicit VariableOwnerScope(std::shared_ptr<const VariableOwner> owner);
  ~VariableOwnerScope();
  VariableOwnerScope(const VariableOwnerScope&) = delete;
  VariableOwnerScope& operator=(const VariableOwnerScope&) = delete;
  static const std::shared_ptr<const VariableOwner>& current();

 private:
  std::shared_ptr<const VariableOwner> previous_;
};

// While it lives, Variable::value() on this thread gives `convert(value, dtype, where)` for variables
// made with `autocast`: mixed precision computes in another dtype than the one weights are kept in. A
// tape sees the read in front of the conversion, so gradients arrive in the variable's own dtype. Scopes
// nest and the innermost counts; a default-constructed one lets values through as they are.
class VariableReadScope {
 public:
  using Convert = Tensor (*)(const Tensor& value, DType dtype, std::source_location where);

  VariableReadScope();
  VariableReadScope(Convert convert, DType dtype);
  ~VariableReadScope();
  VariableReadScope(const VariableReadScope&) = delete;
  VariableReadScope& operator=(const VariableReadScope&) = delete;

 private:
  friend class Variable;
  Convert convert_ = nullptr;
  DType dtype_ = DType::float32;
  const VariableReadScope* outer_;
};

}  // namespace lockstep
