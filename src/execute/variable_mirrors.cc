#include "execute/variable_mirrors.h"

#include "device/copy.h"
#include "graph/variable_impl.h"
#include "lockstep/base/error.h"

namespace lockstep::execute {

VariableMirrors::VariableMirrors(std::vector<Device*> devices, std::vector<Variable> variables,
                                 std::vector<bool> updated, std::vector<std::vector<VariableUse>> uses)
    : devices_(std::move(devices)),
      variables_(std::move(variables)),
      updated_(std::move(updated)),
      memory_use_(memory_use("variables")) {
  used_.resize(variables_.size(), false);
  updater_.resize(variables_.size(), -1);
  for (size_t d = 0; d < devices_.size(); ++d) {
    auto& copies = copies_.emplace_back(variables_.size());
    for (size_t v = 0; v < variables_.size(); ++v) {
      copies[v].use = uses[d][v];
      used_[v] = used_[v] || copies[v].use != VariableUse::unused;
      if (copies[v].use == VariableUse::updates && updater_[v] < 0) updater_[v] = static_cast<int>(d);
    }
  }
}

void VariableMirrors::renew() {
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (!used_[v]) continue;
    VariableImpl& variable = *variables_[v].impl();
    variable.gather();
    void* const data = updated_[v] ? variable.mutable_data(true) : variable.value.impl()->data();
    Device& home = variable.value.device();
    bool at_home = false;
    for (size_t d = 0; d < devices_.size(); ++d) {
      Copy& copy = copies_[d][v];
      if (copy.use == VariableUse::unused) continue;
      if (devices_[d] == &home) {
        at_home = true;
        copy.data = data;
        continue;
      }
      const size_t bytes = variable.spec.bytes();
      if (!copy.mirror) {
        copy.mirror = std::make_unique<Storage>(*devices_[d], bytes, variable.where);
        copy.mirror->set_use(memory_use_);
      }
      if (copy.version != variable.version) {
        copy_across(home, data, *devices_[d], copy.mirror->data(), bytes);
        copy.version = variable.version;
      }
      copy.data = copy.mirror->data();
    }
    require(at_home || !updated_[v] || updater_[v] >= 0, ErrorCode::failed_precondition, variable.where,
            "variable \"", variable.options.name, "\" has moved to ", home.name(),
            " since the function that updates it was traced; make the function again");
  }
}

void VariableMirrors::commit() {
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (!updated_[v] || !used_[v]) continue;
    VariableImpl& variable = *variables_[v].impl();
    ++variable.version;
    Device& home = variable.value.device();
    bool home_updated = updater_[v] < 0;
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (copies_[d][v].use != VariableUse::updates) continue;
      copies_[d][v].version = variable.version;
      home_updated = home_updated || devices_[d] == &home;
    }
    if (home_updated) continue;
    const auto from = static_cast<size_t>(updater_[v]);
    copy_across(*devices_[from], copies_[from][v].data, home, variable.value.impl()->data(),
                variable.spec.bytes());
  }
}

void VariableMirrors::invalidate() {
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (updated_[v]) ++variables_[v].impl()->version;
    for (auto& copies : copies_) copies[v].version = kNoVersion;
  }
}

}  // namespace lockstep::execute
