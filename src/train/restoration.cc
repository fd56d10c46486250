#include "train/restoration.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "train/checkpoint_format.h"

namespace lockstep::train {
namespace {

bool is_under(const std::string& name, const std::string& object) {
  return name.starts_with(object) && (name.size() == object.size() || name[object.size()] == '/');
}

// "\n  model/dense/kernel float32 (2, 3)" for each; the first few where there are many.
std::string listed(const std::vector<std::string>& lines) {
  constexpr size_t kShown = 50;
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i) text += "\n    " + lines[i];
  if (lines.size() > kShown) text += detail::concat("\n    and ", lines.size() - kShown, " more");
  return text;
}

}  // namespace

NamedObjects all_objects(const NamedTrackables& roots) {
  NamedObjects all;
  const auto visit = [&](const auto& self, const std::string& prefix,
                         const NamedTrackables& objects) -> void {
    for (const auto& [name, object] : objects) {
      const std::string whole = join_names(prefix, name);
      all.emplace_back(whole, object.object());
      self(self, whole, object.object()->children());
    }
  };
  visit(visit, "", roots);
  return all;
}

std::string Mismatches::text() const {
  std::string text;
  const auto add = [&](const char* title, const std::vector<std::string>& lines) {
    if (!lines.empty()) text += detail::concat("\n  ", title, listed(lines));
  };
  add("of another shape or dtype (restore into the model that was saved, or leave this object out):",
      misshapen);
  add("missing from the checkpoint (these keep the values they had; was something added since it was "
      "saved?):",
      missing);
  add("only in the checkpoint (give it the object that has them, or call expect_partial()):", extra);
  add("waiting for their variables to be made (build the model, or the optimizer):", deferred);
  return text;
}

// --- Restoration -------------------------------------------------------------------------------------------

Restoration::~Restoration() {
  if (!accepted && !pending.empty())
    log(LogLevel::warning, "checkpoint \"", path,
        "\": never restored, as no variable of this name was made:", listed(names_of_pending()));
}

void Restoration::continue_with(const std::string& name, const TrackedObject& object) {
  if (superseded || finished.contains(name)) return;
  std::vector<std::string> missing;
  for (const auto& [own, variable] : object.variables()) {
    const std::string whole = join_names(name, own);
    if (known.contains(whole)) continue;
    const auto value = pending.find(whole);
    if (value == pending.end()) {
      missing.push_back(detail::concat(whole, " ", variable.spec()));
      continue;
    }
    require(value->second.spec() == variable.spec(), ErrorCode::invalid_argument,
            std::source_location::current(), "checkpoint \"", path, "\" does not fit what was built: \"",
            whole, "\" is ", variable.spec(), ", in the checkpoint ", value->second.spec(),
            "; restore into the model that was saved");
    variable.assign(value->second);
    known.insert(whole);
    pending.erase(value);
  }
  // Until all is there, a variable may yet turn out to be listed by another name.
  if (!object.complete()) return;
  finished.insert(name);
  std::vector<std::string> extra;
  std::erase_if(pending, [&](const auto& left) {
    if (!is_under(left.first, name)) return false;
    extra.push_back(detail::concat(left.first, " ", left.second.spec()));
    return true;
  });
  found.missing.insert(found.missing.end(), missing.begin(), missing.end());
  found.extra.insert(found.extra.end(), extra.begin(), extra.end());
  if (!accepted && !(missing.empty() && extra.empty()))
    log(LogLevel::warning, "checkpoint \"", path, "\" did not match what was built:",
        Mismatches{.misshapen = {}, .missing = missing, .extra = extra, .deferred = {}}.text());
}

void Restoration::supersede() {
  superseded = true;
  pending.clear();
}

std::vector<std::string> Restoration::names_of_pending() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : pending) names.push_back(detail::concat(name, " ", value.spec()));
  return names;
}

void watch(const std::shared_ptr<Restoration>& restoration, const std::string& name,
           const TrackedObject& object) {
  using Call = std::function<void(const TrackedObject&)>;
  const auto call = std::make_shared<Call>();
  *call = [restoration, name, self = std::weak_ptr(call)](const TrackedObject& grown) {
    restoration->continue_with(name, grown);
    if (!grown.complete()) grown.when_grown(self.lock());
  };
  object.when_grown(call);
}

// --- CheckpointMatch ---------------------------------------------------------------------------------------

CheckpointMatch::CheckpointMatch(const CheckpointFile& file, const std::string& path,
                                 const NamedTrackables& roots, Restoration& restoration,
                                 std::source_location where)
    : file_(file), path_(path), objects_(all_objects(roots)) {
  for (const auto& entry : file.entries()) unused_.insert(entry.name);
  Mismatches& found = restoration.found;
  match_variables(restoration);
  match_states(found);
  match_growing(found);
  for (const std::string& name : unused_)
    found.extra.push_back(detail::concat(name, " ", file_.find(name)->spec));
  require(found.misshapen.empty(), ErrorCode::invalid_argument, where, "checkpoint \"", path_,
          "\" does not fit; nothing was restored:", found.text());
}

void CheckpointMatch::match_variables(Restoration& restoration) {
  Mismatches& found = restoration.found;
  for (const auto& [name, object] : objects_)
    for (const auto& [own, variable] : object->variables()) {
      const std::string whole = join_names(name, own);
      restoration.known.insert(whole);
      const auto* entry = file_.find(whole);
      if (!entry) {
        found.missing.push_back(detail::concat(whole, " ", variable.spec()));
      } else if (entry->spec != variable.spec()) {
        found.misshapen.push_back(
            detail::concat(whole, " is ", variable.spec(), ", in the checkpoint ", entry->spec));
      } else {
        matched_.emplace_back(variable, whole);
      }
      unused_.erase(whole);
    }
}

void CheckpointMatch::match_states(Mismatches& found) {
  for (const auto& [name, object] : objects_) {
    if (!object->has_state()) continue;
    Stateful with{.name = name, .object = object, .names = {}};
    for (const std::string& other : unused_)
      if (is_under(other, name)) with.names.push_back(other);
    for (const std::string& other : with.names) unused_.erase(other);
    if (with.names.empty()) {
      found.missing.push_back(detail::concat(name, " (", object->kind(), ")"));
    } else {
      stateful_.push_back(std::move(with));
    }
  }
}

void CheckpointMatch::match_growing(Mismatches& found) {
  for (const auto& [name, object] : objects_) {
    if (object->complete()) continue;
    bool any = false;
    for (const std::string& other : unused_)
      if (is_under(other, name)) deferred_.push_back(other), any = true;
    if (any) {
      growing_.emplace_back(name, object);
    } else if (object->variables().empty()) {
      found.missing.push_back(detail::concat(name, " (", object->kind(), ", without variables yet)"));
    }
  }
  for (const std::string& name : deferred_) unused_.erase(name);
}

void CheckpointMatch::read(Restoration& restoration, std::source_location where) {
  for (const auto& [variable, name] : matched_) values_.emplace_back(variable, file_.read(name, where));
  for (Stateful& with : stateful_)
    for (const std::string& name : with.names)
      with.state.emplace_back(name.size() == with.name.size() ? "" : name.substr(with.name.size() + 1),
                              file_.read(name, where));
  for (const std::string& name : deferred_) restoration.pending.emplace(name, file_.read(name, where));
}

void CheckpointMatch::assign(std::source_location where) {
  // An object that refuses its state does so before the variables have changed.
  for (const Stateful& with : stateful_) try {
      with.object->restore_state(with.state);
    } catch (Error& error) {
      error.note("while restoring \"" + with.name + "\" from checkpoint \"" + path_ + "\"");
      throw;
    }
  for (const auto& [variable, value] : values_) variable.assign(value, where);
}

// --- RestoreStatus -----------------------------------------------------------------------------------------

RestoreStatus::Impl::~Impl() {
  const Mismatches& found = restoration->found;
  if (!restoration->accepted && !(found.missing.empty() && found.extra.empty()))
    log(LogLevel::warning, "checkpoint \"", restoration->path, "\" was restored in part:", found.text());
}

bool RestoreStatus::restored() const { return !path().empty(); }
const std::string& RestoreStatus::path() const { return impl_->restoration->path; }
std::vector<std::string> RestoreStatus::missing() const { return impl_->restoration->found.missing; }
std::vector<std::string> RestoreStatus::extra() const { return impl_->restoration->found.extra; }
std::vector<std::string> RestoreStatus::deferred() const { return impl_->restoration->names_of_pending(); }

const RestoreStatus& RestoreStatus::assert_consumed(std::source_location where) const {
  require(restored(), ErrorCode::failed_precondition, where,
          "assert_consumed: there was no checkpoint to restore from");
  Mismatches found = impl_->restoration->found;
  found.deferred = deferred();
  impl_->restoration->accepted = true;
  require(found.missing.empty() && found.extra.empty() && found.deferred.empty(),
          ErrorCode::failed_precondition, where, "assert_consumed: checkpoint \"", path(),
          "\" was restored in part:", found.text());
  return *this;
}

const RestoreStatus& RestoreStatus::assert_existing_objects_matched(std::source_location where) const {
  require(restored(), ErrorCode::failed_precondition, where,
          "assert_existing_objects_matched: there was no checkpoint to restore from");
  impl_->restoration->accepted = true;
  const Mismatches found{.misshapen = {}, .missing = missing(), .extra = {}, .deferred = {}};
  require(found.missing.empty(), ErrorCode::failed_precondition, where,
          "assert_existing_objects_matched: checkpoint \"", path(), "\" was restored in part:", found.text());
  return *this;
}

const RestoreStatus& RestoreStatus::expect_partial() const {
  impl_->restoration->accepted = true;
  return *this;
}

}  // namespace lockstep::train
