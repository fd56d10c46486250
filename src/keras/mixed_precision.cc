#include "lockstep/keras/mixed_precision.h"

#include <array>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::keras {

namespace {

struct Row {
  const char* name;
  DType compute;
  DType variable;
};
constexpr std::array kPolicies{
    Row{"float32", DType::float32, DType::float32},
    Row{"bfloat16", DType::bfloat16, DType::bfloat16},
    Row{"float16", DType::float16, DType::float16},
    Row{"float64", DType::float64, DType::float64},
    Row{"mixed_bfloat16", DType::bfloat16, DType::float32},
    Row{"mixed_float16", DType::float16, DType::float32},
};

const Row& find(const std::string& name, std::source_location where) {
  std::vector<std::string> names;
  std::string list;
  for (const Row& row : kPolicies) {
    if (row.name == name) return row;
    names.emplace_back(row.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  const std::string near = nearest_spelling(name, names);
  fail(ErrorCode::not_found, where, "there is no dtype policy \"", name, "\"",
       near.empty() ? "" : "; did you mean \"" + near + "\"?", " There are ", list);
}

std::mutex global_mutex;
DTypePolicy& global() {
  static DTypePolicy policy("float32");
  return policy;
}

}  // namespace

DTypePolicy::DTypePolicy(const char* name, std::source_location where)
    : DTypePolicy(std::string(name), where) {}

DTypePolicy::DTypePolicy(const std::string& name, std::source_location where) {
  const Row& row = find(name, where);
  name_ = row.name;
  compute_ = row.compute;
  variable_ = row.variable;
}

DTypePolicy::DTypePolicy(DType dtype, std::source_location where)
    : DTypePolicy(std::string(lockstep::name(dtype)), where) {}

std::string DTypePolicy::name() const { return set() ? name_ : mixed_precision::global_policy().name_; }
DType DTypePolicy::compute_dtype() const {
  return set() ? compute_ : mixed_precision::global_policy().compute_;
}
DType DTypePolicy::variable_dtype() const {
  return set() ? variable_ : mixed_precision::global_policy().variable_;
}

namespace mixed_precision {

void set_global_policy(const DTypePolicy& policy) {
  if (!policy.set()) return;
  const std::lock_guard lock(global_mutex);
  global() = policy;
}

DTypePolicy global_policy() {
  const std::lock_guard lock(global_mutex);
  return global();
}

}  // namespace mixed_precision

}  // namespace lockstep::keras
