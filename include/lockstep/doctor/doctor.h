// The doctor: what there is on this machine, what of it Lockstep uses, why not the rest, and what to do about
// it.
//
//   const doctor::Report report = doctor::examine();
//   std::cout << report.to_text();
//
// docs/doctor.md lists every check; docs/doctor.schema.json describes what to_json() writes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/device/device.h"

namespace lockstep::doctor {

enum class Severity {
  note,     // worth knowing, nothing to do
  warning,  // it works, but slower or with less than the machine has
  problem,  // something does not work, or not as was asked for
};

std::string_view name(Severity severity);

// What a check found.
struct Finding {
  std::string check = {};  // "driver_too_old": one of the list in docs/doctor.md
  Severity severity = Severity::problem;
  std::string cause = {};                  // one line
  std::vector<std::string> evidence = {};  // figures, paths, messages of the system
  std::string fix = {};                    // a command, or code; empty: nothing to do
};

// A short run on a device.
struct Trial {
  std::string device = {};  // "/CPU:0"
  std::string work = {};    // "float32 matmul, 1024 x 1024 x 1024"
  bool correct = false;
  std::string fault = {};  // what was wrong, or why it did not run; empty: nothing
  double rate = 0, ceiling = 0;
  // Other processes had the cores in every reading: the figures say little.
  bool disturbed = false;
  std::string unit = {};        // of both: "GFLOP/s"
  std::string ceiling_is = {};  // "multiply-adds in registers, measured here"
};

struct Section {
  std::string title = {};
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, in the order to show
};

struct Report {
  std::vector<Section> sections;
  std::vector<Trial> trials;
  std::vector<Finding> findings;  // problems first
  Json facts = Json::object();    // what the sections show, for programs

  // No problem among the findings.
  bool healthy() const;
  std::string to_text() const;
  std::string to_json() const;
};

struct Options {
  // Only look: no runs, and the devices are not initialised.
  bool quick = false;
};

// Looks at CPU, memory, GPUs, driver, libraries, plugins and environment, and runs a matrix product and an
// addition on every logical device, which initialises them. Works without a GPU, with a driver that hangs or
// crashes, and in containers. Takes about a second per device.
Report examine(const Options& options = {});

// What a device can do at most; 0: not known. A CPU is measured, which takes a tenth of a second:
// multiply-adds in registers and copies of memory, on the device's threads. Of a GPU it follows from its
// clocks.
struct Ceilings {
  double flops_per_second = 0;       // in float32, by the units that this process computes it with
  double half_flops_per_second = 0;  // on 16-bit floats; 0: as many
  double bytes_per_second = 0;
  std::string is = {};
};
Ceilings ceilings(const Device& device);

}  // namespace lockstep::doctor
