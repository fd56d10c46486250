// Things that files know by name: initializers, losses, layers, ...
//
// Keras writes them as {"module", "class_name", "config", "registered_name"}, or as a bare name where all
// settings are defaults. One registry for each kind maps names to makers.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::keras {

// "GlorotUniform" -> "glorot_uniform", "Conv2D" -> "conv2d", "RMSprop" -> "rmsprop": Keras' rule.
std::string to_snake_case(std::string_view class_name);

// {"module": module, "class_name": class_name, "config": config, "registered_name": null}
Json serialized(std::string_view module, std::string_view class_name, Json config);

// What a registry knows, whatever is made of it: for the catalogue (lockstep/keras/catalogue.h).
class Catalogued {
 public:
  virtual ~Catalogued() = default;
  virtual std::vector<std::string> class_names() const = 0;
  virtual Json parameters(const std::string& class_name, std::source_location where) const = 0;
};
const Catalogued& known_layers();
const Catalogued& known_losses();
const Catalogued& known_metrics();
const Catalogued& known_initializers();
const Catalogued& known_regularizers();
const Catalogued& known_constraints();
namespace optimizers {
const Catalogued& known_optimizers();
const Catalogued& known_schedules();
}  // namespace optimizers

// `Made` is the handle. Registration happens at static initialisation or by the user; look-ups from any
// thread.
template <class Made>
class Registry final : public Catalogued {
 public:
  using Maker = std::function<Made(const Json& config)>;
  // The settings that a maker reads, with their defaults; a function, for defaults are registered things
  // themselves.
  using Parameters = std::function<Json()>;

  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Found by its class name, the same in snake case, and these other names.
  void add(const std::string& class_name, Maker maker, const std::vector<std::string>& aliases = {},
           Parameters parameters = {}) {
    const std::lock_guard lock(mutex_);
    class_names_.push_back(class_name);
    parameters_[class_name] = std::move(parameters);
    makers_[class_name] = maker;
    makers_[to_snake_case(class_name)] = maker;
    for (const std::string& alias : aliases) makers_[alias] = maker;
  }

  // Asks `first` before what makes this class until now; it gives an undefined handle where it leaves that to
  // the other.
  void extend(const std::string& class_name, Maker first) {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : {class_name, to_snake_case(class_name)})
      makers_[name] = [this, class_name, first, then = makers_[name]](const Json& config) {
        Made made = first(config);
        if (!made.defined() && !then) {
          const std::lock_guard here(mutex_);
          fail_unknown(class_name, std::source_location::current());
        }
        return made.defined() ? made : then(config);
      };
  }

  bool contains(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return makers_.contains(name);
  }

  Made make(const std::string& name, const Json& config, std::source_location where) const {
    const CallSite site(where);
    Maker maker;
    {
      const std::lock_guard lock(mutex_);
      const auto found = makers_.find(name);
      if (found == makers_.end()) fail_unknown(name, where);
      maker = found->second;
    }
    try {
      return maker(config);
    } catch (Error& error) {
      error.note("in the configuration of " + kind_ + " \"" + name + "\"");
      throw;
    }
  }

  // A name, or an object with class_name and config.
  Made make(const Json& json, std::source_location where) const {
    if (json.is_string()) return make(json.as_string(), Json::object(), where);
    require(json.find("class_name"), ErrorCode::invalid_argument, where, "expected the name of a ", kind_,
            " or {\"class_name\": ..., \"config\": {...}}, received ", json);
    const Json* registered = json.find("registered_name");
    const Json* config = json.find("config");
    const Json settings = config && config->is_object() ? *config : Json::object();
    // Keras writes classes of a user's own as "package>Name".
    if (registered && registered->is_string() && contains(registered->as_string()))
      return make(registered->as_string(), settings, where);
    // Functions are written as {"class_name": "function", "config": "relu"}.
    if (json.at("class_name").as_string() == "function" && config && config->is_string())
      return make(config->as_string(), Json::object(), where);
    return make(json.at("class_name").as_string(), settings, where);
  }

  std::vector<std::string> class_names() const override {
    const std::lock_guard lock(mutex_);
    return class_names_;
  }

  Json parameters(const std::string& class_name, std::source_location where) const override {
    Parameters parameters;
    {
      const std::lock_guard lock(mutex_);
      const auto found = parameters_.find(class_name);
      if (found == parameters_.end()) fail_unknown(class_name, where);
      parameters = found->second;
    }
    return parameters ? parameters() : Json();
  }

 private:
  [[noreturn]] void fail_unknown(const std::string& name, std::source_location where) const {
    std::vector<std::string> names;
    for (const auto& [known, maker] : makers_) names.push_back(known);
    const std::string near = nearest_spelling(name, names);
    std::string known;
    for (const std::string& class_name : class_names_) known += (known.empty() ? "" : ", ") + class_name;
    fail(ErrorCode::not_found, where, "there is no ", kind_, " \"", name, "\"",
         near.empty() ? "" : "; did you mean \"" + near + "\"?", " There are ", known);
  }

  std::string kind_;
  mutable std::mutex mutex_;
  std::map<std::string, Maker> makers_;
  std::vector<std::string> class_names_;
  std::map<std::string, Parameters> parameters_;
};

}  // namespace lockstep::keras
