#include "cli/launch/messages.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

// JSON holds text, while arguments and variables are bytes: those that are no ASCII are written as %E4.
std::string as_ascii(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e || c == '%')
      text += fmt::format("%{:02X}", byte);
    else
      text += c;
  }
  return text;
}

std::string from_ascii(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ec == std::errc()) {
      bytes += static_cast<char>(byte);
      i += 2;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

int int_at(const Json& json, std::string_view name) { return static_cast<int>(json.at(name).as_int()); }
std::string text_at(const Json& json, std::string_view name) { return from_ascii(json.at(name).as_string()); }

std::vector<int> ranks_at(const Json& json) {
  std::vector<int> ranks;
  for (const Json& rank : json.at("ranks").items()) ranks.push_back(static_cast<int>(rank.as_int()));
  return ranks;
}

std::string line_of(const char* name, Json value) {
  return Json::object({{name, std::move(value)}}).dump() + "\n";
}

// Lines of agents begin with a character that hardly any text has.
constexpr char kMark = '\x1e';
constexpr char kGoesOn = '+';     // in the place of a kind: with the rank's next line
constexpr size_t kLongest = 900;  // srun breaks lines of more than 1,024

}  // namespace

const std::string kKillLine = line_of("kill", true);
const std::string kAliveLine = line_of("alive", true);
const std::string kEndLine = line_of("end", true);

std::string to_line(const Preparation& preparation) {
  Json program = Json::list(), environment = Json::object();
  for (const std::string& word : preparation.program) program.push_back(as_ascii(word));
  for (const auto& [name, value] : preparation.environment) environment.set(as_ascii(name), as_ascii(value));
  return line_of("prepare",
                 Json::object({{"ranks", Json::List(preparation.ranks.begin(), preparation.ranks.end())},
                               {"workers", preparation.workers},
                               {"program", std::move(program)},
                               {"folder", as_ascii(preparation.folder)},
                               {"meeting_host", as_ascii(preparation.meeting_host)},
                               {"environment", std::move(environment)},
                               {"silence_s", preparation.silence_s}}));
}

Preparation preparation_from(const Json& json) {
  Preparation preparation{.ranks = ranks_at(json),
                          .workers = int_at(json, "workers"),
                          .folder = text_at(json, "folder"),
                          .meeting_host = text_at(json, "meeting_host"),
                          .silence_s = json.at("silence_s").as_double()};
  for (const Json& word : json.at("program").items())
    preparation.program.push_back(from_ascii(word.as_string()));
  for (const auto& [name, value] : json.at("environment").members())
    preparation.environment.emplace_back(from_ascii(name), from_ascii(value.as_string()));
  return preparation;
}

std::string to_line(const Start& start) {
  Json workers = Json::object();
  for (const auto& [rank, share] : start.workers)
    workers.set(std::to_string(rank), share ? to_json(*share) : Json(nullptr));
  return line_of("start", Json::object({{"address", as_ascii(start.address)},
                                        {"secret", as_ascii(start.secret)},
                                        {"restart", start.restart},
                                        {"workers", std::move(workers)}}));
}

Start start_from(const Json& json) {
  Start start{.address = text_at(json, "address"),
              .secret = text_at(json, "secret"),
              .restart = int_at(json, "restart")};
  for (const auto& [rank, share] : json.at("workers").members())
    start.workers.emplace(std::stoi(rank), share.is_null() ? std::nullopt : std::optional(share_from(share)));
  return start;
}

std::string to_line(const Signal& signal) { return line_of("signal", signal.number); }

std::string to_lines(const Report& report) {
  std::string lines;
  std::string_view text = report.text;
  for (; text.size() > kLongest; text.remove_prefix(kLongest))
    lines += fmt::format("{}{}{} {}\n", kMark, kGoesOn, report.rank, text.substr(0, kLongest));
  return lines + fmt::format("{}{}{} {}\n", kMark, static_cast<char>(report.kind), report.rank, text);
}

std::optional<Report> ReportReader::read(std::string_view line, bool& is_report) {
  constexpr std::string_view kKinds = "rnsoex+";
  static_assert(kKinds.back() == kGoesOn);
  is_report = false;
  if (line.size() < 3 || line[0] != kMark || kKinds.find(line[1]) == std::string_view::npos)
    return std::nullopt;
  Report report{.kind = static_cast<ReportKind>(line[1])};
  const auto [end, error] = std::from_chars(line.data() + 2, line.data() + line.size(), report.rank);
  if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return std::nullopt;
  is_report = true;
  std::string& begun = begun_[report.rank];
  begun.append(end + 1, line.data() + line.size());
  if (line[1] == kGoesOn) return std::nullopt;
  report.text = std::exchange(begun, {});
  return report;
}

std::string to_text(const ReadyReport& ready) {
  return Json::object({{"ranks", Json::List(ready.ranks.begin(), ready.ranks.end())},
                       {"host", as_ascii(ready.host)},
                       {"process", ready.process},
                       {"port", ready.port},
                       {"machine", to_json(ready.machine)}})
      .dump();
}

ReadyReport ready_from(std::string_view text) {
  const Json json = Json::parse(text, "an agent's report");
  return {.ranks = ranks_at(json),
          .host = text_at(json, "host"),
          .process = int_at(json, "process"),
          .port = int_at(json, "port"),
          .machine = machine_from(json.at("machine"))};
}

std::string to_text(const Refusal& refusal) {
  return Json::object({{"code", refusal.code}, {"message", as_ascii(refusal.message)}}).dump();
}

Refusal refusal_from(std::string_view text) {
  const Json json = Json::parse(text, "an agent's report");
  return {int_at(json, "code"), text_at(json, "message")};
}

std::string to_text(const ExitStatus& status) { return fmt::format("{} {}", status.code, status.signal); }

ExitStatus exit_status_from(std::string_view text) {
  ExitStatus status;
  if (std::sscanf(std::string(text).c_str(), "%d %d", &status.code, &status.signal) != 2) status.code = 1;
  return status;
}

}  // namespace lockstep::launch
