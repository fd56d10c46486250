// Images by the batch: decoded in place, cropped, flipped, normalised.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "data/host.h"
#include "data/image.h"
#include "graph/eager.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// Memory that is used again and again: fresh pages cost more than what is done with them.
class Scratch {
 public:
  uint8_t* room(size_t bytes) {
    if (bytes > size_) {
      memory_ = std::make_unique_for_overwrite<uint8_t[]>(bytes);
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  size_t size_ = 0;
};

// f(begin, end) over parts of the images, on the threads that the caller may use.
template <class F>
void for_images(int64_t count, F f) {
  parallel_for(count, 1, std::min(team_size(), thread_limit()), f);
}

// `image(i, use)` calls use(bytes, name) with image i.
template <class Image>
Tensor decode_resized(int64_t count, const DecodeOptions& options, std::source_location where, Image image) {
  require(options.image_size.size() == 2, ErrorCode::invalid_argument, where,
          "decode_images: image_size is a height and a width, received ", options.image_size.size(),
          " numbers");
  const int64_t height = options.image_size[0], width = options.image_size[1];
  const Resizer made(height, width, options.resize, where);
  Tensor batch =
      Tensor::empty(DType::float32, {count, height, width, options.channels}, host_device(), where);
  auto* to = static_cast<float*>(batch.impl()->data());
  const SmallestSize smallest = options.shrink_while_decoding ? SmallestSize{height, width} : SmallestSize{};
  for_images(count, [&](int64_t begin, int64_t end) {
    Resizer resize = made;
    Scratch scratch;
    for (int64_t i = begin; i < end; ++i) {
      image(i, [&](std::string_view bytes, std::string_view name) {
        int64_t from_height = 0, from_width = 0;
        uint8_t* pixels = nullptr;
        decode_pixels(
            bytes, options.channels,
            [&](int64_t h, int64_t w, int64_t c) {
              from_height = h;
              from_width = w;
              return pixels = scratch.room(static_cast<size_t>(h * w * c));
            },
            smallest, name, where);
        resize(pixels, from_height, from_width, options.channels, to + i * height * width * options.channels);
      });
    }
  });
  return batch;
}

template <class Image>
Tensor decode_as_they_are(int64_t count, const DecodeOptions& options, std::source_location where,
                          Image image) {
  if (count == 0) return Tensor::empty(DType::uint8, {0, 0, 0, options.channels}, host_device(), where);
  Tensor batch;
  const auto decode = [&](int64_t i) {
    image(i, [&](std::string_view bytes, std::string_view name) {
      decode_pixels(
          bytes, options.channels,
          [&](int64_t h, int64_t w, int64_t c) {
            // The first one says what size all have; it is decoded alone.
            if (i == 0) batch = Tensor::empty(DType::uint8, {count, h, w, c}, host_device(), where);
            const Shape& shape = batch.shape();
            require(h == shape[1] && w == shape[2], ErrorCode::shape_mismatch, where,
                    "decode_images: images must be of one size to be a batch, the first is ", shape[1], " x ",
                    shape[2], " and ", name, " is ", h, " x ", w, "; image_size resizes them");
            return static_cast<uint8_t*>(batch.impl()->data()) + i * h * w * c;
          },
          {}, name, where);
    });
  };
  decode(0);
  for_images(count - 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) decode(i + 1);
  });
  return batch;
}

template <class Image>
Tensor decode(int64_t count, const DecodeOptions& options, std::source_location where, Image image) {
  require(options.channels == 1 || options.channels == 3 || options.channels == 4,
          ErrorCode::invalid_argument, where, "decode_images: channels is 1, 3 or 4, received ",
          options.channels);
  return (options.image_size.empty() ? decode_as_they_are(count, options, where, image)
                                     : decode_resized(count, options, where, image))
      .to(current_device(), where);
}

// Images in memory, one after another.
struct Images {
  Images(const char* op, const Tensor& images, std::source_location where)
      : tensor(
            (require(images.rank() == 3 || images.rank() == 4, ErrorCode::shape_mismatch, where, op,
                     ": an image is (height, width, channels), a batch has a dimension in front, received ",
                     images.spec()),
             contiguous(images.to(host_device(), where), where))),
        count(images.rank() == 4 ? images.shape()[0] : 1),
        height(images.shape()[-3]),
        width(images.shape()[-2]),
        channels(images.shape()[-1]),
        pixel_bytes(channels * static_cast<int64_t>(size_of(images.dtype()))) {}

  const char* row(int64_t image, int64_t y) const {
    return static_cast<const char*>(tensor.impl()->data()) + (image * height + y) * width * pixel_bytes;
  }
  // Room for as many images of another size.
  Tensor like(DType dtype, int64_t new_height, int64_t new_width, std::source_location where) const {
    Shape shape = tensor.shape();
    shape[-3] = new_height;
    shape[-2] = new_width;
    return Tensor::empty(dtype, shape, host_device(), where);
  }

  Tensor tensor;
  int64_t count, height, width, channels, pixel_bytes;
};

void check_crop(const char* op, const Tensor& images, int64_t height, int64_t width,
                std::source_location where) {
  require((images.rank() == 3 || images.rank() == 4) && height > 0 && width > 0 &&
              height <= images.shape()[-3] && width <= images.shape()[-2],
          ErrorCode::shape_mismatch, where, op, ": ", height, " x ", width, " cannot be cut out of ",
          images.spec());
}

uint64_t drawn_seed() { return static_cast<uint64_t>(random::default_generator().advance()); }

Tensor flip(const char* op, const Tensor& images, bool sideways, std::source_location where,
            const std::function<bool(int64_t image)>& chosen) {
  const Images from(op, images, where);
  Tensor result = from.like(images.dtype(), from.height, from.width, where);
  auto* to = static_cast<char*>(result.impl()->data());
  const auto row_bytes = static_cast<size_t>(from.width * from.pixel_bytes);
  const auto pixel_bytes = static_cast<size_t>(from.pixel_bytes);
  for (int64_t i = 0; i < from.count; ++i) {
    const bool flips = chosen(i);
    for (int64_t y = 0; y < from.height; ++y, to += row_bytes) {
      const char* row = from.row(i, flips && !sideways ? from.height - 1 - y : y);
      if (flips && sideways)
        for (size_t at = 0; at < row_bytes; at += pixel_bytes)
          std::memcpy(to + row_bytes - pixel_bytes - at, row + at, pixel_bytes);
      else
        std::memcpy(to, row, row_bytes);
    }
  }
  return result;
}

bool every(int64_t) { return true; }

}  // namespace

Tensor decode_images(std::span<const std::string_view> images, const DecodeOptions& options,
                     std::source_location where) {
  return decode(std::ssize(images), options, where, [&](int64_t i, const auto& use) {
    use(images[static_cast<size_t>(i)], "image " + std::to_string(i));
  });
}

Tensor decode_image_files(std::span<const std::string> files, const DecodeOptions& options,
                          std::source_location where) {
  return decode(std::ssize(files), options, where, [&](int64_t i, const auto& use) {
    const std::string& path = files[static_cast<size_t>(i)];
    use(read_file(path, where), path);
  });
}

Tensor central_crop(const Tensor& images, int64_t height, int64_t width, std::source_location where) {
  check_crop("central_crop", images, height, width, where);
  const TensorImpl& impl = *images.impl();
  TensorSpec spec = images.spec();
  const int64_t top = (spec.shape[-3] - height) / 2, left = (spec.shape[-2] - width) / 2;
  spec.shape[-3] = height;
  spec.shape[-2] = width;
  return make_view(impl, spec, impl.strides, impl.offset + top * impl.strides[-3] + left * impl.strides[-2]);
}

Tensor random_crop(const Tensor& images, int64_t height, int64_t width, std::source_location where) {
  check_crop("random_crop", images, height, width, where);
  const Images from("random_crop", images, where);
  Tensor result = from.like(images.dtype(), height, width, where);
  auto* to = static_cast<char*>(result.impl()->data());
  const int64_t row_bytes = width * from.pixel_bytes;
  PhiloxStream random(drawn_seed(), 0);
  for (int64_t i = 0; i < from.count; ++i) {
    const int64_t top = random.below(static_cast<uint32_t>(from.height - height + 1));
    const int64_t left = random.below(static_cast<uint32_t>(from.width - width + 1));
    for (int64_t y = 0; y < height; ++y, to += row_bytes)
      std::memcpy(to, from.row(i, top + y) + left * from.pixel_bytes, static_cast<size_t>(row_bytes));
  }
  return result;
}

Tensor flip_left_right(const Tensor& images, std::source_location where) {
  return flip("flip_left_right", images, true, where, every);
}

Tensor flip_up_down(const Tensor& images, std::source_location where) {
  return flip("flip_up_down", images, false, where, every);
}

Tensor random_flip_left_right(const Tensor& images, double probability, std::source_location where) {
  require(probability >= 0 && probability <= 1, ErrorCode::invalid_argument, where,
          "random_flip_left_right: probability is from 0 to 1, received ", probability);
  PhiloxStream random(drawn_seed(), 0);
  return flip("random_flip_left_right", images, true, where,
              [&](int64_t) { return static_cast<double>(random.next()) < probability * 0x1p32; });
}

Tensor normalize_images(const Tensor& images, const std::vector<float>& mean,
                        const std::vector<float>& stddev, std::source_location where) {
  const Images from("normalize_images", images, where);
  const auto channels = static_cast<size_t>(from.channels);
  const auto for_channels = [&](std::vector<float> values, const char* what) {
    require(values.size() == 1 || values.size() == channels, ErrorCode::shape_mismatch, where,
            "normalize_images: ", what, " has ", values.size(), " values for ", channels, " channels");
    if (values.size() == 1) values.resize(channels, values[0]);
    return values;
  };
  const std::vector<float> means = for_channels(mean, "mean"), deviations = for_channels(stddev, "stddev");
  require(std::find(deviations.begin(), deviations.end(), 0.0F) == deviations.end(),
          ErrorCode::invalid_argument, where, "normalize_images: stddev must not be 0");
  Tensor result = from.like(DType::float32, from.height, from.width, where);
  auto* to = static_cast<float*>(result.impl()->data());
  const auto run = [&](const auto* values) {
    const auto pixels = static_cast<size_t>(from.count * from.height * from.width);
    for (size_t i = 0; i < pixels; ++i, values += channels, to += channels)
      for (size_t c = 0; c < channels; ++c)
        to[c] = (static_cast<float>(values[c]) - means[c]) / deviations[c];
  };
  switch (images.dtype()) {
    case DType::uint8: run(from.tensor.data<uint8_t>(where).data()); break;
    case DType::float32: run(from.tensor.data<float>(where).data()); break;
    default:
      fail(ErrorCode::dtype_mismatch, where, "normalize_images: images are uint8 or float32, received ",
           images.spec());
  }
  return result;
}

}  // namespace lockstep::data
