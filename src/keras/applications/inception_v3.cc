#include <vector>

#include "keras/applications/image_network.h"
#include "lockstep/base/call_site.h"
#include "lockstep/keras/layers.h"

namespace lockstep::keras::applications {
namespace {

struct Convolution {
  int64_t filters;
  int64_t rows = 1, columns = 1;
  int64_t stride = 1;
  bool padded = true;
};
using Branch = std::vector<Convolution>;

KerasTensor through(KerasTensor x, const Branch& branch) {
  for (const Convolution& c : branch) {
    x = layers::Conv2D(c.filters, {c.rows, c.columns},
                       {.strides = c.stride, .padding = c.padded ? "same" : "valid", .use_bias = false})(x);
    x = layers::BatchNormalization({.scale = false})(x);
    x = layers::Activation("relu")(x);
  }
  return x;
}

KerasTensor joined(const KerasTensorList& parts, const std::string& name) {
  return layers::Concatenate({.name = name})(parts);
}
KerasTensor halved(const KerasTensor& x) { return layers::MaxPooling2D({.pool_size = 3, .strides = 2})(x); }
// The last branch of every block: means of neighbours.
KerasTensor of_means(const KerasTensor& x, int64_t filters) {
  return through(layers::AveragePooling2D({.pool_size = 3, .strides = 1, .padding = "same"})(x), {{filters}});
}

KerasTensor small_windows(const KerasTensor& x, int64_t of_pooling, const std::string& name) {
  const KerasTensor one = through(x, {{64}});
  const KerasTensor five = through(x, {{48}, {64, 5, 5}});
  const KerasTensor three = through(x, {{64}, {96, 3, 3}, {96, 3, 3}});
  return joined({one, five, three, of_means(x, of_pooling)}, name);
}

KerasTensor long_windows(const KerasTensor& x, int64_t inner, const std::string& name) {
  const KerasTensor one = through(x, {{192}});
  const KerasTensor seven = through(x, {{inner}, {inner, 1, 7}, {192, 7, 1}});
  const KerasTensor twice = through(x, {{inner}, {inner, 7, 1}, {inner, 1, 7}, {inner, 7, 1}, {192, 1, 7}});
  return joined({one, seven, twice, of_means(x, 192)}, name);
}

// Of both directions of a window at once; Keras names one of the two.
KerasTensor in_both_directions(const KerasTensor& x, const std::string& name) {
  const KerasTensor across = through(x, {{384, 1, 3}});
  const KerasTensor down = through(x, {{384, 3, 1}});
  return joined({across, down}, name);
}

KerasTensor wide(const KerasTensor& x, int number) {
  const KerasTensor one = through(x, {{320}});
  const KerasTensor three = in_both_directions(through(x, {{384}}), "mixed9_" + std::to_string(number));
  const KerasTensor twice = in_both_directions(through(x, {{448}, {384, 3, 3}}), "");
  return joined({one, three, twice, of_means(x, 192)}, "mixed" + std::to_string(9 + number));
}

}  // namespace

Model inception_v3(const ImageOptions& given, std::source_location where) {
  const CallSite site(where);
  const ImageOptions options = checked("inception_v3", given, 299, 75);
  const KerasTensor input = Input(options.input_shape);
  KerasTensor x = through(input, {{32, 3, 3, 2, false}, {32, 3, 3, 1, false}, {64, 3, 3}});
  x = through(halved(x), {{80, 1, 1, 1, false}, {192, 3, 3, 1, false}});
  x = halved(x);
  x = small_windows(x, 32, "mixed0");
  x = small_windows(x, 64, "mixed1");
  x = small_windows(x, 64, "mixed2");
  {
    const KerasTensor three = through(x, {{384, 3, 3, 2, false}});
    const KerasTensor twice = through(x, {{64}, {96, 3, 3}, {96, 3, 3, 2, false}});
    x = joined({three, twice, halved(x)}, "mixed3");
  }
  x = long_windows(x, 128, "mixed4");
  x = long_windows(x, 160, "mixed5");
  x = long_windows(x, 160, "mixed6");
  x = long_windows(x, 192, "mixed7");
  {
    const KerasTensor three = through(x, {{192}, {320, 3, 3, 2, false}});
    const KerasTensor seven = through(x, {{192}, {192, 1, 7}, {192, 7, 1}, {192, 3, 3, 2, false}});
    x = joined({three, seven, halved(x)}, "mixed8");
  }
  x = wide(wide(x, 0), 1);
  return {input, ending(x, options, {.average = "", .max = ""}), {.name = options.name}};
}

}  // namespace lockstep::keras::applications
