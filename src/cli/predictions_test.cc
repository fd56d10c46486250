#include "cli/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/ops/math.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class Predictions : public ::testing::Test {
 protected:
  ~Predictions() override { std::filesystem::remove(path_); }
  std::string written(const train::NamedTensors& predictions, const std::string& ending) {
    path_ = ::testing::TempDir() + "predictions_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ending;
    write_predictions(predictions, path_);
    return read_file(path_);
  }
  std::string path_;
};

const train::NamedTensors& two_outputs() {
  static const train::NamedTensors all{{"first", Tensor::from<float>({0.1F, 0.25F, -3, 1e-8F}, {2, 2})},
                                       {"second", Tensor::from<double>({0.1, NAN}, {2, 1})}};
  return all;
}

TEST_F(Predictions, AreTablesWithAColumnPerNumber) {
  EXPECT_EQ(written(two_outputs(), ".csv"), "first_0,first_1,second\n0.1,0.25,0.1\n-3,1e-08,nan\n");
}

TEST_F(Predictions, AreLinesOfJson) {
  EXPECT_EQ(written(two_outputs(), ".jsonl"),
            "{\"first\": [0.1, 0.25], \"second\": [0.1]}\n{\"first\": [-3, 1e-08], \"second\": [null]}\n");
  const Tensor deep = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  EXPECT_EQ(prediction_lines({{"prediction", deep}}), "[[1, 2], [3, 4]]\n[[5, 6], [7, 8]]\n");
}

// The format: magic, version 1.0, length of the header, a Python dictionary, padding to 64 bytes, the
// numbers.
TEST_F(Predictions, AreArraysOfNumPy) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::int32}) {
    const Tensor prediction = cast(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}), dtype);
    const std::string bytes = written({{"prediction", prediction}}, ".npy");
    ASSERT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t header =
        10 + static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
    EXPECT_EQ(header % 64, 0u);
    EXPECT_EQ(bytes[header - 1], '\n');
    EXPECT_THAT(bytes.substr(10, header - 10), HasSubstr("'fortran_order': False, 'shape': (2,3,), }"));
    const bool wide = dtype == DType::float64 || dtype == DType::int32;
    EXPECT_THAT(bytes, HasSubstr(dtype == DType::int32 ? "'<i8'" : wide ? "'<f8'" : "'<f4'"));
    ASSERT_EQ(bytes.size(), header + 6 * (wide ? 8 : 4));
    if (wide) continue;
    float last = 0;
    std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
    EXPECT_EQ(last, 6);
  }
}

TEST_F(Predictions, OfSeveralOutputsAreNoArray) {
  EXPECT_THROW(
      {
        try {
          written(two_outputs(), ".npy");
        } catch (const Error& error) {
          EXPECT_THAT(error.message(), HasSubstr("2 outputs, and an .npy file holds one array"));
          throw;
        }
      },
      Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THROW(prediction_format("predictions.xlsx"), Error);
  written(two_outputs(), ".safetensors");
  EXPECT_EQ(train::SafetensorsFile(path_).read("first").to_vector<float>(),
            two_outputs()[0].second.to_vector<float>());
}

}  // namespace
}  // namespace lockstep::cli
