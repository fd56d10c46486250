#include "data/pipeline.h"

#include <algorithm>

#include "base/philox.h"
#include "data/host.h"
#include "data/stages/options.h"
#include "device/cpu_device.h"

namespace lockstep::data {
namespace {

template <class F>
void for_each_node(const Node& node, const F& f) {
  f(node);
  for (const NodePtr& input : node.inputs()) for_each_node(*input, f);
}

// Datasets that share a stage count together: a new one made of an old one for every epoch is not shuffled
// the same way every time.
int64_t new_iteration(const Node& root) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  int64_t number = 0;
  for_each_node(root, [&](const Node& node) { number = std::max(number, node.iterations().count()); });
  for_each_node(root, [&](const Node& node) { node.iterations().seen(number); });
  return number;
}

}  // namespace

std::unique_ptr<Cursor> Opening::open(const Node& node, size_t slot, std::stop_token token) const {
  return pipeline.open(node, &stage, slot, std::move(token), pass);
}

Opening Opening::of(int64_t number) const {
  Opening numbered = *this;
  const auto block = Philox::block(pass, 0, static_cast<uint64_t>(number));
  numbered.pass = uint64_t{block[0]} << 32 | block[1];
  return numbered;
}

Pipeline::Pipeline(NodePtr root, std::optional<int64_t> iteration)
    : root_(std::move(root)),
      options_(options_of(*root_)),
      device_(host_device()),
      iteration_(iteration ? *iteration : new_iteration(*root_)),
      tuner_(*this) {
  for_each_node(*root_, [&](const Node& node) {
    if (auto own = node.rows()) rows_.push_back(std::move(own));
    if (iteration)
      node.iterations().gone_on_with(iteration_);
    else
      node.iterations().seen(iteration_);
  });
}

int Pipeline::threads() const { return options_.threads > 0 ? options_.threads : available_cores(); }

std::unique_ptr<Cursor> Pipeline::open_root() {
  return open(*root_, nullptr, 0, stop_token(), static_cast<uint64_t>(iteration_));
}

std::unique_ptr<Cursor> Pipeline::open(const Node& node, Stage* parent, size_t slot, std::stop_token stop,
                                       uint64_t pass) {
  Stage* stage = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (parent && parent->inputs.size() <= slot) parent->inputs.resize(slot + 1);
    std::unique_ptr<Stage>& place = parent ? parent->inputs[slot] : root_stage_;
    if (!place) {
      place = std::make_unique<Stage>();
      place->name = node.name();
      place->arguments = node.arguments();
      place->where = node.where();
    }
    stage = place.get();
  }
  return node.open({*this, *stage, std::move(stop), pass});
}

}  // namespace lockstep::data
