// What the files of Keras' metrics share.
#pragma once

#include "keras/rule.h"
#include "keras/weighing.h"
#include "lockstep/keras/metrics.h"

namespace lockstep::keras {

Registry<Metric>& metric_registry();

// A metric with settings: a struct with a kName, a name and a `visit` (keras/fields.h) over its other
// members.
template <class Settings, class Base = MetricBase>
class SettingsMetric : public Base {
 public:
  explicit SettingsMetric(const Settings& settings)
      : Base(settings.name.empty() ? own_name() : settings.name), settings_(settings) {
    check_fields(settings_, Settings::kName);
    if constexpr (requires { settings_.check(); }) settings_.check();
  }

  static Settings read(const Json& config) {
    Settings settings;
    FieldReader reader(config);
    reader("name", settings.name);
    reader.ignore("dtype");
    settings.visit(reader);
    reader.finish();
    return settings;
  }

  std::string class_name() const override { return Settings::kName; }
  Json config() const override {
    Json config = MetricBase::config();
    const Json own = write_fields(settings_);
    for (const auto& [name, value] : own.members()) config.set(name, value);
    return config;
  }

 protected:
  Settings settings_;

 private:
  static std::string own_name() {
    if constexpr (requires { Settings::kOwnName; }) return Settings::kOwnName;
    return to_snake_case(Settings::kName);
  }
};

template <template <class> class Rule, class Settings>
Metric make_metric(const Settings& settings) {
  return Metric(std::make_shared<Rule<Settings>>(settings));
}

template <template <class> class Rule, class Settings>
void enter_metric(Registry<Metric>& registry, const std::vector<std::string>& aliases = {}) {
  registry.add(
      Settings::kName,
      [](const Json& config) { return make_metric<Rule>(SettingsMetric<Settings>::read(config)); }, aliases,
      [] {
        Json parameters = write_fields(Settings());
        parameters.set("name", nullptr);
        parameters.set("dtype", nullptr);
        return parameters;
      });
}

// Called once, by metric_registry().
void enter_confusion_metrics(Registry<Metric>& registry);

}  // namespace lockstep::keras
