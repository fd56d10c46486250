#include "device/nvidia_visible.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::nvidia {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

struct Found {
  int gpu = -1;
  std::string fault;
};

Found by_number(std::string_view entry, int count) {
  std::string_view digits = entry;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error == std::errc::result_out_of_range)
    number = count;
  else if (error != std::errc())
    return {-1, "is not a number of a GPU"};
  if (number < 0) return {-1, "is negative, which ends the list"};
  if (number >= count)
    return {-1, count == 0
                    ? "there are no GPUs"
                    : detail::concat("there ",
                                     count == 1 ? "is 1 GPU, number 0"
                                                : detail::concat("are ", count, " GPUs, 0 to ", count - 1))};
  return {number, {}};
}

Found by_uuid(std::string_view entry, std::string_view prefix, const std::vector<std::string>& uuids) {
  if (!entry.starts_with(prefix))
    return {-1, detail::concat("does not begin with ", prefix, " as the first entry does")};
  Found found;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(entry)) continue;
    if (found.gpu >= 0)
      return {-1, detail::concat("fits both ", uuids[static_cast<size_t>(found.gpu)], " and ", uuids[i])};
    found.gpu = static_cast<int>(i);
  }
  if (found.gpu < 0) found.fault = "is the UUID of no GPU here";
  return found;
}

}  // namespace

VisibleList visible_by_rule(const std::optional<std::string>& value, const std::vector<std::string>& uuids) {
  VisibleList list;
  if (!value) {
    list.gpus.resize(uuids.size());
    std::iota(list.gpus.begin(), list.gpus.end(), 0);
    return list;
  }
  const std::vector<std::string_view> entries = split(*value);
  if (trimmed(*value).empty()) {
    list.fault = "it is empty, which hides every GPU";
    return list;
  }
  const std::string_view prefix = entries[0].starts_with("GPU-")   ? "GPU-"
                                  : entries[0].starts_with("MIG-") ? "MIG-"
                                                                   : "";
  for (size_t i = 0; i < entries.size(); ++i) {
    const Found found = prefix.empty() ? by_number(entries[i], static_cast<int>(uuids.size()))
                                       : by_uuid(entries[i], prefix, uuids);
    if (found.gpu < 0) {
      list.fault = detail::concat("entry ", i + 1, ", \"", entries[i], "\": ", found.fault);
      return list;
    }
    if (std::find(list.gpus.begin(), list.gpus.end(), found.gpu) != list.gpus.end()) {
      list.gpus.clear();
      list.fault = detail::concat("entry ", i + 1, ", \"", entries[i],
                                  "\": names a GPU for the second time, which hides every GPU");
      return list;
    }
    list.gpus.push_back(found.gpu);
  }
  return list;
}

}  // namespace lockstep::nvidia
