#include "device/backend_facts.h"

namespace lockstep {
namespace {

std::vector<BackendFacts (*)()>& describers() {
  static auto* list = new std::vector<BackendFacts (*)()>;
  return *list;
}

}  // namespace

RegisterBackendFacts::RegisterBackendFacts(BackendFacts (*describe)()) { describers().push_back(describe); }

std::vector<BackendFacts> describe_backends() {
  std::vector<BackendFacts> all;
  for (const auto describe : describers()) all.push_back(describe());
  return all;
}

}  // namespace lockstep
