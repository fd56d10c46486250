// Activation functions by name or as code.
//
// An Activation may be copied and called by any thread, where its function may; register_activation() may be
// called while others look names up.
#pragma once

#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

// .activation = "relu", or any function of a tensor: .activation = [](const Tensor& x) { return ...; }.
class Activation {
 public:
  Activation() = default;  // linear
  // NOLINTBEGIN(google-explicit-constructor)
  Activation(const char* name, std::source_location where = std::source_location::current());
  Activation(const std::string& name, std::source_location where = std::source_location::current());
  template <class F>
  requires std::is_invocable_r_v<Tensor, F&, const Tensor&> Activation(F f)
      : name_("custom"), function_(std::move(f)) {}
  // NOLINTEND(google-explicit-constructor)

  bool linear() const { return !function_; }
  const std::string& name() const { return name_; }
  Tensor operator()(const Tensor& x) const;

  // Keras' name of it, or the configuration of a layer without weights. A function that has no name cannot be
  // written: throws Error(unsupported).
  Json serialize(std::source_location where = std::source_location::current()) const;
  static Activation deserialize(const Json& json,
                                std::source_location where = std::source_location::current());

 private:
  static Activation of_layer(const Json& json, std::source_location where);
  std::string name_ = "linear";
  std::function<Tensor(const Tensor&)> function_;
};

namespace activations {

// Every name that Activation takes.
std::vector<std::string> names();
// Makes `function` known by `name`, so that it can be written to and read from files.
void register_activation(const std::string& name, std::function<Tensor(const Tensor&)> function);

}  // namespace activations

}  // namespace lockstep::keras
