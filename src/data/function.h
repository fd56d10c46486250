// How a stage calls a user's function: what it throws names the element, and what it draws at random depends
// on the stage, the pass and the element alone, whichever thread it runs on.
#pragma once

#include <utility>

#include "base/philox.h"
#include "data/node.h"
#include "graph/emit.h"
#include "lockstep/ops/random.h"

namespace lockstep::data {

class FunctionCaller {
 public:
  // `pass` is Opening::pass, `index` counts the calls of the pass.
  template <class F>
  decltype(auto) operator()(const Stage& stage, uint64_t pass, int64_t index, F&& f) const {
    return in_element(stage, index, [&]() -> decltype(auto) {
      Randomness randomness(seed_, pass, index);
      return f();
    });
  }

 private:
  class Randomness final : public random::DefaultGenerator {
   public:
    Randomness(uint64_t seed, uint64_t pass, int64_t index) : seed_(seed), pass_(pass), index_(index) {}
    const random::Generator& generator() override {
      thread_local const random::Generator drawn(0);
      if (!used_) {
        const auto block = Philox::block(seed_, pass_, static_cast<uint64_t>(index_));
        const TracePause outside;  // a layer that is first called by the function is traced for its shapes
        drawn.reset(uint64_t{block[0]} << 32 | block[1]);
        used_ = true;
      }
      return drawn;
    }

   private:
    uint64_t seed_, pass_;
    int64_t index_;
    bool used_ = false;
  };

  uint64_t seed_ = static_cast<uint64_t>(random::default_generator().advance());
};

}  // namespace lockstep::data
