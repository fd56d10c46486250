// Arrays and tensors as Keras writes them among settings and arguments:
// {"class_name": "__numpy__" | "__tensor__", "config": {"value": lists of numbers, "dtype": name}}.
#pragma once

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

bool is_written_tensor(const Json& json);

// The tensor; lists of numbers by themselves are one too. Undefined where `json` is something else.
Tensor read_tensor(const Json& json);

// The same with the lists of their elements in place of tensors: what settings take. Arguments of calls,
// which are under "inbound_nodes", stay as they are.
Json with_plain_settings(const Json& json);

}  // namespace lockstep::keras
