#include "keras/callbacks/callback_states.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/keras/callbacks.h"

namespace lockstep::keras::callbacks {
namespace {

constexpr const char* kEntries = "entries";

// Where the run that was saved had no such callback. One that asks for nothing of an empty state does without.
void restore_without_state(const std::string& name, CallbackBase& callback) {
  CallbackState now;
  callback.visit_state(now);
  if (now.take().empty()) return;
  CallbackState none{CallbackState::Tensors()};
  try {
    callback.visit_state(none);
  } catch (const Error&) {
    fail(ErrorCode::invalid_argument, std::source_location::current(),
         "the run that it is of had no callback ", name);
  }
}

}  // namespace

std::vector<std::pair<std::string, CallbackBase*>> CallbackStates::named() const {
  std::vector<std::pair<std::string, CallbackBase*>> all;
  std::map<std::string, int> uses;
  for (const Callback& callback : trainer_.control().callbacks) {
    const std::string name = callback.base()->state_name();
    const int use = ++uses[name];
    all.emplace_back(use == 1 ? name : name + "_" + std::to_string(use), callback.base().get());
  }
  return all;
}

bool CallbackStates::restores(const CallbackBase& callback) const {
  switch (whose_) {
    case Whose::own: return !callback.chief_only() || trainer_.strategy().is_chief();
    case Whose::everybodys: return !callback.chief_only();
    case Whose::chiefs: return callback.chief_only();
  }
  return false;
}

train::NamedTensors CallbackStates::save_state() const {
  train::NamedTensors all;
  for (const auto& [name, callback] : named()) {
    CallbackState state;
    callback->visit_state(state);
    for (const auto& [own, value] : state.take()) all.emplace_back(name + "/" + own, value);
  }
  // Where no callback has a state, what is saved says so.
  all.emplace_back(kEntries, Tensor::scalar(static_cast<int64_t>(all.size())));
  return all;
}

void CallbackStates::restore_state(const train::NamedTensors& saved) {
  std::map<std::string, CallbackState::Tensors> states;
  for (const auto& [name, value] : saved) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos) states[name.substr(0, slash)].emplace_back(name.substr(slash + 1), value);
  }
  for (const auto& [name, callback] : named()) {
    if (!restores(*callback)) {
      states.erase(name);
      continue;
    }
    const auto found = states.find(name);
    if (found == states.end()) {
      restore_without_state(name, *callback);
      continue;
    }
    CallbackState state(std::move(found->second));
    states.erase(found);
    try {
      callback->visit_state(state);
    } catch (Error& error) {
      error.note("in the state of the callback " + name);
      throw;
    }
  }
  require(states.empty(), ErrorCode::invalid_argument, std::source_location::current(),
          "the run that it is of had a callback ", states.empty() ? "" : states.begin()->first,
          ", this one has not");
}

}  // namespace lockstep::keras::callbacks
