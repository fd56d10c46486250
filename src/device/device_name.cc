#include "device/device_name.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

class Parser {
 public:
  Parser(std::string_view text, std::source_location where) : text_(text), where_(where) {}

  DeviceName run() {
    std::string_view rest = text_;
    if (rest.starts_with('/')) rest.remove_prefix(1);
    if (!text_.empty())
      for (const std::string_view part : split(rest, '/')) parse(part);
    return std::move(name_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::invalid_argument, where_, "device name \"", text_, "\": ", parts...,
         "; a name is /job:<name>/replica:<n>/task:<n>/device:<TYPE>:<n or *>, of which every part may be "
         "left out, or short, /CPU:0");
  }

  void parse(std::string_view part) {
    const std::vector<std::string_view> fields = split(part, ':');
    const std::string key = upper(fields[0]);
    if (key == "DEVICE") {
      if (fields.size() < 2 || fields.size() > 3) refuse("\"", part, "\" is not device:<TYPE>:<n or *>");
      set_device(fields[1], fields.size() == 3 ? std::optional(fields[2]) : std::nullopt);
    } else if (key == "JOB" || key == "REPLICA" || key == "TASK") {
      if (fields.size() != 2) refuse("\"", part, "\" is not ", fields[0], ":<value>");
      if (key == "JOB")
        set(name_.job, job(fields[1]), fields[0]);
      else
        set(key == "TASK" ? name_.task : name_.replica, number(fields[1]), fields[0]);
    } else {
      if (fields.size() > 2) refuse("\"", part, "\" is not <TYPE>:<n or *>");
      set_device(fields[0], fields.size() == 2 ? std::optional(fields[1]) : std::nullopt);
    }
  }

  template <class T>
  void set(std::optional<T>& field, T value, std::string_view what) const {
    if (field) refuse("it has two parts \"", what, "\"");
    field = std::move(value);
  }

  void set_device(std::string_view type, std::optional<std::string_view> index) {
    const auto kind = parse_device_kind(type);
    if (!kind) refuse("\"", type, "\" is not a type of device, which are CPU and GPU");
    if (name_.kind) refuse("it has two types of device");
    name_.kind = kind;
    if (index) name_.index = *index == "*" ? DeviceName::kAny : number(*index);
  }

  std::string job(std::string_view text) const {
    const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    if (text.empty() || !std::all_of(text.begin(), text.end(), allowed))
      refuse("\"", text, "\" is not the name of a job");
    return std::string(text);
  }

  int number(std::string_view text) const {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool plain = !text.empty() && text[0] != '-' && (text[0] != '0' || text.size() == 1);
    if (error != std::errc() || end != text.data() + text.size() || !plain)
      refuse("\"", text, "\" is not a number");
    return value;
  }

  std::string_view text_;
  std::source_location where_;
  DeviceName name_;
};

}  // namespace

std::optional<DeviceKind> parse_device_kind(std::string_view text) {
  const std::string type = upper(text);
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu})
    if (type == name(kind)) return kind;
  return std::nullopt;
}

DeviceName DeviceName::parse(std::string_view text, std::source_location where) {
  return Parser(text, where).run();
}

DeviceName DeviceName::of(const Device& device) {
  return {.job = {}, .replica = {}, .task = {}, .kind = device.kind(), .index = device.index()};
}

DeviceName DeviceName::inside(const DeviceName& outer) const {
  DeviceName result = *this;
  if (!result.job) result.job = outer.job;
  if (!result.replica) result.replica = outer.replica;
  if (!result.task) result.task = outer.task;
  if (!result.kind) result.kind = outer.kind;
  if (!result.index && result.kind == outer.kind) result.index = outer.index;
  return result;
}

bool DeviceName::names(const Device& device) const {
  return job.value_or("localhost") == "localhost" && replica.value_or(0) == 0 && task.value_or(0) == 0 &&
         kind.value_or(device.kind()) == device.kind() &&
         (index.value_or(kAny) == kAny || *index == device.index());
}

std::string DeviceName::to_string() const {
  std::string text;
  if (job) text += "/job:" + *job;
  if (replica) text += "/replica:" + std::to_string(*replica);
  if (task) text += "/task:" + std::to_string(*task);
  if (!kind) return text;
  // The full form only where there is more to it than the device.
  text += (text.empty() ? "/" : "/device:") + std::string(name(*kind));
  if (index) text += *index == kAny ? ":*" : ":" + std::to_string(*index);
  return text;
}

}  // namespace lockstep
