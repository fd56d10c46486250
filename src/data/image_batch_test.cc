#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image.h"
#include "lockstep/ops/random.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class F>
std::string error(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Tensor pixels(const Shape& shape) {
  std::vector<uint8_t> values(static_cast<size_t>(shape.size()));
  std::iota(values.begin(), values.end(), uint8_t{0});
  return Tensor::from(values, shape);
}

TEST(ImageBatch, ImagesAreDecodedAndResizedAsOneByOne) {
  const std::string small = encode_png(pixels({4, 6, 3})), large = encode_jpeg(pixels({33, 20, 3}));
  const std::vector<std::string_view> images{small, large, small, large, small};
  const Tensor batch = decode_images(images, {.image_size = {7, 5}});
  ASSERT_EQ(batch.spec(), (TensorSpec{DType::float32, {5, 7, 5, 3}}));
  for (size_t i = 0; i < images.size(); ++i) {
    const std::vector<float> expected = resize_image(decode_image(images[i]), 7, 5).to_vector<float>();
    const auto part = batch.data<float>().subspan(i * expected.size(), expected.size());
    EXPECT_EQ(std::vector(part.begin(), part.end()), expected);
  }
  const Tensor whole = resize_image(pixels({2, 3, 4, 1}), 6, 6);
  EXPECT_EQ(whole.shape(), (Shape{2, 6, 6, 1}));
}

TEST(ImageBatch, ImagesOfOneSizeStayBytes) {
  const std::string first = encode_png(pixels({2, 3, 3})), second = encode_png(pixels({3, 2, 3}));
  const std::vector<std::string_view> same{first, first};
  const Tensor batch = decode_images(same);
  EXPECT_EQ(batch.spec(), (TensorSpec{DType::uint8, {2, 2, 3, 3}}));
  EXPECT_EQ(batch.data<uint8_t>()[18 + 17], 17);
  EXPECT_EQ(decode_images({}).shape(), (Shape{0, 0, 0, 3}));
  const std::vector<std::string_view> mixed{first, second}, bad{first, "no image"};
  EXPECT_THAT(error([&] { decode_images(mixed); }),
              AllOf(HasSubstr("image 1 is 3 x 2"), HasSubstr("image_size")));
  EXPECT_THAT(error([&] { decode_images(bad); }), HasSubstr("image 1: it is neither"));
  EXPECT_THAT(error([&] { decode_images(same, {.image_size = {1}}); }), HasSubstr("image_size"));
  EXPECT_THAT(error([&] { decode_images(same, {.channels = 2}); }), HasSubstr("channels"));
}

TEST(ImageBatch, LargeJpegsMayBeShrunk) {
  const Tensor flat = Tensor::full(DType::uint8, {64, 48, 3}, 77);
  const std::string bytes = encode_jpeg(flat);
  const std::vector<std::string_view> images{bytes};
  const Tensor batch = decode_images(images, {.image_size = {9, 7}, .shrink_while_decoding = true});
  EXPECT_EQ(batch.shape(), (Shape{1, 9, 7, 3}));
  for (const float value : batch.to_vector<float>()) EXPECT_NEAR(value, 77, 2);
}

TEST(ImageBatch, CropsAreCutOut) {
  const Tensor image = pixels({4, 5, 1});
  EXPECT_THAT(central_crop(image, 2, 3).to_vector<uint8_t>(), ElementsAre(6, 7, 8, 11, 12, 13));
  EXPECT_EQ(central_crop(pixels({2, 4, 5, 1}), 2, 3).shape(), (Shape{2, 2, 3, 1}));
  EXPECT_THAT(error([&] { central_crop(image, 5, 1); }), HasSubstr("5 x 1 cannot be cut out of"));
  random::set_seed(1);
  const Tensor crops = random_crop(pixels({50, 4, 5, 1}), 2, 3);
  std::vector<int> tops(3), lefts(3);
  for (int64_t i = 0; i < 50; ++i) {
    const auto crop = crops.data<uint8_t>().subspan(static_cast<size_t>(i) * 6, 6);
    const int start = (crop[0] - static_cast<int>(i) * 20 % 256 + 256) % 256;
    ++tops.at(static_cast<size_t>(start / 5));
    ++lefts.at(static_cast<size_t>(start % 5));
    EXPECT_EQ((crop[5] - crop[0] + 256) % 256, 7);
  }
  EXPECT_THAT(tops, testing::Each(testing::Gt(0)));
  EXPECT_THAT(lefts, testing::Each(testing::Gt(0)));
}

TEST(ImageBatch, FlipsTurnAround) {
  const Tensor image = pixels({2, 2, 2});
  EXPECT_THAT(flip_left_right(image).to_vector<uint8_t>(), ElementsAre(2, 3, 0, 1, 6, 7, 4, 5));
  EXPECT_THAT(flip_up_down(image).to_vector<uint8_t>(), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
  EXPECT_EQ(random_flip_left_right(image, 0).to_vector<uint8_t>(), image.to_vector<uint8_t>());
  EXPECT_EQ(random_flip_left_right(image, 1).to_vector<uint8_t>(),
            flip_left_right(image).to_vector<uint8_t>());
  random::set_seed(2);
  int flipped = 0;
  const Tensor many = random_flip_left_right(Tensor::from(
      std::vector<uint8_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
      {13, 1, 2, 1}));
  for (size_t i = 0; i < 26; i += 2) flipped += many.data<uint8_t>()[i];
  EXPECT_GT(flipped, 0);
  EXPECT_LT(flipped, 13);
  EXPECT_THAT(error([&] { random_flip_left_right(image, 2); }), HasSubstr("probability"));
  EXPECT_THAT(error([] { flip_up_down(Tensor::scalar(1.0F)); }), HasSubstr("flip_up_down: an image is"));
}

TEST(ImageBatch, RandomChangesAreTheSameOnAnyNumberOfThreads) {
  std::vector<std::vector<uint8_t>> runs;
  for (const int64_t calls : {1, 4}) {
    random::set_seed(5);
    std::vector<uint8_t> seen;
    const auto change = [](const Tensor&) {
      return random_flip_left_right(random_crop(pixels({8, 8, 1}), 2, 2));
    };
    for (const Element& element : Dataset::range(20).map(change, {.num_parallel_calls = calls}))
      for (const uint8_t value : element.tensor().to_vector<uint8_t>()) seen.push_back(value);
    runs.push_back(seen);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(ImageBatch, ChannelsAreNormalised) {
  const Tensor image = Tensor::from<uint8_t>({10, 20, 30, 40}, {1, 2, 2});
  EXPECT_THAT(normalize_images(image, {10, 20}, {2, 4}).to_vector<float>(), ElementsAre(0, 0, 10, 5));
  EXPECT_THAT(normalize_images(Tensor::from<float>({1, 2}, {1, 1, 1, 2}), {1}, {2}).to_vector<float>(),
              ElementsAre(0, 0.5F));
  EXPECT_THAT(error([&] { normalize_images(image, {1, 2, 3}, {1}); }), HasSubstr("mean has 3 values for 2"));
  EXPECT_THAT(error([&] { normalize_images(image, {1}, {0}); }), HasSubstr("must not be 0"));
  EXPECT_THAT(error([&] {
                normalize_images(Tensor::full(DType::int64, {1, 1, 1}, 0), {1}, {1});
              }),
              HasSubstr("uint8 or float32"));
}

}  // namespace
}  // namespace lockstep::data
