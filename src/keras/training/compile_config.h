// compile()'s arguments as Keras' get_compile_config() writes them.
#pragma once

#include "lockstep/base/json.h"
#include "lockstep/keras/model.h"

namespace lockstep::keras {

Json serialize_compile_options(const CompileOptions& options);
CompileOptions deserialize_compile_options(const Json& json, std::source_location where);

}  // namespace lockstep::keras
