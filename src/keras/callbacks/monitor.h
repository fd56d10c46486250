// A value of the logs, by its name, that should fall or rise. For one thread at a time.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "lockstep/keras/callbacks.h"

namespace lockstep::keras {

class Monitor {
 public:
  // `mode`: min, max or auto. Throws Error(invalid_argument) where auto does not know the name.
  Monitor(std::string name, const std::string& mode, double min_delta, const char* callback);

  const std::string& name() const { return name_; }
  // The value; warns once where the logs do not have it, naming those that they have.
  std::optional<double> read(const Logs& logs);
  bool better(double value, double than) const {
    return rises_ ? value - min_delta_ > than : value + min_delta_ < than;
  }
  double worst() const {
    return rises_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }

 private:
  std::string name_;
  const char* callback_;
  double min_delta_;
  bool rises_ = false;
  bool warned_ = false;
};

}  // namespace lockstep::keras
