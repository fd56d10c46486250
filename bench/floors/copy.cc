#include <algorithm>

#include "base/parallel.h"
#include "bench/floors/floor.h"
#include "bench/floors/kernels.h"
#include "bench/floors/onednn.h"

namespace lockstep::bench {

namespace {

class CopyFloor final : public Floor {
 public:
  CopyFloor(int64_t bytes, int threads)
      : threads_(threads), from_(bytes / static_cast<int64_t>(sizeof(float))), to_(from_.size()) {
    from_.fill(1, 1.0f);
    const std::vector<Way> ways{{"memcpy", [this] { copy(false); }, to_.span()},
                                {"streaming stores", [this] { copy(true); }, to_.span()}};
    const size_t index = fastest(ways, 0);
    streaming_ = index == 1;
    chosen_ = ways[index].name;
  }

  void step() override { copy(streaming_); }
  std::string chosen() const override { return chosen_; }

 private:
  void copy(bool streaming) const {
    const TeamScope team(threads_);
    parallel_for(from_.size(), 1024, threads_, [&](int64_t begin, int64_t end) {
      kernels::copy(to_.data() + begin, from_.data() + begin, end - begin, streaming);
    });
  }

  int threads_;
  Buffer from_, to_;
  bool streaming_ = false;
  std::string chosen_;
};

}  // namespace

std::unique_ptr<Floor> copy_floor(int64_t bytes, int threads) {
  return std::make_unique<CopyFloor>(bytes, threads);
}

}  // namespace lockstep::bench
