// What a backend says about itself: the doctor prints it without knowing any backend.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct BackendFacts {
  std::string name;                                        // "cpu"
  std::vector<std::pair<std::string, std::string>> facts;  // "oneDNN" -> "2.6.3", in the order to show
};

// `describe` is called when somebody asks, not at registration.
class RegisterBackendFacts {
 public:
  explicit RegisterBackendFacts(BackendFacts (*describe)());
};

std::vector<BackendFacts> describe_backends();

}  // namespace lockstep
