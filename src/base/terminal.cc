#include "lockstep/base/terminal.h"

#include <pthread.h>
#include <signal.h>
#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>

namespace lockstep::terminal {
namespace {

std::atomic<Shows> output{nullptr};

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The length of the escape sequence that a text begins with; 0 where it does not.
size_t escape_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_of("ABCDEFGHJKSTfmnsu", 2);
  return end == std::string_view::npos ? text.size() : end + 1;
}

// Where the text after a break begins.
size_t hanging_indent(std::string_view line, int columns) {
  const size_t begin = line.find_first_not_of(' ');
  if (begin == std::string_view::npos) return 0;
  if (const size_t gap = line.find("  ", begin); gap != std::string_view::npos) {
    const size_t text = line.find_first_not_of(' ', gap);
    const auto column = static_cast<size_t>(width(line.substr(0, text)));
    if (text != std::string_view::npos && column <= static_cast<size_t>(columns) / 2) return column;
  }
  return std::min(begin + 2, static_cast<size_t>(columns) / 2);
}

void wrap_line(std::string_view line, int columns, std::string& out) {
  if (width(line) <= columns) {
    out += line;
    return;
  }
  const std::string indent(hanging_indent(line, columns), ' ');
  int used = 0;
  bool begins = true;  // no word of this line is there yet
  for (size_t at = 0; at < line.size();) {
    const size_t word = std::min(line.find_first_not_of(' ', at), line.size());
    const size_t end = std::min(line.find(' ', word), line.size());
    const std::string_view gap = line.substr(at, word - at), text = line.substr(word, end - word);
    at = end;
    if (text.empty()) break;
    if (!begins && used + static_cast<int>(gap.size()) + width(text) > columns) {
      // A long word is moved to the left rather than over the edge.
      const int room = std::max(0, columns - width(text));
      used = std::min(static_cast<int>(indent.size()), room);
      out += '\n' + indent.substr(0, static_cast<size_t>(used));
    } else {
      out += gap;
      used += static_cast<int>(gap.size());
    }
    out += text;
    used += width(text);
    begins = false;
  }
}

}  // namespace

std::optional<int> columns(std::FILE* file) {
  if (const int told = std::atoi(std::string(variable("COLUMNS")).c_str()); told > 0) return told;
  winsize size{};
  const int descriptor = fileno(file);
  if (descriptor < 0 || !isatty(descriptor)) return std::nullopt;
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool moves(std::FILE* file) {
  const int descriptor = fileno(file);
  return descriptor >= 0 && isatty(descriptor) && variable("TERM") != "dumb";
}

bool colours(std::FILE* file) { return moves(file) && variable("NO_COLOR").empty(); }

int width(std::string_view text) {
  int count = 0;
  for (size_t i = 0; i < text.size();) {
    if (const size_t escape = escape_length(text.substr(i)); escape > 0) {
      i += escape;
      continue;
    }
    if (!continues_character(text[i]) && text[i] != '\r') ++count;
    ++i;
  }
  return count;
}

std::string wrapped(std::string_view text, int columns) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    wrap_line(text.substr(0, end), columns, out);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void set_output(Shows shows) { output = shows; }

bool write(std::string_view text, std::FILE* file) {
  if (const Shows shows = output; shows && file == stdout && shows(text)) return true;
  // SIGPIPE is for this thread: it is held back, and taken out where this write is what raised it.
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const bool was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (!written) {
    // What is kept would be tried again, and the signal raised again, when the program ends.
    __fpurge(file);
    std::clearerr(file);
    const timespec now{};
    if (!was_pending)
      while (sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) {
      }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return written;
}

bool print(std::string_view text, std::FILE* file) {
  const std::optional<int> room = columns(file);
  return room ? write(wrapped(text, *room), file) : write(text, file);
}

}  // namespace lockstep::terminal
