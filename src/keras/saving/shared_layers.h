// Layers that a model holds in several places, in its JSON: Keras gives what is shared a "shared_object_id".
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "lockstep/base/json.h"
#include "lockstep/keras/layer.h"

namespace lockstep::keras {

// While one lives on this thread, Layer::serialize() marks the layers that `root` holds more than once.
class SharedLayersWritten {
 public:
  explicit SharedLayersWritten(const Layer& root);
  ~SharedLayersWritten();
  SharedLayersWritten(const SharedLayersWritten&) = delete;
  SharedLayersWritten& operator=(const SharedLayersWritten&) = delete;

  static void mark(const LayerBase& layer, Json& json);

 private:
  SharedLayersWritten* outer_;
  std::map<const LayerBase*, int64_t> ids_;
};

// While one lives on this thread, Layer::deserialize() makes one layer of all that have the same mark.
class SharedLayersRead {
 public:
  SharedLayersRead();
  ~SharedLayersRead();
  SharedLayersRead(const SharedLayersRead&) = delete;
  SharedLayersRead& operator=(const SharedLayersRead&) = delete;

  static std::optional<Layer> find(const Json& json);
  static void add(const Json& json, const Layer& layer);

 private:
  SharedLayersRead* outer_;
  std::map<int64_t, Layer> layers_;
};

}  // namespace lockstep::keras
