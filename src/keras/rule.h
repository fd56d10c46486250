// Rules from settings: a struct with a kName, a `visit` over its members (keras/fields.h) and the function
// that gives the rule its meaning becomes an entry of a registry.
#pragma once

#include <memory>
#include <utility>

#include "keras/fields.h"
#include "keras/registry.h"

namespace lockstep::keras {

// A list as Keras writes it: an empty one is null, one element stands for itself.
template <class T>
struct OneOrMany {
  std::vector<T>& list;
};
template <class T>
Json to_json(const OneOrMany<T>& value) {
  if (value.list.empty()) return {};
  return value.list.size() == 1 ? to_json(value.list[0]) : to_json(value.list);
}
template <class T>
void from_json(const Json& json, OneOrMany<T>& value) {
  value.list.clear();
  if (!json.is_null()) from_json(json, value.list);
}
template <class T>
void each_number(const OneOrMany<T>& value, auto&& f) {
  each_number(value.list, f);
}
template <class T>
void visit_list(auto& v, const char* name, std::vector<T>& list, const Range& range) {
  OneOrMany<T> value{list};
  v(name, value, range);
}

// The part that every rule made of settings shares: `Base` is Initializer::Rule, ...
template <class Base, class Settings>
class SettingsRule : public Base {
 public:
  explicit SettingsRule(Settings settings) : settings_(std::move(settings)) {
    check_fields(settings_, Settings::kName);
    if constexpr (requires { settings_.check(); }) settings_.check();
  }
  std::string class_name() const override { return Settings::kName; }
  Json config() const override { return write_fields(settings_); }

 protected:
  Settings settings_;
};

// `Rule<Settings>` is read from files under Settings::kName and these other names.
template <template <class> class Rule, class Settings, class Made>
void enter(Registry<Made>& registry, const std::vector<std::string>& aliases = {}) {
  registry.add(
      Settings::kName,
      [](const Json& config) {
        return Made(std::make_shared<Rule<Settings>>(read_fields<Settings>(config)));
      },
      aliases, [] { return write_fields(Settings()); });
}

}  // namespace lockstep::keras
