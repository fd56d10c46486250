#include "keras/callbacks/monitor.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {
namespace {

bool contains_any(const std::string& name, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (name.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

Monitor::Monitor(std::string name, const std::string& mode, double min_delta, const char* callback)
    : name_(std::move(name)), callback_(callback), min_delta_(std::abs(min_delta)) {
  const bool known = mode == "min" || mode == "max" || mode == "auto";
  require(known, ErrorCode::invalid_argument, std::source_location::current(), callback,
          ": mode is \"min\", \"max\" or \"auto\", received \"", mode, "\"");
  if (mode != "auto") {
    rises_ = mode == "max";
  } else if (contains_any(name_, {"loss", "error", "mse", "mae", "mape", "msle", "crossentropy", "entropy",
                                  "hinge", "divergence", "poisson", "logcosh", "false_"})) {
    rises_ = false;
  } else if (contains_any(name_, {"acc", "auc", "precision", "recall", "f1", "fbeta", "iou", "r2", "true_",
                                  "cosine_similarity", "sensitivity", "specificity"})) {
    rises_ = true;
  } else {
    fail(ErrorCode::invalid_argument, std::source_location::current(), callback,
         ": it is not known whether \"", name_,
         "\" should fall or rise; say .mode = \"min\" or .mode = \"max\"");
  }
}

std::optional<double> Monitor::read(const Logs& logs) {
  const std::optional<double> value = logs.find(name_);
  if (!value && !warned_) {
    std::string names;
    for (const auto& [name, logged] : logs) names += (names.empty() ? "" : ", ") + name;
    log(LogLevel::warning, callback_, ": the logs have no \"", name_, "\", so it does nothing; they have ",
        names.empty() ? "nothing" : names);
    warned_ = true;
  }
  return value;
}

}  // namespace lockstep::keras
