// Compiled code that later processes find again: files of the folder lockstep/kernels of XDG_CACHE_HOME.
#pragma once

#include <optional>
#include <string>

namespace lockstep::cuda {

// `name`: a file's, made of all that the code depends on. Nothing where there is none, or it cannot be read.
std::optional<std::string> find_kept_code(const std::string& name);

// What is wrong with the folder never stops a program: it is logged, once, and nothing is kept.
void keep_code(const std::string& name, const std::string& code);

}  // namespace lockstep::cuda
