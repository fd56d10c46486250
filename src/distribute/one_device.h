// Never one device in silence: what would train on one device although a strategy of several is there is an
// error, or, where a program may mean it, one line of the log that says so and why.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/graph/variable.h"

namespace lockstep::distribute {

// Throws Error(failed_precondition) where a strategy of several devices is alive and nothing that can be
// trained was ever made in its scope, while `user` ("fit") is about to work on one device.
void require_none_forgotten(const char* user, std::source_location where);

// Throws Error(failed_precondition) where the optimizer was made in the scope of a strategy of several
// devices and what it is to train (`trained`: "model \"sequential\"") was not.
void require_same_scope(const char* user, const std::shared_ptr<const VariableOwner>& optimizer,
                        const std::string& trained, std::source_location where);

// For an update of an optimizer outside of replicas. Throws Error(failed_precondition) where the variables,
// or the optimizer alone, belong to a strategy of several devices.
void require_replicas(const std::vector<Variable>& variables,
                      const std::shared_ptr<const VariableOwner>& optimizer, std::source_location where);

}  // namespace lockstep::distribute
