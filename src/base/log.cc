#include "lockstep/base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <unordered_set>

#include "base/environment.h"
#include "lockstep/base/terminal.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};
constexpr LogLevel kDefault = LogLevel::info;
constexpr int kUnset = -1;

struct State {
  std::atomic<int> level{kUnset};
  std::mutex sink_mutex;
  LogSink sink;
  std::mutex seen_mutex;  // its own: a sink may call log_once
  std::unordered_set<std::string> seen;
};

// Never destroyed: destructors of other statics may still log.
State& state() {
  static State& s = *new State;
  return s;
}

thread_local bool in_sink = false;

void write_stderr(const LogMessage& message) {
  // One write a line, so that processes which share a terminal do not cut each other's lines. What
  // cannot be written to stderr has nowhere else to go.
  std::string line = render(message, log_level() == LogLevel::debug) + "\n";
  if (isatty(STDERR_FILENO)) line = terminal::wrapped(line, terminal::columns(stderr).value_or(80));
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace

std::string_view name(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

std::string render(const LogMessage& message, bool with_source) {
  const auto since_epoch = message.time.time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm local{};
  localtime_r(&seconds, &local);
  char stamp[64];
  const size_t length = std::strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &local);
  std::snprintf(stamp + length, sizeof(stamp) - length, ".%03d", static_cast<int>(ms % 1000));

  std::string line = detail::concat(stamp, ' ', name(message.level), " lockstep: ");
  for (const char c : message.text) {
    if (c == '\n')
      line += " | ";
    else
      line += c;
  }
  if (with_source) {
    std::string_view file = message.where.file_name();
    if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
    line += detail::concat(" [", file, ':', message.where.line(), ']');
  }
  return line;
}

LogSink set_log_sink(LogSink sink) {
  State& s = state();
  std::lock_guard lock(s.sink_mutex);
  std::swap(s.sink, sink);
  return sink;
}

void set_log_level(LogLevel level) {
  state().level.store(static_cast<int>(level), std::memory_order_relaxed);
}

LogLevel log_level() {
  std::atomic<int>& level = state().level;
  if (const int value = level.load(std::memory_order_relaxed); value != kUnset)
    return static_cast<LogLevel>(value);

  // A wrong value must not keep a program from starting: it is reported, and the default holds.
  int chosen = static_cast<int>(kDefault);
  std::string complaint;
  try {
    chosen = env::read_choice("LOCKSTEP_LOG", kNames, chosen);
  } catch (const Error& error) {
    complaint = error.message();
  }
  int expected = kUnset;
  const bool first = level.compare_exchange_strong(expected, chosen, std::memory_order_relaxed);
  if (first && !complaint.empty())
    log(LogLevel::warning, complaint, "; using ", kNames[static_cast<size_t>(chosen)]);
  return static_cast<LogLevel>(first ? chosen : expected);
}

namespace detail {

void log_text(const LogAt& at, std::string_view text) {
  const LogMessage message{at.level, text, at.where, std::chrono::system_clock::now()};
  if (in_sink) {
    write_stderr(message);
    return;
  }
  State& s = state();
  std::lock_guard lock(s.sink_mutex);
  if (!s.sink) {
    write_stderr(message);
    return;
  }
  in_sink = true;
  try {
    s.sink(message);
  } catch (...) {
    write_stderr(message);
  }
  in_sink = false;
}

bool first_time(const std::source_location& where, std::string_view text) {
  State& s = state();
  std::string key = concat(where.file_name(), ':', where.line(), ':', where.column(), ':', text);
  std::lock_guard lock(s.seen_mutex);
  return s.seen.insert(std::move(key)).second;
}

}  // namespace detail
}  // namespace lockstep
