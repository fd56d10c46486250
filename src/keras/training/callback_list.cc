#include "keras/training/callback_list.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::keras {

CallbackList::CallbackList(std::vector<Callback> given, Model& model, const RunParams& params,
                           std::source_location where, const Callback& last, bool chief)
    : list_(std::move(given)) {
  for (size_t i = 0; i < list_.size(); ++i)
    require(list_[i].base() != nullptr, ErrorCode::invalid_argument, where, "callback ", i, " of ",
            list_.size(), " is empty: it was default-constructed");
  if (params.verbose > 0) list_.push_back(callbacks::ProgbarLogger());
  if (last.base()) list_.push_back(last);
  for (const Callback& callback : list_) callback.base()->bind(&model, params);
  set_chief(chief);
}

std::vector<Callback> CallbackList::set_chief(bool chief) {
  const std::vector<Callback> before = std::exchange(told_, {});
  std::vector<Callback> fresh;
  for (const Callback& callback : list_) {
    if (!chief && callback.base()->chief_only()) continue;
    told_.push_back(callback);
    if (std::none_of(before.begin(), before.end(),
                     [&](const Callback& known) { return known.base() == callback.base(); }))
      fresh.push_back(callback);
  }
  return fresh;
}

void CallbackList::add_logs(int epoch, Logs& logs) const {
  for (const Callback& callback : told_) callback.base()->add_logs(epoch, logs);
}

bool CallbackList::wants_batch_logs() const {
  return std::any_of(told_.begin(), told_.end(),
                     [](const Callback& callback) { return callback.base()->wants_batch_logs(); });
}

bool CallbackList::needs_every_batch() const {
  return std::any_of(told_.begin(), told_.end(),
                     [](const Callback& callback) { return callback.base()->needs_every_batch(); });
}

}  // namespace lockstep::keras
