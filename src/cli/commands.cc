#include "cli/commands.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/terminal.h"

namespace lockstep::cli {

void complain(const std::string& text) {
  std::string line = "lockstep: ";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') {
      line += text[i];
      continue;
    }
    // What was a list goes on in the line.
    i = std::min(text.find_first_not_of(" \n", i), text.size()) - 1;
    line += line.ends_with(':') || line.ends_with('?') ? " " : "; ";
  }
  terminal::print(line + "\n", stderr);
}

void print_result(const std::string& text) {
  errno = 0;
  if (terminal::write(text)) return;
  fail(ErrorCode::io, std::source_location::current(), "the result could not be written to standard output",
       errno != 0 ? std::string(": ") + std::strerror(errno) : "");
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  const std::string range =
      most == INT64_MAX ? "a whole number of at least " + std::to_string(least)
                        : "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  return {[=](std::string& text) -> std::string {
            int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good =
                error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
            return good ? "" : text + " is not " + range;
          },
          ""};
}

CLI::Validator path() {
  return {[](std::string& text) -> std::string {
            return text.empty() ? "the name is empty; write one, or leave the option out" : "";
          },
          ""};
}

CLI::Validator positive_number() {
  return {[](std::string& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool good = !text.empty() && *end == '\0' && std::isfinite(value) && value > 0;
            return good ? "" : text + " is not a number above 0";
          },
          ""};
}

}  // namespace lockstep::cli
