#include "cli/launch/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "cli/launch/here.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/terminal.h"

namespace lockstep::launch {
namespace {

constexpr size_t kLastLines = 20;

std::vector<bool> parse_shown(const std::string& text, int workers) {
  const auto count = static_cast<size_t>(workers);
  if (text == "all") return std::vector<bool>(count, true);
  std::vector<bool> shown(count, false);
  if (text == "none") return shown;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    size_t rank = count;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + comma, rank);
    require(error == std::errc() && end == text.data() + comma && rank < count, ErrorCode::invalid_argument,
            kHere, "--show \"", text, "\": it is all, none, or ranks from 0 to ", workers - 1, " as 0,2");
    shown[rank] = true;
    begin = comma + 1;
  }
  return shown;
}

}  // namespace

Output::Output(const OutputOptions& options)
    : log_folder_(options.log_folder),
      workers_(static_cast<size_t>(options.workers)),
      digits_(static_cast<int>(std::to_string(options.workers - 1).size())),
      tags_first_(options.tags_first),
      colours_output_(terminal::colours(stdout)),
      colours_errors_(terminal::colours(stderr)),
      output_(STDOUT_FILENO),
      errors_(STDERR_FILENO) {
  const std::vector<bool> shown = parse_shown(options.shown, options.workers);
  for (size_t i = 0; i < shown.size(); ++i) workers_[i].shown = shown[i];
  if (!log_folder_.empty()) make_folders(log_folder_);
}

void Output::begin_worker(int rank, int restart) {
  Worker& worker = workers_.at(static_cast<size_t>(rank));
  worker.last.clear();
  if (log_folder_.empty()) return;
  const std::string path = restart == 0
                               ? fmt::format("{}/rank_{}.log", log_folder_, rank)
                               : fmt::format("{}/rank_{}.restart_{}.log", log_folder_, rank, restart);
  worker.log = std::ofstream(path, std::ios::binary | std::ios::trunc);
  require(worker.log.is_open(), ErrorCode::io, kHere, "--log-dir: ", path, " cannot be written");
}

int Output::prefix_width() const { return digits_ + 3; }

std::string Output::prefix(int rank, bool errors) const {
  if (rank == 0 && !tags_first_) return {};
  const std::string text = fmt::format("[{:>{}}] ", rank, digits_);
  if (!(errors ? colours_errors_ : colours_output_)) return text;
  constexpr int kColours[] = {36, 33, 35, 32, 34, 31};
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<size_t>(rank) % std::size(kColours)], text);
}

void Output::worker_line(int rank, bool errors, std::string_view line) {
  Worker& worker = workers_.at(static_cast<size_t>(rank));
  worker.last.emplace_back(line);
  if (worker.last.size() > kLastLines) worker.last.pop_front();
  if (worker.log.is_open()) {
    worker.log << line << '\n' << std::flush;
    if (!worker.log) {
      log_problem_ =
          fmt::format("the file of rank {} in {} could not be written to its end", rank, log_folder_);
      worker.log.close();
    }
  }
  if (worker.shown) put(errors, fmt::format("{}{}\n", prefix(rank, errors), line));
}

void Output::say(std::string_view text) {
  std::string line = fmt::format("lockstep launch: {}\n", text);
  if (const auto columns = terminal::columns(stderr)) line = terminal::wrapped(line, *columns);
  put(true, line);
}

void Output::other_line(const std::string& host, std::string_view line) {
  put(true, fmt::format("[{}] {}\n", host, line));
}

std::string Output::last_lines(int rank) const {
  std::string text;
  for (const std::string& line : workers_.at(static_cast<size_t>(rank)).last) text += "\n    | " + line;
  return text;
}

std::string Output::problem() const {
  if (output_.broken())
    return "the workers' output could not be written: is the disk full, or the pipe closed?";
  return log_problem_;
}

}  // namespace lockstep::launch
