// Two ends of pipes that never block a loop: what is to be written waits in a queue, what is read comes out
// as lines.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::launch {

// Bytes for a descriptor, written as far as it takes them. Owns nothing.
class Outbox {
 public:
  Outbox() = default;
  explicit Outbox(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool empty() const { return pending_.empty(); }
  // Whoever reads is slow: what fills this should wait.
  bool full() const { return pending_.size() > kFull; }
  // Whether a write has failed: whoever reads is gone, or the disk is full. What is put from then on is
  // dropped.
  bool broken() const { return broken_; }

  void put(std::string_view text);
  // Call it where poll() says that the descriptor can be written to: it does not block then, also where the
  // descriptor itself would.
  void write_some();
  // Until all is written or it is broken; may block.
  void write_all();

 private:
  static constexpr size_t kFull = 1 << 18;
  int fd_ = -1;
  std::string pending_;
  bool broken_ = false;
};

// Lines from a descriptor that does not block.
class LineReader {
 public:
  LineReader() = default;
  // Longer lines are broken.
  explicit LineReader(int fd, size_t longest = static_cast<size_t>(-1)) : fd_(fd), longest_(longest) {}

  int fd() const { return fd_; }
  bool ended() const { return ended_; }

  // A line without its end.
  using Take = std::function<void(std::string_view line)>;
  // Reads what is there, at most so many bytes, and gives its whole lines. A carriage return ends a line too:
  // progress bars write it instead of a new line.
  void read_some(const Take& take, size_t most = 1 << 16);
  // What has no end of a line yet.
  void flush(const Take& take);

 private:
  void give(const Take& take);

  int fd_ = -1;
  size_t longest_ = static_cast<size_t>(-1);
  std::string partial_;
  size_t looked_at_ = 0;       // bytes of it without an end of a line
  bool after_return_ = false;  // a line feed that follows a carriage return ends no second line
  bool ended_ = false;
};

}  // namespace lockstep::launch
