#include "lockstep/keras/remat.h"

#include <map>

#include "keras/remat_mode.h"
#include "lockstep/autodiff/recompute_grad.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::keras {
namespace {

using Kind = RematMode::Kind;
const std::map<std::string, Kind> kModes = {{"full", Kind::full},
                                            {"activations", Kind::activations},
                                            {"larger_than", Kind::larger_than},
                                            {"list_of_layers", Kind::list_of_layers}};

thread_local std::shared_ptr<const RematMode> current_mode;
thread_local AddedLosses* current_losses = nullptr;
thread_local int depth = 0;

struct Deeper {
  Deeper() { ++depth; }
  ~Deeper() { --depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
};

std::shared_ptr<const RematMode> mode_of(const RematScopeOptions& options, std::source_location where) {
  RematMode mode{Kind::none, options.output_size_threshold, options.layer_names};
  if (options.mode) {
    const auto found = kModes.find(*options.mode);
    require(
        found != kModes.end(), ErrorCode::invalid_argument, where,
        "RematScope: mode must be \"full\", \"activations\", \"larger_than\", \"list_of_layers\" or none, "
        "received \"",
        *options.mode, "\"");
    mode.kind = found->second;
  }
  return std::make_shared<const RematMode>(std::move(mode));
}

}  // namespace

RematScope::RematScope(const RematScopeOptions& options, std::source_location where)
    : outer_(std::exchange(current_mode, mode_of(options, where))) {}
RematScope::~RematScope() { current_mode = std::move(outer_); }

const std::shared_ptr<const RematMode>& current_remat_mode() { return current_mode; }
int remat_depth() { return depth; }

AddedLosses::AddedLosses() : outer_(std::exchange(current_losses, this)) {}
AddedLosses::~AddedLosses() { current_losses = outer_; }
AddedLosses* AddedLosses::current() { return current_losses; }

TensorList rematerialized(const std::function<TensorList()>& f, std::source_location where) {
  size_t results = 0;
  std::vector<LayerBase*> layers;
  std::vector<std::shared_ptr<const TensorImpl>> masks;
  TensorList outputs = lockstep::detail::recompute(
      [&] {
        const Deeper inside;
        AddedLosses losses;
        TensorList all = f();
        results = all.size();
        for (const Tensor& output : all) masks.push_back(output.defined() ? output.impl()->mask : nullptr);
        for (const auto& [layer, loss] : losses.added) {
          layers.push_back(layer);
          all.push_back(loss);
        }
        return all;
      },
      where);
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->add_loss(outputs[results + i]);
  outputs.resize(results);
  // One that the function was given has become a tensor of its own, without what it carried.
  for (size_t i = 0; i < results; ++i)
    if (masks[i] && !outputs[i].impl()->mask) outputs[i].impl()->mask = masks[i];
  return outputs;
}

}  // namespace lockstep::keras
