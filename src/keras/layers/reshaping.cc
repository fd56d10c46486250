#include "lockstep/keras/layers/reshaping.h"

#include <algorithm>

#include "keras/layers/registry.h"
#include "keras/layers/spatial.h"
#include "lockstep/base/call_site.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/image.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {

Margins::Margins(std::initializer_list<int64_t> sizes) : symmetric_(true) {
  for (const int64_t size : sizes) margins_.emplace_back(size, size);
}

std::vector<std::pair<int64_t, int64_t>> Margins::of(int rank, const char* layer) const {
  std::vector<std::pair<int64_t, int64_t>> all = margins_;
  if (all_) all.assign(static_cast<size_t>(rank), margins_[0]);
  // Keras reads two numbers in 1D as before and behind.
  if (symmetric_ && rank == 1 && all.size() == 2) all = {{margins_[0].first, margins_[1].first}};
  require(all.size() == static_cast<size_t>(rank), ErrorCode::invalid_argument,
          std::source_location::current(), layer, ": margins of ", all.size(), " dimensions were given for ",
          rank);
  for (const auto& [before, behind] : all)
    require(before >= 0 && behind >= 0, ErrorCode::invalid_argument, std::source_location::current(), layer,
            ": margins must not be negative, received ", before, " and ", behind);
  return all;
}

namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

// [[before, behind], ...]; in 1D [before, behind]. One number in place of a pair stands for both sides, one
// number in place of all for every side.
template <int Rank>
struct MarginList {
  Pairs pairs;

  Json serialize() const {
    Json list = Json::list();
    for (const auto& [before, behind] : pairs) list.push_back(Json::List{before, behind});
    return Rank == 1 ? list.at(size_t{0}) : list;
  }
  static MarginList deserialize(const Json& json, std::source_location where) {
    const auto side = [&](const Json& number) {
      if (!number.is_int() || number.as_int() < 0) refuse(json, where);
      return number.as_int();
    };
    const auto pair = [&](const Json& given) -> std::pair<int64_t, int64_t> {
      if (!given.is_list()) return {side(given), side(given)};
      if (given.items().size() != 2) refuse(json, where);
      return {side(given.at(size_t{0})), side(given.at(size_t{1}))};
    };
    if (Rank == 1 || !json.is_list()) return {Pairs(Rank, pair(json))};
    if (json.items().size() != Rank) refuse(json, where);
    MarginList read;
    for (const Json& item : json.items()) read.pairs.push_back(pair(item));
    return read;
  }

 private:
  [[noreturn]] static void refuse(const Json& json, std::source_location where) {
    constexpr const char* kForms[] = {
        "a number or [before, behind]", "a number, [rows, columns] or [[top, bottom], [left, right]]",
        "a number, [depth, rows, columns] or [[before, behind], [before, behind], [before, behind]]"};
    fail(ErrorCode::invalid_argument, where, "margins are ", kForms[Rank - 1],
         " of whole numbers from 0, received ", json);
  }
};

enum class Margin { padding, cropping };

template <Margin Kind, int Rank>
struct MarginSettings {
  static constexpr const char* kKey = Kind == Margin::padding ? "padding" : "cropping";
  // Keras' defaults.
  MarginList<Rank> margins = {Pairs(Rank, Kind == Margin::cropping && Rank == 2
                                              ? std::pair(int64_t{0}, int64_t{0})
                                              : std::pair(int64_t{1}, int64_t{1}))};
  MarginOptions options;
  void visit(auto& v) {
    v(kKey, margins);
    // Keras crops sequences in one format, but pads them in both.
    if constexpr (Kind == Margin::padding || Rank != 1) v("data_format", options.data_format);
  }
};

template <Margin Kind, int Rank>
class MarginLayer final : public ConfiguredLayer<MarginSettings<Kind, Rank>> {
 public:
  static constexpr const char* kNames[2][3] = {{"ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D"},
                                               {"Cropping1D", "Cropping2D", "Cropping3D"}};
  static constexpr const char* kClassName = kNames[static_cast<int>(Kind)][Rank - 1];
  using Settings = MarginSettings<Kind, Rank>;

  MarginLayer(const char* class_name, Settings settings)
      : ConfiguredLayer<Settings>(class_name, std::move(settings)) {
    require(this->settings_.margins.pairs.size() == Rank, ErrorCode::invalid_argument,
            std::source_location::current(), class_name, ": \"", Settings::kKey, "\" must not be null");
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    require(x.rank() == Rank + 2, ErrorCode::shape_mismatch, std::source_location::current(), kClassName,
            " takes inputs of rank ", Rank + 2, ", received shape ", x.shape());
    const int first = this->settings_.options.data_format.kind() == DataFormat::channels_first ? 2 : 1;
    Dims before = Dims::filled(Rank + 2, 0);
    Dims behind = before;
    for (int d = 0; d < Rank; ++d)
      std::tie(before[first + d], behind[first + d]) = this->settings_.margins.pairs[static_cast<size_t>(d)];
    if constexpr (Kind == Margin::padding) return pad(x, before, behind);
    Dims size = x.shape();
    for (int d = 0; d < size.rank(); ++d) {
      for (const int64_t margin : {before[d], behind[d]}) size[d] -= std::min(size[d], margin);
      require(size[d] > 0 || x.shape()[d] == 0, ErrorCode::shape_mismatch, std::source_location::current(),
              kClassName, ": cropping ", before[d], " and ", behind[d], " leaves nothing of shape ",
              x.shape());
    }
    return slice(x, before, size);
  }
};

template <Margin Kind, int Rank>
Layer make(const Margins& margins, const MarginOptions& options) {
  using L = MarginLayer<Kind, Rank>;
  return make_configured<L>({{margins.of(Rank, L::kClassName)}, options});
}

const RegisterLayer<MarginLayer<Margin::padding, 1>> padding1_registered;
const RegisterLayer<MarginLayer<Margin::padding, 2>> padding2_registered;
const RegisterLayer<MarginLayer<Margin::padding, 3>> padding3_registered;
const RegisterLayer<MarginLayer<Margin::cropping, 1>> cropping1_registered;
const RegisterLayer<MarginLayer<Margin::cropping, 2>> cropping2_registered;
const RegisterLayer<MarginLayer<Margin::cropping, 3>> cropping3_registered;

// --- enlarging ---------------------------------------------------------------------------------------------

template <int Rank>
struct UpSamplingSettings {
  Sizes size = Dims::filled(Rank, 2);
  UpSamplingOptions options;
  void visit(auto& v) {
    if constexpr (Rank == 1) {
      v("size", size[0], kPositive);
    } else {
      v("size", size, kPositive);
      v("data_format", options.data_format);
    }
    if constexpr (Rank == 2) v("interpolation", options.interpolation);
  }
};

template <int Rank>
class UpSamplingLayer final : public ConfiguredLayer<UpSamplingSettings<Rank>> {
 public:
  static constexpr const char* kNames[3] = {"UpSampling1D", "UpSampling2D", "UpSampling3D"};
  static constexpr const char* kClassName = kNames[Rank - 1];

  UpSamplingLayer(const char* class_name, UpSamplingSettings<Rank> settings)
      : ConfiguredLayer<UpSamplingSettings<Rank>>(class_name, std::move(settings)) {
    Sizes& size = this->settings_.size;
    size = positive(size, Rank, kClassName, "size");
    require(this->settings_.options.interpolation.kind() == Interpolation::nearest || Rank == 2,
            ErrorCode::invalid_argument, std::source_location::current(), kClassName,
            ": only images have an interpolation");
  }

  Tensor call(const Tensor& x, const CallContext&) override {
    const UpSamplingOptions& o = this->settings_.options;
    const Sizes& size = this->settings_.size;
    require(x.rank() == Rank + 2, ErrorCode::shape_mismatch, std::source_location::current(), kClassName,
            " takes inputs of rank ", Rank + 2, ", received shape ", x.shape());
    const int first = Rank > 1 && o.data_format.kind() == DataFormat::channels_first ? 2 : 1;
    if (o.interpolation.kind() != Interpolation::nearest)
      return image::resize(is_floating(x.dtype()) ? x : cast(x, this->compute_dtype()),
                           {x.shape()[first] * size[0], x.shape()[first + 1] * size[1]},
                           {.interpolation = o.interpolation, .data_format = o.data_format});
    Tensor y = x;
    for (int d = 0; d < Rank; ++d)
      if (size[d] > 1) y = repeat(y, size[d], first + d);
    return y;
  }
};
const RegisterLayer<UpSamplingLayer<1>> up_sampling1;
const RegisterLayer<UpSamplingLayer<2>> up_sampling2;
const RegisterLayer<UpSamplingLayer<3>> up_sampling3;

}  // namespace

Layer ZeroPadding1D(const Margins& m, const MarginOptions& o, std::source_location where) {
  const CallSite site(where);
  return make<Margin::padding, 1>(m, o);
}
Layer ZeroPadding2D(const Margins& m, const MarginOptions& o, std::source_location where) {
  const CallSite site(where);
  return make<Margin::padding, 2>(m, o);
}
Layer ZeroPadding3D(const Margins& m, const MarginOptions& o, std::source_location where) {
  const CallSite site(where);
  return make<Margin::padding, 3>(m, o);
}
Layer Cropping1D(const Margins& m, const MarginOptions& o, std::source_location where) {
  const CallSite site(where);
  return make<Margin::cropping, 1>(m, o);
}
Layer Cropping2D(const Margins& m, const MarginOptions& o, std::source_location where) {
  const CallSite site(where);
  return make<Margin::cropping, 2>(m, o);
}
Layer Cropping3D(const Margins& m, const MarginOptions& o, std::source_location where) {
  const CallSite site(where);
  return make<Margin::cropping, 3>(m, o);
}

Layer UpSampling1D(int64_t size, const UpSamplingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<UpSamplingLayer<1>>({size, o});
}
Layer UpSampling2D(const Sizes& size, const UpSamplingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<UpSamplingLayer<2>>({size, o});
}
Layer UpSampling3D(const Sizes& size, const UpSamplingOptions& o, std::source_location where) {
  const CallSite site(where);
  return make_configured<UpSamplingLayer<3>>({size, o});
}

}  // namespace lockstep::keras::layers
