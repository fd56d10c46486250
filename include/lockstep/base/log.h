// Messages to the person who runs the program: one line each, on stderr unless a sink is set.
//
//   log(LogLevel::warning, "dataset: ended after ", seen, " of ", expected, " steps");
//
// What is below the level of LOCKSTEP_LOG (debug, info, warning, error or off; info where it is not
// set) is dropped before its text is built. All functions are thread-safe; messages never interleave.
#pragma once

#include <chrono>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

enum class LogLevel { debug, info, warning, error, off };

std::string_view name(LogLevel level);

struct LogMessage {
  LogLevel level;
  std::string_view text;  // valid during the sink's call only
  std::source_location where;
  std::chrono::system_clock::time_point time;
};

// "2026-11-15 04:50:12.345 warning lockstep: text", without a newline at the end; line breaks in the
// text become " | ". `with_source` adds " [file.cc:12]".
std::string render(const LogMessage& message, bool with_source);

// A sink is called by one thread at a time. What it logs itself goes to stderr, and so does the
// message during which it throws. It must not call set_log_sink.
using LogSink = std::function<void(const LogMessage&)>;

// Sends all messages to `sink` (an empty one: to stderr) and returns the sink used until now. When
// it returns, the old sink is not running and will not be called again.
LogSink set_log_sink(LogSink sink);

LogLevel log_level();
void set_log_level(LogLevel level);

// A level together with the place that logs: a plain LogLevel converts to it at the call.
struct LogAt {
  LogAt(LogLevel level, std::source_location where = std::source_location::current())
      : level(level), where(where) {}
  LogLevel level;
  std::source_location where;
};

namespace detail {
void log_text(const LogAt& at, std::string_view text);
bool first_time(const std::source_location& where, std::string_view text);
}  // namespace detail

template <class... Parts>
void log(LogAt at, const Parts&... parts) {
  if (at.level >= log_level()) detail::log_text(at, detail::concat(parts...));
}

// Logs a text once per place in the code, however often it comes by; another text from the same
// place is another message. Builds the text every time: not for the inside of a kernel.
template <class... Parts>
void log_once(LogAt at, const Parts&... parts) {
  if (at.level < log_level()) return;
  const std::string text = detail::concat(parts...);
  if (detail::first_time(at.where, text)) detail::log_text(at, text);
}

}  // namespace lockstep
