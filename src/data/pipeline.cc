#include "data/pipeline.h"

#include "data/stages/options.h"
#include "device/cpu_device.h"

namespace lockstep::data {
namespace {

void collect_rows(const Node& node, RowsList& rows) {
  if (auto own = node.rows()) rows.push_back(std::move(own));
  for (const NodePtr& input : node.inputs()) collect_rows(*input, rows);
}

Device& host_device() {
  Device& current = current_device();
  return current.kind() == DeviceKind::cpu ? current : device_by_name("/CPU:0");
}

}  // namespace

std::unique_ptr<Cursor> Opening::open(const Node& node, size_t slot, std::stop_token token) const {
  return pipeline.open(node, &stage, slot, std::move(token));
}

Pipeline::Pipeline(NodePtr root)
    : root_(std::move(root)), options_(options_of(*root_)), device_(host_device()), tuner_(*this) {
  collect_rows(*root_, rows_);
}

int Pipeline::threads() const { return options_.threads > 0 ? options_.threads : available_cores(); }

std::unique_ptr<Cursor> Pipeline::open(const Node& node, Stage* parent, size_t slot, std::stop_token stop) {
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
  return node.open({*this, *stage, std::move(stop)});
}

}  // namespace lockstep::data
