#include "lockstep/train/tensorflow_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error_of_test.h"
#include "lockstep/base/files.h"
#include "lockstep/ops/math.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// Written by TensorFlow (tests/keras/record_tensorflow_checkpoints.py).
const fs::path kFolder = LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/tensorflow";
constexpr const char* kValue = "/.ATTRIBUTES/VARIABLE_VALUE";

class TensorflowCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    for (const char* ending : {".index", ".data-00000-of-00001"})
      fs::copy_file(kFolder / (std::string("variables") + ending), folder_ / (std::string("v-1") + ending));
  }
  void TearDown() override { fs::remove_all(folder_); }
  void damage(const char* ending, size_t at) const {
    const std::string path = prefix_ + ending;
    std::string bytes = read_file(path);
    bytes.at(at) = static_cast<char>(~bytes.at(at));
    std::ofstream(path, std::ios::binary) << bytes;
  }

  fs::path folder_ = ::testing::TempDir() + "tensorflow_" + std::to_string(getpid());
  std::string prefix_ = (folder_ / "v-1").string();
};

TEST_F(TensorflowCheckpoints, VariablesOfAllTypesAreRead) {
  const TensorflowCheckpoint checkpoint(prefix_);
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int32,
                            DType::int64, DType::uint8, DType::boolean}) {
    const std::string key = std::string(dtype == DType::boolean ? "bool" : name(dtype)) + kValue;
    ASSERT_TRUE(checkpoint.find(key)) << key;
    EXPECT_EQ(checkpoint.find(key)->spec, (TensorSpec{dtype, {2, 3}}));
    EXPECT_THAT(cast(checkpoint.read(key), DType::float32).to_vector<float>(), ElementsAre(0, 1, 1, 1, 0, 1))
        << key;
  }
  EXPECT_EQ(checkpoint.read(std::string("scalar") + kValue).item<float>(), 2.5F);
  EXPECT_FALSE(checkpoint.find(std::string("text") + kValue)) << "texts are left out";
  EXPECT_THAT(error_of([&] { checkpoint.read(std::string("scaler") + kValue); }).what(), HasSubstr("scalar"));
}

TEST_F(TensorflowCheckpoints, AFolderSaysWhichIsTheNewest) {
  std::ofstream(folder_ / "checkpoint")
      << "model_checkpoint_path: \"v-1\"\nall_model_checkpoint_paths: \"v-1\"\n";
  EXPECT_EQ(load_checkpoint(folder_.string()).entries().size(), load_checkpoint(prefix_).entries().size());
  std::ofstream(folder_ / "checkpoint") << "something else\n";
  EXPECT_THAT(error_of([&] { load_checkpoint(folder_.string()); }).what(),
              HasSubstr("model_checkpoint_path"));
}

TEST_F(TensorflowCheckpoints, DamagedDataDoesNotFitItsChecksum) {
  const TensorflowCheckpoint checkpoint(prefix_);
  const std::string key = std::string("float64") + kValue;
  damage(".data-00000-of-00001", checkpoint.find(key)->offset + 3);
  EXPECT_THAT(error_of([&] { checkpoint.read(key); }).what(), HasSubstr("checksum"));
  fs::resize_file(prefix_ + ".data-00000-of-00001", checkpoint.find(key)->offset + 3);
  EXPECT_THAT(error_of([&] { checkpoint.read(key); }).what(), HasSubstr("truncated"));
}

TEST_F(TensorflowCheckpoints, EveryDamagedByteOfTheIndexIsNoticed) {
  const std::string path = prefix_ + ".index", bytes = read_file(path);
  int noticed = 0;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    damage(".index", at);
    try {
      const TensorflowCheckpoint checkpoint(prefix_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
      ++noticed;
    }
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // The end of the file has room that nobody reads, and a block that nobody looks for.
  EXPECT_GT(noticed * 3, static_cast<int>(bytes.size()) - 100);
}

TEST_F(TensorflowCheckpoints, CutAnywhereTheIndexIsRefused) {
  const std::string bytes = read_file(prefix_ + ".index");
  for (const size_t size : {size_t{0}, size_t{47}, bytes.size() / 2, bytes.size() - 1}) {
    std::ofstream(prefix_ + ".index", std::ios::binary) << bytes.substr(0, size);
    EXPECT_EQ(error_of([&] { const TensorflowCheckpoint checkpoint(prefix_); }).code(), ErrorCode::io)
        << size;
  }
  EXPECT_EQ(error_of([&] { const TensorflowCheckpoint checkpoint(prefix_ + "0"); }).code(),
            ErrorCode::not_found);
}

}  // namespace
}  // namespace lockstep::train
