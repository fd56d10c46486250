// Names of devices: "/job:worker/replica:0/task:0/device:CPU:1", in which every part may be left out, and
// the short forms "/CPU:1", "CPU:1", "/CPU" and "/CPU:*". Case does not matter.
#pragma once

#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/device/device.h"

namespace lockstep {

// "CPU" or "GPU" in any case.
std::optional<DeviceKind> parse_device_kind(std::string_view text);

struct DeviceName {
  static constexpr int kAny = -1;  // "*"

  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<DeviceKind> kind;
  std::optional<int> index;

  bool operator==(const DeviceName&) const = default;

  // Throws Error(invalid_argument) with the grammar where `text` does not follow it.
  static DeviceName parse(std::string_view text, std::source_location where);
  static DeviceName of(const Device& device);

  // This name, its missing parts taken from `outer`. An index belongs to its type: one of another type is
  // not taken.
  DeviceName inside(const DeviceName& outer) const;

  // Whether it is a name of this device of this process, which is job localhost, replica 0, task 0.
  bool names(const Device& device) const;

  std::string to_string() const;
};

}  // namespace lockstep
