#include "base/environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::env {
namespace {

constexpr std::string_view kPrefix = "LOCKSTEP_";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Levenshtein distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

// Only what follows the prefix is compared: the prefix is the same in all and would hide how
// different two short names are.
std::string nearest_listed(std::string_view unknown) {
  const std::string_view rest = unknown.substr(kPrefix.size());
  std::string_view best;
  size_t best_distance = rest.size() / 3 + 1;
  for (const Variable& v : kVariables) {
    if (!v.name.starts_with(kPrefix)) continue;
    const size_t distance = edit_distance(lower(rest), lower(v.name.substr(kPrefix.size())));
    if (distance > best_distance || (distance == best_distance && !best.empty())) continue;
    best = v.name;
    best_distance = distance;
  }
  return std::string(best);
}

}  // namespace

int64_t parse_int(std::string_view source, std::string_view text, int64_t min, int64_t max) {
  const std::string_view digits = trim(text);
  int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  require(status == std::errc{} && end == digits.data() + digits.size() && value >= min && value <= max,
          ErrorCode::invalid_argument, std::source_location::current(), source, "=\"", text,
          "\": expected a whole number from ", min, " to ", max);
  return value;
}

bool parse_bool(std::string_view source, std::string_view text) {
  const std::string word = lower(trim(text));
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word == "0" || word == "false" || word == "no" || word == "off") return false;
  fail(ErrorCode::invalid_argument, std::source_location::current(), source, "=\"", text,
       "\": expected 1, true, yes or on; or 0, false, no or off");
}

int parse_choice(std::string_view source, std::string_view text, std::span<const std::string_view> allowed) {
  const std::string word = lower(trim(text));
  std::string list;
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (word == lower(allowed[i])) return static_cast<int>(i);
    if (i > 0) list += i + 1 == allowed.size() ? " or " : ", ";
    list += allowed[i];
  }
  fail(ErrorCode::invalid_argument, std::source_location::current(), source, "=\"", text, "\": expected ",
       list);
}

std::optional<std::string> read_string(Name name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int64_t read_int(Name name, int64_t fallback, int64_t min, int64_t max) {
  const auto text = read_string(name);
  return text ? parse_int(name.c_str(), *text, min, max) : fallback;
}

bool read_bool(Name name, bool fallback) {
  const auto text = read_string(name);
  return text ? parse_bool(name.c_str(), *text) : fallback;
}

int read_choice(Name name, std::span<const std::string_view> allowed, int fallback) {
  const auto text = read_string(name);
  return text ? parse_choice(name.c_str(), *text, allowed) : fallback;
}

std::vector<Unknown> unknown_variables() {
  std::vector<Unknown> unknown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kPrefix)) continue;
    if (std::any_of(kVariables.begin(), kVariables.end(), [&](const Variable& v) { return v.name == name; }))
      continue;
    unknown.push_back({std::string(name), nearest_listed(name)});
  }
  std::sort(unknown.begin(), unknown.end(),
            [](const Unknown& a, const Unknown& b) { return a.name < b.name; });
  return unknown;
}

}  // namespace lockstep::env
