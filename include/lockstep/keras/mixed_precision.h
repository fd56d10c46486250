// Which dtypes a layer computes in and keeps its weights in. Policies are values; any thread may use the
// functions.
#pragma once

#include <source_location>
#include <string>

#include "lockstep/tensor/dtype.h"

namespace lockstep::keras {

// "float32", "bfloat16", "float16" and "float64": computation and weights in this dtype.
// "mixed_bfloat16", "mixed_float16": computation in 16 bits, weights in float32.
class DTypePolicy {
 public:
  // The global policy when this is used.
  DTypePolicy() = default;
  // NOLINTBEGIN(google-explicit-constructor): .dtype = "mixed_bfloat16"
  DTypePolicy(const char* name, std::source_location where = std::source_location::current());
  DTypePolicy(const std::string& name, std::source_location where = std::source_location::current());
  DTypePolicy(DType dtype, std::source_location where = std::source_location::current());
  // NOLINTEND(google-explicit-constructor)

  // False: stands for the global policy.
  bool set() const { return !name_.empty(); }
  std::string name() const;
  DType compute_dtype() const;
  DType variable_dtype() const;
  bool operator==(const DTypePolicy&) const = default;

 private:
  std::string name_;
  DType compute_ = DType::float32;
  DType variable_ = DType::float32;
};

namespace mixed_precision {

// The policy of layers that are made without one; "float32" until it is set. Process-wide and thread-safe: a
// layer that another thread makes at the same time gets the policy before or after, as a whole. Layers that
// are made already keep theirs.
void set_global_policy(const DTypePolicy& policy);
DTypePolicy global_policy();

}  // namespace mixed_precision

}  // namespace lockstep::keras
