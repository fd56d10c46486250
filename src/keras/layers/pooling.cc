#include "lockstep/keras/layers/pooling.h"

#include "keras/layers/registry.h"
#include "keras/layers/spatial.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"

namespace lockstep::keras::layers {
namespace {

enum class Pool { max, average };

template <Pool Kind, int Rank, bool Global>
constexpr const char* class_name_of() {
  constexpr const char* kNames[2][2][3] = {
      {{"MaxPooling1D", "MaxPooling2D", "MaxPooling3D"},
       {"AveragePooling1D", "AveragePooling2D", "AveragePooling3D"}},
      {{"GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D"},
       {"GlobalAveragePooling1D", "GlobalAveragePooling2D", "GlobalAveragePooling3D"}}};
  return kNames[Global ? 1 : 0][static_cast<int>(Kind)][Rank - 1];
}

struct PoolingSettings {
  PoolingOptions options;
  void visit(auto& v) {
    v("pool_size", options.pool_size);
    v("padding", options.padding);
    v("strides", options.strides);
    v("data_format", options.data_format);
  }
};

template <Pool Kind, int Rank>
class PoolingLayer final : public ConfiguredLayer<PoolingSettings> {
 public:
  static constexpr const char* kClassName = class_name_of<Kind, Rank, false>();

  PoolingLayer(const char* class_name, PoolingSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    PoolingOptions& o = settings_.options;
    o.pool_size = positive(o.pool_size, Rank, class_name, "pool_size");
    o.strides = o.strides.empty() ? o.pool_size : positive(o.strides, Rank, class_name, "strides");
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const PoolingOptions& o = settings_.options;
    const PoolOptions options{
        .pool_size = o.pool_size, .strides = o.strides, .padding = o.padding, .data_format = o.data_format};
    if constexpr (Kind == Pool::max)
      return (Rank == 1 ? max_pool1d : Rank == 2 ? max_pool2d : max_pool3d)(x, options);
    else
      return (Rank == 1 ? avg_pool1d : Rank == 2 ? avg_pool2d : avg_pool3d)(x, options);
  }
};

struct GlobalPoolingSettings {
  GlobalPoolingOptions options;
  void visit(auto& v) {
    v("data_format", options.data_format);
    v("keepdims", options.keepdims);
  }
};

template <Pool Kind, int Rank>
class GlobalPoolingLayer final : public ConfiguredLayer<GlobalPoolingSettings> {
 public:
  static constexpr const char* kClassName = class_name_of<Kind, Rank, true>();
  using ConfiguredLayer::ConfiguredLayer;

  void build(const Shape& input) override {
    channels_of(input, settings_.options.data_format, Rank, kClassName);
  }

  Tensor call(const Tensor& x, const CallContext& context) override {
    const GlobalPoolingOptions& o = settings_.options;
    ReduceOptions over{.axis = {}, .keepdims = o.keepdims};
    for (int d = 0; d < Rank; ++d)
      over.axis.push_back(o.data_format.kind() == DataFormat::channels_first ? d + 2 : d + 1);
    if constexpr (Kind == Pool::max) return reduce_max(x, over);
    if (Rank == 1 && context.mask().defined()) {
      const int features = channel_axis(o.data_format, Rank);
      const Tensor counts = expand_dims(cast(context.mask(), x.dtype()), features);
      return reduce_sum(x * counts, over) / reduce_sum(counts, over);
    }
    return reduce_mean(x, over);
  }

  // The steps are gone, and their mask with them.
  TensorList compute_mask(const TensorList&, const TensorList&, size_t) override { return {}; }
  bool supports_masking() const override { return Kind == Pool::average && Rank == 1; }
};

template <template <Pool, int> class L, Pool Kind>
struct RegisterRanks {
  RegisterLayer<L<Kind, 1>> one;
  RegisterLayer<L<Kind, 2>> two;
  RegisterLayer<L<Kind, 3>> three;
};
const RegisterRanks<PoolingLayer, Pool::max> max_registered;
const RegisterRanks<PoolingLayer, Pool::average> average_registered;
const RegisterRanks<GlobalPoolingLayer, Pool::max> global_max_registered;
const RegisterRanks<GlobalPoolingLayer, Pool::average> global_average_registered;

}  // namespace

Layer MaxPooling1D(const PoolingOptions& o) { return make_configured<PoolingLayer<Pool::max, 1>>({o}); }
Layer MaxPooling2D(const PoolingOptions& o) { return make_configured<PoolingLayer<Pool::max, 2>>({o}); }
Layer MaxPooling3D(const PoolingOptions& o) { return make_configured<PoolingLayer<Pool::max, 3>>({o}); }
Layer AveragePooling1D(const PoolingOptions& o) {
  return make_configured<PoolingLayer<Pool::average, 1>>({o});
}
Layer AveragePooling2D(const PoolingOptions& o) {
  return make_configured<PoolingLayer<Pool::average, 2>>({o});
}
Layer AveragePooling3D(const PoolingOptions& o) {
  return make_configured<PoolingLayer<Pool::average, 3>>({o});
}
Layer GlobalMaxPooling1D(const GlobalPoolingOptions& o) {
  return make_configured<GlobalPoolingLayer<Pool::max, 1>>({o});
}
Layer GlobalMaxPooling2D(const GlobalPoolingOptions& o) {
  return make_configured<GlobalPoolingLayer<Pool::max, 2>>({o});
}
Layer GlobalMaxPooling3D(const GlobalPoolingOptions& o) {
  return make_configured<GlobalPoolingLayer<Pool::max, 3>>({o});
}
Layer GlobalAveragePooling1D(const GlobalPoolingOptions& o) {
  return make_configured<GlobalPoolingLayer<Pool::average, 1>>({o});
}
Layer GlobalAveragePooling2D(const GlobalPoolingOptions& o) {
  return make_configured<GlobalPoolingLayer<Pool::average, 2>>({o});
}
Layer GlobalAveragePooling3D(const GlobalPoolingOptions& o) {
  return make_configured<GlobalPoolingLayer<Pool::average, 3>>({o});
}

}  // namespace lockstep::keras::layers
