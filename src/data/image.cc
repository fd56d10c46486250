#include "lockstep/data/image.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// After <cstdio>, which it needs but does not include.
#include <jpeglib.h>

#include "data/host.h"
#include "data/image.h"
#include "graph/eager.h"
#include "lockstep/base/error.h"
#include "ops/image/interpolation.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// What a file may ask for: beyond that it is damaged, or meant to harm.
constexpr int64_t kMaxPixels = int64_t{1} << 28;

void check_size(int64_t width, int64_t height, std::string_view source, std::source_location where) {
  require(width > 0 && height > 0 && width <= kMaxPixels / height, ErrorCode::io, where, source,
          ": an image of ", width, " x ", height, " pixels; at most ", kMaxPixels, " pixels are read");
}

// libjpeg and libpng report errors through a function that must not return.
struct Escape {
  std::jmp_buf target;
  char message[JMSG_LENGTH_MAX] = {};
};

// Runs `body`; false where it escaped. Nothing with a destructor may live in the body.
template <class F>
bool guarded(Escape& escape, F body) {
  if (setjmp(escape.target)) return false;
  body();
  return true;
}

// Fits in front of an Escape what libjpeg calls.
struct JpegErrors {
  jpeg_error_mgr manager{};
  Escape escape;

  JpegErrors() {
    jpeg_std_error(&manager);
    manager.error_exit = [](j_common_ptr info) {
      auto* self = reinterpret_cast<JpegErrors*>(info->err);
      info->err->format_message(info, self->escape.message);
      std::longjmp(self->escape.target, 1);
    };
    // A warning means that data is missing or wrong: the image would be silently damaged.
    manager.emit_message = [](j_common_ptr info, int level) {
      if (level < 0) info->err->error_exit(info);
    };
    manager.output_message = [](j_common_ptr) {};
  }
};

constexpr JDIMENSION kRowsAtOnce = 16;
constexpr unsigned kScales = 8;  // libjpeg makes images of so many sizes, in eighths

// The smallest scale at which an image is not smaller than asked for.
unsigned scale_for(const jpeg_decompress_struct& info, const SmallestSize& smallest) {
  for (unsigned scale = 1; smallest.height > 0 && scale < kScales; scale *= 2)
    if (int64_t{info.image_height} * scale >= smallest.height * kScales &&
        int64_t{info.image_width} * scale >= smallest.width * kScales)
      return scale;
  return kScales;
}

struct JpegReader {
  JpegErrors errors;
  jpeg_decompress_struct info{};

  JpegReader() { info.err = &errors.manager; }
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
};

// Decodes into the room that `allocate` gives for the pixels of an image.
void decode_jpeg(std::string_view bytes, int channels, const PixelRoom& allocate,
                 const SmallestSize& smallest, std::string_view source, std::source_location where) {
  JpegReader reader;
  jpeg_decompress_struct& info = reader.info;
  const auto run = [&](auto body) {
    if (!guarded(reader.errors.escape, body))
      fail(ErrorCode::io, where, source, ": a damaged JPEG image: ", reader.errors.escape.message);
  };
  run([&] {
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info, TRUE);
  });
  check_size(info.image_width, info.image_height, source, where);
  require(info.jpeg_color_space != JCS_CMYK && info.jpeg_color_space != JCS_YCCK, ErrorCode::unsupported,
          where, source, ": a JPEG image in four inks (CMYK); convert it to RGB");
  const int wanted = channels != 0 ? channels : info.num_components == 1 ? 1 : 3;
  info.out_color_space = wanted == 1 ? JCS_GRAYSCALE : wanted == 3 ? JCS_RGB : JCS_EXT_RGBA;
  info.scale_num = scale_for(info, smallest);
  info.scale_denom = kScales;
  run([&] { jpeg_calc_output_dimensions(&info); });
  uint8_t* pixels = allocate(info.output_height, info.output_width, wanted);
  const size_t row_bytes = size_t{info.output_width} * static_cast<size_t>(wanted);
  run([&] {
    jpeg_start_decompress(&info);
    JSAMPROW rows[kRowsAtOnce];
    while (info.output_scanline < info.output_height) {
      for (JDIMENSION i = 0; i < kRowsAtOnce; ++i)
        rows[i] = pixels + std::min(info.output_scanline + i, info.output_height - 1) * row_bytes;
      jpeg_read_scanlines(&info, rows, kRowsAtOnce);
    }
    jpeg_finish_decompress(&info);
  });
}

struct PngReader {
  Escape escape;
  std::string_view rest;
  png_structp png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
  png_infop info = png ? png_create_info_struct(png) : nullptr;

  PngReader() = default;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->escape.message, sizeof(self->escape.message), "%s", message);
    std::longjmp(self->escape.target, 1);
  }
  static void on_read(png_structp png, png_bytep target, size_t bytes) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > self->rest.size()) png_error(png, "it is truncated");
    std::memcpy(target, self->rest.data(), bytes);
    self->rest.remove_prefix(bytes);
  }
};

// As TensorFlow reads PNG files: transparent pixels keep their colour, and grey is libpng's luminance.
void decode_png(std::string_view bytes, int channels, const PixelRoom& allocate, std::string_view source,
                std::source_location where) {
  PngReader reader;
  require(reader.info != nullptr, ErrorCode::out_of_memory, where, "decode_image: libpng gives no reader");
  reader.rest = bytes;
  png_structp png = reader.png;
  png_infop info = reader.info;
  const auto run = [&](auto body) {
    if (!guarded(reader.escape, body))
      fail(ErrorCode::io, where, source, ": a damaged PNG image: ", reader.escape.message);
  };
  run([&] {
    png_set_read_fn(png, &reader, PngReader::on_read);
    png_read_info(png, info);
  });
  const int64_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  check_size(width, height, source, where);
  const int type = png_get_color_type(png, info);
  const bool colour = type & PNG_COLOR_MASK_COLOR;
  const bool opacity = (type & PNG_COLOR_MASK_ALPHA) || png_get_valid(png, info, PNG_INFO_tRNS);
  // Grey with opacity has no name among the channels: it is read as colours.
  const int wanted = channels != 0 ? channels : opacity ? 4 : colour ? 3 : 1;
  run([&] {
    png_set_expand(png);
    png_set_strip_16(png);
    if (wanted == 1 && colour) png_set_rgb_to_gray_fixed(png, PNG_ERROR_ACTION_NONE, -1, -1);
    if (wanted > 1 && !colour) png_set_gray_to_rgb(png);
    if (wanted < 4 && opacity) png_set_strip_alpha(png);
    if (wanted == 4 && !opacity) png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  const size_t row_bytes = static_cast<size_t>(width) * static_cast<size_t>(wanted);
  require(png_get_rowbytes(png, info) == row_bytes, ErrorCode::internal, where, "decode_image: a row of ",
          width, " pixels has ", png_get_rowbytes(png, info), " bytes");
  uint8_t* pixels = allocate(height, width, wanted);
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = pixels + i * row_bytes;
  run([&] {
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  });
}

void check_image(const char* op, const Tensor& image, std::initializer_list<int64_t> channels,
                 std::source_location where) {
  const bool fits = image.dtype() == DType::uint8 && image.rank() == 3 && image.size() > 0 &&
                    (channels.size() == 0 ||
                     std::find(channels.begin(), channels.end(), image.shape()[-1]) != channels.end());
  if (fits) return;
  std::string list;
  for (const int64_t c : channels) list += (list.empty() ? " of " : " or ") + std::to_string(c);
  fail(ErrorCode::invalid_argument, where, op, ": an image is uint8 (height, width, channels", list,
       ") and not empty, received ", image.spec());
}

using Source = Resizer::Source;

float between(float a, float b, float weight) { return a + (b - a) * weight; }

// Where each pixel of the target comes from along one dimension that is cut to [start, start + size).
std::vector<Source> sources(int64_t start, int64_t size, int64_t target, Interpolation interpolation) {
  std::vector<Source> result(static_cast<size_t>(target));
  const float scale = static_cast<float>(size) / static_cast<float>(target);
  for (int64_t i = 0; i < target; ++i) {
    const float centre = (static_cast<float>(i) + 0.5F) * scale;
    Source& s = result[static_cast<size_t>(i)];
    if (interpolation.kind() == Interpolation::nearest) {
      s.first = s.second = std::min(static_cast<int64_t>(std::floor(centre)), size - 1);
    } else {
      const float position = centre - 0.5F;
      const float floor = std::floor(position);
      s.first = std::max(static_cast<int64_t>(floor), int64_t{0});
      s.second = std::min(static_cast<int64_t>(std::ceil(position)), size - 1);
      s.weight = position - floor;
    }
    s.first += start;
    s.second += start;
  }
  return result;
}

}  // namespace

void decode_pixels(std::string_view bytes, int channels, const PixelRoom& allocate,
                   const SmallestSize& smallest, std::string_view source, std::source_location where) {
  require(channels == 0 || channels == 1 || channels == 3 || channels == 4, ErrorCode::invalid_argument,
          where, "decode_image: channels is 0, 1, 3 or 4, received ", channels);
  if (bytes.starts_with("\xff\xd8\xff"))
    return decode_jpeg(bytes, channels, allocate, smallest, source, where);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, channels, allocate, source, where);
  fail(ErrorCode::io, where, source,
       bytes.empty() ? ": it is empty" : ": it is neither a JPEG nor a PNG image");
}

Tensor decode_image(std::string_view bytes, int channels, std::string_view source,
                    std::source_location where) {
  Tensor image;
  decode_pixels(
      bytes, channels,
      [&](int64_t height, int64_t width, int64_t count) {
        image = Tensor::empty(DType::uint8, {height, width, count}, host_device(), where);
        return static_cast<uint8_t*>(image.impl()->data());
      },
      {}, source, where);
  return image.to(current_device(), where);
}

std::string encode_png(const Tensor& image, std::source_location where) {
  check_image("encode_png", image, {1, 3, 4}, where);
  const std::vector<uint8_t> pixels = image.to_vector<uint8_t>(where);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.height = static_cast<png_uint_32>(image.shape()[0]);
  header.width = static_cast<png_uint_32>(image.shape()[1]);
  header.format = image.shape()[2] == 1   ? PNG_FORMAT_GRAY
                  : image.shape()[2] == 3 ? PNG_FORMAT_RGB
                                          : PNG_FORMAT_RGBA;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string bytes(size, '\0');
  require(png_image_write_to_memory(&header, bytes.data(), &size, 0, pixels.data(), 0, nullptr) != 0,
          ErrorCode::io, where, "encode_png: ", header.message);
  bytes.resize(size);
  return bytes;
}

std::string encode_jpeg(const Tensor& image, int quality, std::source_location where) {
  check_image("encode_jpeg", image, {1, 3}, where);
  require(quality >= 1 && quality <= 100, ErrorCode::invalid_argument, where,
          "encode_jpeg: quality is from 1 to 100, received ", quality);
  std::vector<uint8_t> pixels = image.to_vector<uint8_t>(where);
  const auto channels = static_cast<size_t>(image.shape()[2]);
  struct Compressor {
    JpegErrors errors;
    jpeg_compress_struct info{};
    unsigned char* buffer = nullptr;
    unsigned long size = 0;
    ~Compressor() {
      jpeg_destroy_compress(&info);
      std::free(buffer);
    }
  } compressor;
  jpeg_compress_struct& info = compressor.info;
  info.err = &compressor.errors.manager;
  const bool encoded = guarded(compressor.errors.escape, [&] {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &compressor.buffer, &compressor.size);
    info.image_height = static_cast<JDIMENSION>(image.shape()[0]);
    info.image_width = static_cast<JDIMENSION>(image.shape()[1]);
    info.input_components = static_cast<int>(channels);
    info.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      JSAMPROW row = &pixels[size_t{info.next_scanline} * info.image_width * channels];
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  });
  require(encoded, ErrorCode::io, where, "encode_jpeg: ", compressor.errors.escape.message);
  return {reinterpret_cast<const char*>(compressor.buffer), compressor.size};
}

Resizer::Resizer(int64_t height, int64_t width, const ResizeOptions& options, std::source_location where)
    : height_(height), width_(width), options_(options) {
  require(height > 0 && width > 0, ErrorCode::invalid_argument, where,
          "resize_image: the size must be positive, received ", height, " x ", width);
}

void Resizer::plan(int64_t height, int64_t width) {
  if (height == from_height_ && width == from_width_) return;
  from_height_ = height;
  from_width_ = width;
  int64_t cut_height = height, cut_width = width;
  if (options_.crop_to_aspect_ratio) {
    cut_height = std::max(int64_t{1}, std::min(height, width * height_ / width_));
    cut_width = std::max(int64_t{1}, std::min(width, height * width_ / height_));
  }
  const int64_t top = (height - cut_height) / 2, left = (width - cut_width) / 2;
  if (between_two()) {
    rows_ = sources(top, cut_height, height_, options_.interpolation);
    columns_ = sources(left, cut_width, width_, options_.interpolation);
  } else {
    row_taps_ = taps(top, cut_height, height_);
    column_taps_ = taps(left, cut_width, width_);
  }
}

bool Resizer::between_two() const {
  return options_.interpolation.kind() == Interpolation::bilinear ||
         options_.interpolation.kind() == Interpolation::nearest;
}

std::vector<Resizer::Taps> Resizer::taps(int64_t begin, int64_t from, int64_t to) const {
  const std::vector<double> matrix = interpolation_matrix(options_.interpolation, false, from, to);
  std::vector<Taps> all;
  for (auto row = matrix.begin(); row != matrix.end(); row += from) {
    const auto not_zero = [](double weight) { return weight != 0; };
    const auto first = std::find_if(row, row + from, not_zero);
    const auto last =
        std::find_if(std::make_reverse_iterator(row + from), std::make_reverse_iterator(first), not_zero)
            .base();
    all.push_back({begin + (first - row), {first, last}});
  }
  return all;
}

// Lines first, then columns of stretched lines.
void Resizer::weigh(const uint8_t* from, int64_t width, int64_t channels, float* to) {
  const int64_t line = width_ * channels;
  int64_t top = row_taps_.front().first, bottom = top;
  for (const Taps& row : row_taps_) {
    top = std::min(top, row.first);
    bottom = std::max(bottom, row.first + std::ssize(row.weights));
  }
  stretched_.assign(static_cast<size_t>((bottom - top) * line), 0);
  float* at = stretched_.data();
  for (int64_t y = top; y < bottom; ++y)
    for (const Taps& column : column_taps_) {
      const uint8_t* pixel = from + (y * width + column.first) * channels;
      for (const float weight : column.weights)
        for (int64_t c = 0; c < channels; ++c) at[c] += weight * static_cast<float>(*pixel++);
      at += channels;
    }
  for (const Taps& row : row_taps_) {
    std::fill_n(to, line, 0.0F);
    const float* above = stretched_.data() + (row.first - top) * line;
    for (const float weight : row.weights)
      for (int64_t i = 0; i < line; ++i) to[i] += weight * *above++;
    to += line;
  }
}

void Resizer::operator()(const uint8_t* from, int64_t height, int64_t width, int64_t channels, float* to) {
  plan(height, width);
  if (!between_two()) return weigh(from, width, channels, to);
  const auto line = static_cast<size_t>(width_ * channels);
  above_.resize(line);
  below_.resize(line);
  // The lines that they hold: the next row most often needs one of them again.
  int64_t above = -1, below = -1;
  const auto stretch_line = [&](int64_t row, std::vector<float>& target) {
    stretch(from + row * width * channels, channels, target.data());
  };
  for (const Source& row : rows_) {
    if (row.first == below) {
      std::swap(above_, below_);
      std::swap(above, below);
    }
    if (row.first != above) stretch_line(above = row.first, above_);
    if (row.second == above) {
      std::copy(above_.begin(), above_.end(), to);
    } else {
      if (row.second != below) stretch_line(below = row.second, below_);
      for (size_t i = 0; i < line; ++i) to[i] = between(above_[i], below_[i], row.weight);
    }
    to += line;
  }
}

void Resizer::stretch(const uint8_t* line, int64_t channels, float* to) const {
  const auto run = [&](auto count) {
    for (const Source& column : columns_) {
      const uint8_t *left = line + column.first * count, *right = line + column.second * count;
      for (int64_t c = 0; c < count; ++c) *to++ = between(left[c], right[c], column.weight);
    }
  };
  // Known at compile time, the channels are not a loop.
  if (channels == 3)
    run(std::integral_constant<int64_t, 3>());
  else if (channels == 1)
    run(std::integral_constant<int64_t, 1>());
  else
    run(channels);
}

Tensor resize_image(const Tensor& image, int64_t height, int64_t width, const ResizeOptions& options,
                    std::source_location where) {
  Resizer resize(height, width, options, where);
  require(
      image.dtype() == DType::uint8 && (image.rank() == 3 || image.rank() == 4) && image.size() > 0,
      ErrorCode::invalid_argument, where,
      "resize_image: an image is uint8 (height, width, channels), a batch (images, height, width, channels); "
      "and not empty, received ",
      image.spec());
  const Tensor from = contiguous(image.to(host_device(), where), where);
  Shape shape = from.shape();
  const int64_t count = image.rank() == 4 ? shape[0] : 1, from_height = shape[-3], from_width = shape[-2],
                channels = shape[-1];
  shape[-3] = height;
  shape[-2] = width;
  Tensor to = Tensor::empty(DType::float32, shape, host_device(), where);
  const uint8_t* pixels = from.data<uint8_t>(where).data();
  for (int64_t i = 0; i < count; ++i)
    resize(pixels + i * from_height * from_width * channels, from_height, from_width, channels,
           static_cast<float*>(to.impl()->data()) + i * height * width * channels);
  return to.to(current_device(), where);
}

}  // namespace lockstep::data
