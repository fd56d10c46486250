// What the checks of the machine share: what was seen, and what they have found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/surroundings.h"
#include "lockstep/doctor/doctor.h"

namespace lockstep::doctor {

struct Diagnosis {
  explicit Diagnosis(const Surroundings& seen);

  void add(Severity severity, std::string_view check, std::string cause, std::vector<std::string> evidence,
           std::string fix);
  // The CUDA version that this build needs: 13000, "13.0".
  int cuda() const;
  std::string cuda_needed() const;

  const Surroundings& seen;
  const nvidia::Machine& machine;
  std::vector<const nvidia::Gpu*> visible;  // by the numbers that CUDA gives them
  bool has_hardware = false;                // something says that there is a GPU
  std::vector<Finding> findings;
};

// In this order: some look at what those before them have found.
void check_driver(Diagnosis& d);
void check_gpus(Diagnosis& d);
void check_software(Diagnosis& d);
void check_host(Diagnosis& d);

// "GPU 0 (NVIDIA H200)"
std::string title(const nvidia::Gpu& gpu);
// What is looked for, and what the loader said.
std::vector<std::string> loading(const nvidia::Library& library, const nvidia::Machine& machine);
// The folder of a copy that has the needed name; empty: there is none.
std::string folder_with(const nvidia::Library& library);
std::string in_container(const nvidia::Machine& machine, std::string_view inside, std::string_view outside);

}  // namespace lockstep::doctor
