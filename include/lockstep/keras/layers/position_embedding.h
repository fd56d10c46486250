// Learned embeddings of positions.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "lockstep/keras/layer.h"

namespace lockstep::keras::layers {

struct PositionEmbeddingOptions {
  Initializer initializer = "glorot_uniform";
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// For an input (batch, positions, features) the embeddings of its positions, repeated for every example: add
// them to it. At most `sequence_length` positions. As the layer of this name in KerasHub.
Layer PositionEmbedding(int64_t sequence_length, const PositionEmbeddingOptions& options = {},
                        std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::layers
