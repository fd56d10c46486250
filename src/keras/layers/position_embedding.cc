#include "lockstep/keras/layers/position_embedding.h"

#include "keras/functional_graph.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

struct PositionEmbeddingSettings {
  int64_t sequence_length = 0;
  PositionEmbeddingOptions options;
  void visit(auto& v) {
    v("sequence_length", sequence_length, kPositive);
    v("initializer", options.initializer);
  }
};

class PositionEmbeddingLayer final : public ConfiguredLayer<PositionEmbeddingSettings> {
 public:
  static constexpr const char* kClassName = "PositionEmbedding";
  using ConfiguredLayer::ConfiguredLayer;

  void build(const Shape& input) override {
    require(input.rank() >= 2, ErrorCode::shape_mismatch, std::source_location::current(),
            "PositionEmbedding: takes (..., positions, features), received ", input);
    embeddings_ = add_weight("embeddings", {settings_.sequence_length, input[-1]},
                             {.initializer = settings_.options.initializer});
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const int64_t positions = x.shape()[-2];
    if (positions > settings_.sequence_length && infers_outputs()) return zeros_like(x);
    require(positions <= settings_.sequence_length, ErrorCode::shape_mismatch,
            std::source_location::current(), "PositionEmbedding: the input has ", positions,
            " positions, more than sequence_length ", settings_.sequence_length);
    return broadcast_to(slice(embeddings_, {0, 0}, {positions, -1}), x.shape());
  }
  bool supports_masking() const override { return true; }
  std::string module() const override { return "keras_hub.layers"; }

 private:
  Variable embeddings_;
};
const RegisterLayer<PositionEmbeddingLayer> registered;

}  // namespace

Layer PositionEmbedding(int64_t sequence_length, const PositionEmbeddingOptions& options,
                        std::source_location where) {
  const CallSite site(where);
  return make_configured<PositionEmbeddingLayer>({sequence_length, options});
}

}  // namespace lockstep::keras::layers
