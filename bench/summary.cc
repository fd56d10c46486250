#include "bench/summary.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::bench {
namespace {

// All results of a measurement have a ratio to its first, or none has.
double relative(const Result& result) { return result.ratio.value_or(result.us); }

template <class Wanted>
const Result* fastest(const Measurement& measurement, const Wanted& wanted) {
  const Result* best = nullptr;
  for (const Result& result : measurement.results)
    if (result.error.empty() && wanted(result) && (best == nullptr || relative(result) < relative(*best)))
      best = &result;
  return best;
}

// The least memory that one of them tells of; 0 where none does.
template <class Wanted>
int64_t least_memory(const Measurement& measurement, const Wanted& wanted) {
  int64_t least = 0;
  for (const Result& result : measurement.results)
    if (result.error.empty() && wanted(result) && result.memory > 0 && (least == 0 || result.memory < least))
      least = result.memory;
  return least;
}

}  // namespace

double Standing::ratio() const { return relative(*ours) / relative(*best_peer); }

std::optional<double> Standing::memory_ratio() const {
  if (memory <= 0 || least_peer_memory <= 0) return {};
  return static_cast<double>(memory) / static_cast<double>(least_peer_memory);
}

std::vector<Standing> standings(const std::vector<Measurement>& measurements) {
  std::vector<Standing> list;
  for (const Measurement& m : measurements) {
    const auto is_ours = [](const Result& r) {
      return !r.is_peer && !r.aside && r.name.starts_with("Lockstep");
    };
    const auto is_peer = [](const Result& r) { return r.is_peer; };
    const Result* ours = fastest(m, is_ours);
    const Result* peer = fastest(m, is_peer);
    if (ours == nullptr || peer == nullptr) continue;
    list.push_back({.work = m.id(),
                    .threads = m.on_gpu ? 0 : m.threads,
                    .ours = ours,
                    .best_peer = peer,
                    .share_of_ceiling = share_of_ceiling(m, *ours),
                    .items_per_second = m.items / ours->us * 1e6,
                    .memory = least_memory(m, is_ours),
                    .least_peer_memory = least_memory(m, is_peer)});
  }
  return list;
}

std::string as_table(const std::vector<Standing>& standings) {
  if (standings.empty()) return {};
  size_t work = 4, peer = 9;
  for (const Standing& s : standings) {
    work = std::max(work, s.work.size());
    peer = std::max(peer, s.best_peer->name.size());
  }
  std::string text = fmt::format(
      "  {:<{}}  {:>7}  {:>11}  {:>11}  {:>7}  {:>7}  {:<{}}  {:>11}  {:>6}  {:>7}\n", "work", work,
      "threads", "Lockstep us", "items/s", "% flops", "% bytes", "best peer", peer, "us", "ratio", "memory");
  size_t lost = 0;
  for (const Standing& s : standings) {
    const bool loses = s.ratio() > 1;
    lost += loses ? 1 : 0;
    const auto percent = [&](double Share::*part) {
      return s.share_of_ceiling ? fmt::format("{:.1f}", 100 * (*s.share_of_ceiling).*part) : std::string();
    };
    const auto doubt = [](const Result& r) { return r.us_is_clean ? " " : "?"; };
    text += fmt::format(
        "  {:<{}}  {:>7}  {:>10.1f}{}  {:>11}  {:>7}  {:>7}  {:<{}}  {:>10.1f}{}  {:>6.2f}  {:>7}{}\n",
        s.work, work, s.threads > 0 ? std::to_string(s.threads) : "GPU", s.ours->us, doubt(*s.ours),
        s.items_per_second > 0 ? fmt::format("{:.0f}", s.items_per_second) : "", percent(&Share::flops),
        percent(&Share::bytes), s.best_peer->name, peer, s.best_peer->us, doubt(*s.best_peer), s.ratio(),
        s.memory_ratio() ? fmt::format("{:.2f}", *s.memory_ratio()) : "", loses ? "  slower" : "");
  }
  text += fmt::format("  {} of {} works are slower than the best of the others.\n", lost, standings.size());
  return text;
}

nlohmann::json as_json(const std::vector<Standing>& standings) {
  auto list = nlohmann::json::array();
  for (const Standing& s : standings) {
    nlohmann::json entry{{"work", s.work},
                         {"candidate", s.ours->name},
                         {"us", s.ours->us},
                         {"best_peer", s.best_peer->name},
                         {"best_peer_us", s.best_peer->us},
                         {"ratio", s.ratio()},
                         {"slower", s.ratio() > 1}};
    if (s.threads > 0) entry["threads"] = s.threads;
    if (s.share_of_ceiling)
      entry["share_of_ceiling"] = {{"flops", s.share_of_ceiling->flops},
                                   {"bytes", s.share_of_ceiling->bytes}};
    if (s.memory_ratio()) entry["memory_ratio"] = *s.memory_ratio();
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace lockstep::bench
