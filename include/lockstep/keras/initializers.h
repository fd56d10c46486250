// Initial values of weights.
//
// An Initializer is a handle to what never changes: any thread may use it, and register_initializer() may be
// called while others make or read some. Numbers drawn without a seed by several threads at once go to them
// in the order in which they ask.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras {

// By name (.kernel_initializer = "he_normal") or made by a function of namespace initializers.
class Initializer {
 public:
  class Rule;
  Initializer() = default;  // undefined
  // NOLINTBEGIN(google-explicit-constructor)
  Initializer(const char* name, std::source_location where = std::source_location::current());
  Initializer(const std::string& name, std::source_location where = std::source_location::current());
  Initializer(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  // NOLINTEND(google-explicit-constructor)

  bool defined() const { return rule_ != nullptr; }
  // A concrete tensor, also while a function is being traced. Without a seed every call draws other
  // numbers, from random::default_generator().
  Tensor operator()(const Shape& shape, DType dtype = DType::float32,
                    std::source_location where = std::source_location::current()) const;

  Json serialize() const;
  static Initializer deserialize(const Json& json,
                                 std::source_location where = std::source_location::current());

 private:
  std::shared_ptr<const Rule> rule_;
};

// What an initializer is: derive from it to write one (class_name and config only matter to files).
class Initializer::Rule {
 public:
  virtual ~Rule() = default;
  // Called outside of traces.
  virtual Tensor make(const Shape& shape, DType dtype) const = 0;
  virtual std::string class_name() const = 0;
  virtual Json config() const { return Json::object(); }
};

namespace initializers {

using Seed = std::optional<int64_t>;  // nullopt: from the default generator

Initializer Zeros();
Initializer Ones();
Initializer Constant(double value = 0, std::source_location where = std::source_location::current());
struct IdentityOptions {
  double gain = 1;
};
Initializer Identity(const IdentityOptions& options = {},
                     std::source_location where = std::source_location::current());  // matrices only
struct RandomNormalOptions {
  double mean = 0;
  double stddev = 0.05;
  Seed seed = {};
};
Initializer RandomNormal(const RandomNormalOptions& options = {},
                         std::source_location where = std::source_location::current());
Initializer TruncatedNormal(const RandomNormalOptions& options = {},
                            std::source_location where = std::source_location::current());
struct RandomUniformOptions {
  double minval = -0.05;
  double maxval = 0.05;
  Seed seed = {};
};
Initializer RandomUniform(const RandomUniformOptions& options = {},
                          std::source_location where = std::source_location::current());
struct VarianceScalingOptions {
  double scale = 1;
  std::string mode = "fan_in";                    // fan_in, fan_out, fan_avg
  std::string distribution = "truncated_normal";  // truncated_normal, untruncated_normal, uniform
  Seed seed = {};
  // The dimensions that inputs and outputs run over. Nullopt: of (window..., inputs, outputs).
  std::optional<std::vector<int64_t>> input_axes = {};
  std::optional<std::vector<int64_t>> output_axes = {};
};
Initializer VarianceScaling(const VarianceScalingOptions& options = {},
                            std::source_location where = std::source_location::current());
struct FanOptions {
  Seed seed = {};
  std::optional<std::vector<int64_t>> input_axes = {};
  std::optional<std::vector<int64_t>> output_axes = {};
};
Initializer GlorotUniform(const FanOptions& options = {},
                          std::source_location where = std::source_location::current());
Initializer GlorotNormal(const FanOptions& options = {},
                         std::source_location where = std::source_location::current());
Initializer HeUniform(const FanOptions& options = {},
                      std::source_location where = std::source_location::current());
Initializer HeNormal(const FanOptions& options = {},
                     std::source_location where = std::source_location::current());
Initializer LecunUniform(const FanOptions& options = {},
                         std::source_location where = std::source_location::current());
Initializer LecunNormal(const FanOptions& options = {},
                        std::source_location where = std::source_location::current());
struct OrthogonalOptions {
  double gain = 1;
  Seed seed = {};
};
Initializer Orthogonal(const OrthogonalOptions& options = {},
                       std::source_location where = std::source_location::current());

// Makes one of your own readable from files: `make` gets what Rule::config() wrote.
void register_initializer(const std::string& class_name, std::function<Initializer(const Json& config)> make);

}  // namespace initializers

}  // namespace lockstep::keras
