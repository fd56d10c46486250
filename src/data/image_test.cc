#include "lockstep/data/image.h"
#include "base/error_of_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/image.h"
#include "lockstep/ops/math.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

Tensor ramp(int64_t height, int64_t width, int64_t channels) {
  std::vector<uint8_t> values(static_cast<size_t>(height * width * channels));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 7);
  return Tensor::from(values, {height, width, channels});
}

TEST(Image, PngKeepsEveryValue) {
  for (const int64_t channels : {1, 3, 4}) {
    const Tensor image = ramp(5, 7, channels);
    const Tensor again = decode_image(encode_png(image));
    EXPECT_EQ(again.shape(), image.shape());
    EXPECT_EQ(again.to_vector<uint8_t>(), image.to_vector<uint8_t>());
  }
}

TEST(Image, ChannelsAreConverted) {
  const std::string grey = encode_png(Tensor::from<uint8_t>({9}, {1, 1, 1}));
  EXPECT_THAT(decode_image(grey, 3).to_vector<uint8_t>(), ElementsAre(9, 9, 9));
  EXPECT_THAT(decode_image(grey, 4).to_vector<uint8_t>(), ElementsAre(9, 9, 9, 255));
  const std::string rgba = encode_png(Tensor::from<uint8_t>({10, 20, 30, 0}, {1, 1, 4}));
  EXPECT_THAT(decode_image(rgba, 3).to_vector<uint8_t>(), ElementsAre(10, 20, 30));
  // By luminance, as TensorFlow reads this file: the mean of the bytes would be 20.
  EXPECT_THAT(decode_image(rgba, 1).to_vector<uint8_t>(), ElementsAre(21));
}

TEST(Image, JpegIsNear) {
  std::vector<uint8_t> smooth;
  for (int i = 0; i < 16 * 16; ++i)
    for (int c = 0; c < 3; ++c) smooth.push_back(static_cast<uint8_t>(50 + i / 2 + 10 * c));
  const Tensor image = Tensor::from(smooth, {16, 16, 3});
  const std::string bytes = encode_jpeg(image, 100);
  const auto decoded = decode_image(bytes).to_vector<uint8_t>();
  for (size_t i = 0; i < smooth.size(); ++i) ASSERT_NEAR(decoded[i], smooth[i], 8) << i;
  EXPECT_EQ(decode_image(bytes, 1).shape(), (Shape{16, 16, 1}));
  EXPECT_EQ(decode_image(bytes, 4).to_vector<uint8_t>()[3], 255);
}

TEST(Image, DamagedImagesAreRefusedByName) {
  for (const std::string& bytes : {encode_png(ramp(20, 20, 3)), encode_jpeg(ramp(20, 20, 3))}) {
    for (size_t length = 0; length + 1 < bytes.size(); length += 5)
      EXPECT_THAT(error_of([&] { decode_image(bytes.substr(0, length), 0, "cat.png"); }).message(),
                  HasSubstr("cat.png"))
          << length;
  }
  EXPECT_THAT(error_of([] { decode_image("GIF89a"); }).message(), HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(error_of([] { decode_image("", 2); }).message(), HasSubstr("received 2"));
  std::string huge = encode_png(ramp(1, 1, 1));
  huge.replace(16, 4, "\x7f\xff\xff\xff");
  EXPECT_THAT(error_of([&] { decode_image(huge); }).message(), HasSubstr("PNG image"));
  EXPECT_THAT(error_of([] {
                encode_png(Tensor::from<float>({1}, {1, 1, 1}));
              }).message(),
              HasSubstr("float32"));
  EXPECT_THAT(error_of([] { encode_jpeg(ramp(1, 1, 4)); }).message(), HasSubstr("of 1 or 3"));
  EXPECT_THAT(error_of([] { encode_jpeg(ramp(1, 1, 3), 0); }).message(), HasSubstr("received 0"));
}

// Values of tf.image.resize.
TEST(Image, ResizingTakesPixelsAsAreas) {
  const Tensor image = Tensor::from<uint8_t>({0, 10, 20, 30, 40, 50}, {2, 3, 1});
  EXPECT_THAT(resize_image(image, 3, 2).to_vector<float>(),
              Pointwise(FloatNear(1e-4F), {2.5F, 17.5F, 17.5F, 32.5F, 32.5F, 47.5F}));
  EXPECT_THAT(resize_image(image, 3, 2, {.interpolation = Interpolation::nearest}).to_vector<float>(),
              ElementsAre(0, 20, 30, 50, 30, 50));
  EXPECT_THAT(resize_image(image, 2, 2, {.crop_to_aspect_ratio = true}).to_vector<float>(),
              ElementsAre(0, 10, 30, 40));
  EXPECT_THAT(error_of([&] { resize_image(image, 0, 2); }).message(), HasSubstr("0 x 2"));
}

TEST(Image, EveryInterpolationIsThatOfTheOp) {
  std::vector<uint8_t> pixels(2 * 7 * 9 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37);
  const Tensor images = Tensor::from(pixels, {2, 7, 9, 3});
  for (const char* interpolation : {"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area"})
    for (const auto& [height, width] : {std::pair(13, 4), std::pair(3, 20), std::pair(7, 9)}) {
      SCOPED_TRACE(detail::concat(interpolation, " ", height, " x ", width));
      const Tensor resized = resize_image(images, height, width, {.interpolation = interpolation});
      const Tensor by_op =
          image::resize(cast(images, DType::float32), {height, width}, {.interpolation = interpolation});
      EXPECT_THAT(resized.to_vector<float>(), Pointwise(FloatNear(1e-3F), by_op.to_vector<float>()));
    }
  const Tensor cut = resize_image(images, 4, 4, {.interpolation = "bicubic", .crop_to_aspect_ratio = true});
  const Tensor middle =
      resize_image(slice(images, {0, 0, 1, 0}, {2, 7, 7, 3}), 4, 4, {.interpolation = "bicubic"});
  EXPECT_EQ(cut.to_vector<float>(), middle.to_vector<float>());
  EXPECT_THAT(error_of([&] { resize_image(images, 2, 2, {.interpolation = "cubic"}); }).message(),
              HasSubstr("lanczos5"));
}

}  // namespace
}  // namespace lockstep::data
