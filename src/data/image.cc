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

#include "lockstep/base/error.h"

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

struct JpegReader {
  JpegErrors errors;
  jpeg_decompress_struct info{};

  JpegReader() { info.err = &errors.manager; }
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
};

Tensor decode_jpeg(std::string_view bytes, int channels, std::string_view source,
                   std::source_location where) {
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
  const size_t row_bytes = size_t{info.image_width} * static_cast<size_t>(wanted);
  std::vector<uint8_t> pixels(row_bytes * info.image_height);
  run([&] {
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = &pixels[info.output_scanline * row_bytes];
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
  });
  return Tensor::from(pixels, {info.image_height, info.image_width, wanted}, where);
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
Tensor decode_png(std::string_view bytes, int channels, std::string_view source, std::source_location where) {
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
  std::vector<uint8_t> pixels(row_bytes * static_cast<size_t>(height));
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = &pixels[i * row_bytes];
  run([&] {
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  });
  return Tensor::from(pixels, {height, width, wanted}, where);
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

struct Source {
  int64_t first = 0, second = 0;
  float weight = 0;  // of the second
};

// Where each pixel of the target comes from along one dimension that is cut to [start, start + size).
std::vector<Source> sources(int64_t start, int64_t size, int64_t target, Interpolation interpolation) {
  std::vector<Source> result(static_cast<size_t>(target));
  const float scale = static_cast<float>(size) / static_cast<float>(target);
  for (int64_t i = 0; i < target; ++i) {
    const float centre = (static_cast<float>(i) + 0.5F) * scale;
    Source& s = result[static_cast<size_t>(i)];
    if (interpolation == Interpolation::nearest) {
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

Tensor decode_image(std::string_view bytes, int channels, std::string_view source,
                    std::source_location where) {
  require(channels == 0 || channels == 1 || channels == 3 || channels == 4, ErrorCode::invalid_argument,
          where, "decode_image: channels is 0, 1, 3 or 4, received ", channels);
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, channels, source, where);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, channels, source, where);
  fail(ErrorCode::io, where, source,
       bytes.empty() ? ": it is empty" : ": it is neither a JPEG nor a PNG image");
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

Tensor resize_image(const Tensor& image, int64_t height, int64_t width, const ResizeOptions& options,
                    std::source_location where) {
  check_image("resize_image", image, {}, where);
  require(height > 0 && width > 0, ErrorCode::invalid_argument, where,
          "resize_image: the size must be positive, ", "received ", height, " x ", width);
  const int64_t full_height = image.shape()[0], full_width = image.shape()[1], channels = image.shape()[2];
  int64_t cut_height = full_height, cut_width = full_width;
  if (options.crop_to_aspect_ratio) {
    cut_height = std::max(int64_t{1}, std::min(full_height, full_width * height / width));
    cut_width = std::max(int64_t{1}, std::min(full_width, full_height * width / height));
  }
  const auto rows = sources((full_height - cut_height) / 2, cut_height, height, options.interpolation);
  const auto columns = sources((full_width - cut_width) / 2, cut_width, width, options.interpolation);
  const std::vector<uint8_t> from = image.to_vector<uint8_t>(where);
  std::vector<float> to(static_cast<size_t>(height * width * channels));
  size_t next = 0;
  for (const Source& row : rows) {
    const uint8_t* top = &from[static_cast<size_t>(row.first * full_width * channels)];
    const uint8_t* bottom = &from[static_cast<size_t>(row.second * full_width * channels)];
    for (const Source& column : columns) {
      const int64_t left = column.first * channels, right = column.second * channels;
      for (int64_t c = 0; c < channels; ++c) {
        const auto between = [](float a, float b, float weight) { return a + (b - a) * weight; };
        const float above = between(top[left + c], top[right + c], column.weight);
        const float below = between(bottom[left + c], bottom[right + c], column.weight);
        to[next++] = between(above, below, row.weight);
      }
    }
  }
  return Tensor::from(to, {height, width, channels}, where);
}

}  // namespace lockstep::data
