#include "cli/launch/pipes.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace lockstep::launch {

void Outbox::put(std::string_view text) {
  if (!broken_) pending_ += text;
}

void Outbox::write_some() {
  // What poll() promises of a pipe is room for so much.
  while (!pending_.empty()) {
    pollfd entry{fd_, POLLOUT, 0};
    if (poll(&entry, 1, 0) <= 0) return;
    const ssize_t count = write(fd_, pending_.data(), std::min<size_t>(pending_.size(), PIPE_BUF));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {
      broken_ = true;
      pending_.clear();
      return;
    }
    pending_.erase(0, static_cast<size_t>(count));
  }
}

void Outbox::write_all() {
  while (!pending_.empty()) {
    pollfd entry{fd_, POLLOUT, 0};
    if (poll(&entry, 1, -1) < 0 && errno != EINTR) return;
    write_some();
  }
}

void LineReader::read_some(const Take& take, size_t most) {
  char buffer[1 << 14];
  while (most > 0 && !ended_) {
    const ssize_t count = read(fd_, buffer, std::min(sizeof buffer, most));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      ended_ = true;
      return;
    }
    most -= static_cast<size_t>(count);
    partial_.append(buffer, static_cast<size_t>(count));
    give(take);
  }
}

void LineReader::give(const Take& take) {
  const std::string_view all = partial_;
  size_t begin = 0;
  while (begin < all.size()) {
    if (std::exchange(after_return_, false) && all[begin] == '\n') {
      ++begin;
      continue;
    }
    const size_t end = all.find_first_of("\r\n", std::max(begin, looked_at_));
    const size_t length = std::min(end, all.size()) - begin;
    if (length > longest_) {
      take(all.substr(begin, longest_));
      begin += longest_;
      continue;
    }
    if (end == std::string_view::npos) break;
    take(all.substr(begin, length));
    after_return_ = all[end] == '\r';
    begin = end + 1;
  }
  partial_.erase(0, begin);
  looked_at_ = partial_.size();
}

void LineReader::flush(const Take& take) {
  if (!partial_.empty()) take(partial_);
  partial_.clear();
  looked_at_ = 0;
}

}  // namespace lockstep::launch
