// The doctor: what there is on this machine, what of it Lockstep uses, and why not the rest.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::doctor {

struct Section {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, in the order to show
};

struct Report {
  std::vector<Section> sections;
  // What a person should change; empty where nothing is wrong.
  std::vector<std::string> problems;

  std::string to_text() const;
  // {"sections": {title: {name: value}}, "problems": [...]}
  std::string to_json() const;
};

// Looks at CPU, memory, devices, backends, plugins and environment. Initialises the devices.
Report examine();

}  // namespace lockstep::doctor
