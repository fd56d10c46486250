#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep::cli {

Progress::Progress(std::FILE* out, std::string title, int64_t total)
    : out_(out), title_(std::move(title)), total_(total), terminal_(isatty(fileno(out)) != 0) {}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::update(int64_t done, const std::string& figures) {
  const auto now = Clock::now();
  if (!terminal_ || now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  draw(done, figures);
}

void Progress::finish(const std::string& figures) {
  if (terminal_)
    draw(total_, figures);
  else
    fmt::print(out_, "{}  {:.1f} s  {}", title_, seconds(), figures);
  fmt::print(out_, "\n");
  std::fflush(out_);
}

void Progress::draw(int64_t done, const std::string& figures) {
  constexpr int kWidth = 24;
  const double part = total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 1;
  const int filled = static_cast<int>(part * kWidth);
  const double elapsed = seconds();
  const double left = part > 0 ? elapsed / part - elapsed : 0;
  fmt::print(out_, "\r\033[K{}  [{}{}] {}/{}  {:.1f} s, {:.1f} s left  {}", title_,
             std::string(static_cast<size_t>(filled), '='),
             std::string(static_cast<size_t>(kWidth - filled), ' '), done, total_, elapsed, left, figures);
  std::fflush(out_);
}

}  // namespace lockstep::cli
