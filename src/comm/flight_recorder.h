// The last collectives of this process: what is asked for first when a run has stopped.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"

namespace lockstep::comm {

// Thread-safe. Recording does not allocate: it stands before and after every collective.
class FlightRecorder {
 public:
  // `kind` is a literal; the name is cut where it is long. One at a time.
  void begin(const char* kind, std::string_view name, int64_t bytes);
  void end();
  // The next has number 1; what is recorded stays.
  void number_anew();

  struct Last {
    int64_t number = 0;  // 0: none was begun
    bool ended = true;
    int64_t begun_ns = 0;
    std::string text = {};  // "all_reduce #17 [dense/kernel]"
  };
  Last last() const;

  // A line for each of the last `most`, the oldest first: "#17 all_reduce [dense/kernel] 40000 bytes, at
  // 12.031 s, took 0.8 ms". Times are since the recorder was made.
  std::string text(size_t most = kKept) const;

  static constexpr size_t kKept = 512;

 private:
  struct Entry {
    int64_t number = 0;
    const char* kind = "";
    std::array<char, 104> name{};
    int64_t bytes = 0, begun_ns = 0, ended_ns = 0;  // ended_ns 0: it has not
  };

  mutable std::mutex mutex_;
  std::array<Entry, kKept> entries_{};  // the n-th is at n % kKept
  size_t count_ = 0;
  int64_t number_ = 0;
  const int64_t made_ns_ = monotonic_ns();

  Entry& newest() { return entries_[(count_ - 1) % kKept]; }
  const Entry& newest() const { return entries_[(count_ - 1) % kKept]; }
};

}  // namespace lockstep::comm
