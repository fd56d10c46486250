// The last collectives of this process: what is asked for first when a run has stopped.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep::comm {

// Thread-safe. Recording does not allocate.
class FlightRecorder {
 public:
  // `kind` is a literal; the name is cut where it is long.
  void begin(int64_t number, const char* kind, std::string_view name, int64_t bytes);
  void end(int64_t number);

  // A line for each of the last `most`, the oldest first: "#17 all_reduce [dense/kernel] 40000 bytes, at 12.031 s, took
  // 0.8 ms". Times are since the recorder was made.
  std::string text(size_t most = kKept) const;

  static constexpr size_t kKept = 512;

 private:
  struct Entry {
    int64_t number = 0;  // 0: none
    const char* kind = "";
    std::array<char, 64> name{};
    int64_t bytes = 0, begun_ns = 0, ended_ns = 0;
  };

  mutable std::mutex mutex_;
  std::array<Entry, kKept> entries_{};  // that of number n is n % kKept
  int64_t last_ = 0;
  const int64_t made_ns_ = now_ns();

  static int64_t now_ns();
};

}  // namespace lockstep::comm
