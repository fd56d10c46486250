#include "comm/membership.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::comm {
namespace {

constexpr double kSilence = 3;  // seconds without a sign of life that are worth a word

double seconds_since(Moment moment) {
  return std::chrono::duration<double>(SteadyClock::now() - moment).count();
}

}  // namespace

void add_sentence(std::string& text, const std::string& sentence) {
  text += (text.empty() ? "" : "; ") + sentence;
}

Membership::Membership(int rank, const std::vector<std::string>& names)
    : rank_(rank), members_(names.size()) {
  for (size_t r = 0; r < names.size(); ++r) members_[r].who = names[r];
}

std::string Membership::name(size_t r) const {
  return members_[r].who.empty() ? detail::concat("rank ", r)
                                 : detail::concat("rank ", r, " (", members_[r].who, ")");
}

bool Membership::set_progress(int64_t begun, int64_t ended, std::string_view operation) {
  Member& m = own();
  if (m.begun == begun && m.ended == ended) return false;
  m.begun = begun;
  m.ended = ended;
  m.operation.assign(operation);
  return true;
}

void Membership::set_activity(const observe::Activity& activity, int64_t now_ns) {
  own().activity = activity.what;
  own().active_s = activity.since_ns == 0 ? 0 : static_cast<double>(now_ns - activity.since_ns) * 1e-9;
}

// --- what ranks tell each other ----------------------------------------------------------------------------

void Membership::put(MessageWriter& body, int r) const {
  const Member& m = members_[static_cast<size_t>(r)];
  const double silent_s = r == rank_ ? 0 : seconds_since(m.heard);
  body.put(int32_t{r}).put(m.begun).put(m.ended).put(m.gathers).put(m.active_s).put(silent_s);
  body.put_text(m.operation).put_text(m.activity);
}

std::string Membership::told() const {
  MessageWriter body;
  const int count = rank_ == 0 ? static_cast<int>(members_.size()) : 1;
  body.put(int32_t{count});
  for (int r = rank_; r < rank_ + count; ++r) put(body, r);
  return body.take();
}

bool Membership::take_told(const std::string& text) {
  MessageReader body(text);
  bool news = false;
  for (auto count = body.get<int32_t>(); count > 0 && !body.ended(); --count) news = take(body) || news;
  return news;
}

bool Membership::take(MessageReader& body) {
  const auto r = body.get<int32_t>();
  Member m;
  m.begun = body.get<int64_t>();
  m.ended = body.get<int64_t>();
  m.gathers = body.get<int64_t>();
  m.active_s = body.get<double>();
  const auto silent_s = body.get<double>();
  m.operation = body.get_text();
  m.activity = body.get_text();
  if (r < 0 || r >= static_cast<int>(members_.size()) || r == rank_) return false;
  Member& known = members_[static_cast<size_t>(r)];
  const bool news = known.begun != m.begun;
  known.begun = m.begun;
  known.ended = m.ended;
  known.gathers = m.gathers;
  known.active_s = m.active_s;
  known.operation = std::move(m.operation);
  known.activity = std::move(m.activity);
  known.heard = in_seconds(-std::max(0.0, silent_s));
  return news;
}

// --- who is gone -------------------------------------------------------------------------------------------

bool Membership::end(std::string verdict, ErrorCode code) {
  if (!verdict_.empty()) return false;
  verdict_ = std::move(verdict);
  verdict_code_ = code;
  return true;
}

std::string Membership::lost() const {
  std::string text = verdict_;
  for (size_t r = 0; r < members_.size(); ++r)
    if (!members_[r].lost.empty())
      add_sentence(text, detail::concat(name(r), " is gone: ", members_[r].lost));
  return text;
}

std::string Membership::left() const {
  std::string text;
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].left)
      add_sentence(text, detail::concat(name(r), " has left: its program let go of the run"));
  return text;
}

std::string Membership::behind(int64_t operation) const {
  std::string text;
  for (size_t r = 0; r < members_.size(); ++r)
    if (members_[r].begun < operation)
      add_sentence(text, detail::concat(name(r), " has begun ", members_[r].begun));
  return text;
}

std::string Membership::missing_from(int64_t operation, std::string_view called) const {
  std::string text;
  for (size_t r = 0; r < members_.size(); ++r) {
    const Member& m = members_[r];
    if (static_cast<int>(r) == rank_) continue;
    if (m.begun < operation)
      add_sentence(text, absent(r, std::string(called)));
    else if (m.begun == operation && !m.operation.empty() && m.operation != called)
      add_sentence(text, detail::concat(name(r), " is at ", m.operation, " instead of ", called));
  }
  return text;
}

std::string Membership::missing_from_gathering(int64_t number, const std::string& called) const {
  std::string text;
  for (size_t r = 0; r < members_.size(); ++r)
    if (static_cast<int>(r) != rank_ && members_[r].gathers < number)
      add_sentence(text, absent(r, detail::concat(called, " (", number, ")")));
  return text;
}

std::string Membership::absent(size_t r, const std::string& what) const {
  const Member& m = members_[r];
  const double silent_s = seconds_since(m.heard);
  std::string text = detail::concat(name(r), " has not come to ", what);
  if (m.left) return text + ": its program has let go of the run";
  if (silent_s > kSilence)
    return detail::concat(text, "; for ", std::llround(silent_s),
                          " s nothing was heard of it: it is stopped, or cut off from the network");
  if (!m.activity.empty())
    text += detail::concat("; for ", std::llround(m.active_s + silent_s), " s it is in ", m.activity);
  return text;
}

}  // namespace lockstep::comm
