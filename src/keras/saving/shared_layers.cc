#include "keras/saving/shared_layers.h"

#include <set>

namespace lockstep::keras {
namespace {

constexpr const char* kId = "shared_object_id";

thread_local SharedLayersWritten* writing = nullptr;
thread_local SharedLayersRead* reading = nullptr;

const Json* id_of(const Json& json) {
  const Json* id = json.is_object() ? json.find(kId) : nullptr;
  return id && id->is_int() ? id : nullptr;
}

}  // namespace

SharedLayersWritten::SharedLayersWritten(const Layer& root) : outer_(writing) {
  std::set<const LayerBase*> seen;
  const auto visit = [&](const auto& self, const LayerBase& layer) -> void {
    for (const Layer& inner : layer.layers()) {
      if (seen.insert(inner.base().get()).second)
        self(self, *inner.base());
      else
        ids_.emplace(inner.base().get(), static_cast<int64_t>(ids_.size()) + 1);
    }
  };
  visit(visit, *root.base());
  writing = this;
}
SharedLayersWritten::~SharedLayersWritten() { writing = outer_; }

void SharedLayersWritten::mark(const LayerBase& layer, Json& json) {
  if (!writing) return;
  const auto found = writing->ids_.find(&layer);
  if (found != writing->ids_.end()) json.set(kId, found->second);
}

SharedLayersRead::SharedLayersRead() : outer_(reading) { reading = this; }
SharedLayersRead::~SharedLayersRead() { reading = outer_; }

std::optional<Layer> SharedLayersRead::find(const Json& json) {
  const Json* id = id_of(json);
  if (!reading || !id) return {};
  const auto found = reading->layers_.find(id->as_int());
  return found == reading->layers_.end() ? std::nullopt : std::optional(found->second);
}

void SharedLayersRead::add(const Json& json, const Layer& layer) {
  if (const Json* id = id_of(json); reading && id) reading->layers_.emplace(id->as_int(), layer);
}

}  // namespace lockstep::keras
