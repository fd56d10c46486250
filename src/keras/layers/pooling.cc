#include "lockstep/keras/layers/pooling.h"

#include "keras/layers/registry.h"
#include "keras/layers/spatial.h"
#include "lockstep/base/call_site.h"
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
    v("pool_size", options.pool_size, kPositive);
    v("padding", options.padding);
    v("strides", options.strides, kPositive);
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
    o.pool_size = positive(o.pool_size.empty() ? Sizes(2) : o.pool_size, Rank, class_name, "pool_size");
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

struct AdaptivePoolingSettings {
  Sizes output_size = 1;
  AdaptivePoolingOptions options;
  void visit(auto& v) {
    v("output_size", output_size, kPositive);
    v("data_format", options.data_format);
  }
};

template <Pool Kind, int Rank>
class AdaptivePoolingLayer final : public ConfiguredLayer<AdaptivePoolingSettings> {
 public:
  static constexpr const char* kNames[2][3] = {
      {"AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D"},
      {"AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D"}};
  static constexpr const char* kClassName = kNames[static_cast<int>(Kind)][Rank - 1];

  AdaptivePoolingLayer(const char* class_name, AdaptivePoolingSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    settings_.output_size = positive(settings_.output_size, Rank, class_name, "output_size");
  }

  void build(const Shape& input) override {
    channels_of(input, settings_.options.data_format, Rank, kClassName);
  }

  // Windows are boxes, so that one dimension after the other gives the same.
  Tensor call(const Tensor& x, const CallContext&) override {
    const int first = settings_.options.data_format.kind() == DataFormat::channels_first ? 2 : 1;
    Tensor y = x;
    for (int d = 0; d < Rank; ++d) y = pooled(y, first + d, settings_.output_size[d]);
    return y;
  }

 private:
  static Tensor pooled(const Tensor& x, int axis, int64_t windows) {
    const int64_t size = x.shape()[axis];
    require(size > 0, ErrorCode::shape_mismatch, std::source_location::current(), kClassName,
            ": there is nothing to pool in shape ", x.shape());
    const ReduceOptions over{.axis = {axis}, .keepdims = true};
    TensorList results;
    for (int64_t i = 0; i < windows; ++i) {
      Dims begin = Dims::filled(x.rank(), 0), length = Dims::filled(x.rank(), -1);
      begin[axis] = i * size / windows;
      length[axis] = ((i + 1) * size + windows - 1) / windows - begin[axis];
      const Tensor window = slice(x, begin, length);
      results.push_back(Kind == Pool::max ? reduce_max(window, over) : reduce_mean(window, over));
    }
    return concat(results, axis);
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
    return reduce_mean(is_floating(x.dtype()) ? x : cast(x, this->compute_dtype()), over);
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
const RegisterRanks<AdaptivePoolingLayer, Pool::max> adaptive_max_registered;
const RegisterRanks<AdaptivePoolingLayer, Pool::average> adaptive_average_registered;
const RegisterRanks<GlobalPoolingLayer, Pool::max> global_max_registered;
const RegisterRanks<GlobalPoolingLayer, Pool::average> global_average_registered;

PoolingOptions with_window(const Sizes& pool_size, PoolingOptions options) {
  require(options.pool_size.empty(), ErrorCode::invalid_argument, std::source_location::current(),
          "pool_size is given twice: as ", pool_size, " and, among the options, as ", options.pool_size);
  options.pool_size = pool_size;
  return options;
}

}  // namespace

Layer MaxPooling1D(const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<PoolingLayer<Pool::max, 1>>({o});
}
Layer MaxPooling1D(const Sizes& size, const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return MaxPooling1D(with_window(size, o));
}
Layer MaxPooling2D(const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<PoolingLayer<Pool::max, 2>>({o});
}
Layer MaxPooling2D(const Sizes& size, const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return MaxPooling2D(with_window(size, o));
}
Layer MaxPooling3D(const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<PoolingLayer<Pool::max, 3>>({o});
}
Layer MaxPooling3D(const Sizes& size, const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return MaxPooling3D(with_window(size, o));
}
Layer AveragePooling1D(const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<PoolingLayer<Pool::average, 1>>({o});
}
Layer AveragePooling1D(const Sizes& size, const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return AveragePooling1D(with_window(size, o));
}
Layer AveragePooling2D(const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<PoolingLayer<Pool::average, 2>>({o});
}
Layer AveragePooling2D(const Sizes& size, const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return AveragePooling2D(with_window(size, o));
}
Layer AveragePooling3D(const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<PoolingLayer<Pool::average, 3>>({o});
}
Layer AveragePooling3D(const Sizes& size, const PoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return AveragePooling3D(with_window(size, o));
}
Layer AdaptiveMaxPooling1D(const Sizes& size, const AdaptivePoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<AdaptivePoolingLayer<Pool::max, 1>>({size, o});
}
Layer AdaptiveMaxPooling2D(const Sizes& size, const AdaptivePoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<AdaptivePoolingLayer<Pool::max, 2>>({size, o});
}
Layer AdaptiveMaxPooling3D(const Sizes& size, const AdaptivePoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<AdaptivePoolingLayer<Pool::max, 3>>({size, o});
}
Layer AdaptiveAveragePooling1D(const Sizes& size, const AdaptivePoolingOptions& o,
                               std::source_location where) {
  const CallSite site(where);
  return make_configured<AdaptivePoolingLayer<Pool::average, 1>>({size, o});
}
Layer AdaptiveAveragePooling2D(const Sizes& size, const AdaptivePoolingOptions& o,
                               std::source_location where) {
  const CallSite site(where);
  return make_configured<AdaptivePoolingLayer<Pool::average, 2>>({size, o});
}
Layer AdaptiveAveragePooling3D(const Sizes& size, const AdaptivePoolingOptions& o,
                               std::source_location where) {
  const CallSite site(where);
  return make_configured<AdaptivePoolingLayer<Pool::average, 3>>({size, o});
}
Layer GlobalMaxPooling1D(const GlobalPoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<GlobalPoolingLayer<Pool::max, 1>>({o});
}
Layer GlobalMaxPooling2D(const GlobalPoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<GlobalPoolingLayer<Pool::max, 2>>({o});
}
Layer GlobalMaxPooling3D(const GlobalPoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<GlobalPoolingLayer<Pool::max, 3>>({o});
}
Layer GlobalAveragePooling1D(const GlobalPoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<GlobalPoolingLayer<Pool::average, 1>>({o});
}
Layer GlobalAveragePooling2D(const GlobalPoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<GlobalPoolingLayer<Pool::average, 2>>({o});
}
Layer GlobalAveragePooling3D(const GlobalPoolingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<GlobalPoolingLayer<Pool::average, 3>>({o});
}

}  // namespace lockstep::keras::layers
