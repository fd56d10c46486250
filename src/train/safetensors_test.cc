#include "lockstep/train/safetensors.h"
#include "base/error_of_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/device/null_device.h"
#include "lockstep/ops/array.h"

namespace lockstep::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lockstep_safetensors_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "a.safetensors") const { return folder_ + "/" + name; }

  // A file of this header and so many bytes of data.
  std::string write(const std::string& header, size_t data) const {
    const uint64_t length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return write_bytes(text + header + std::string(data, '\1'));
  }
  std::string write_bytes(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary) << bytes;
    return path();
  }

  std::string folder_;
};

TEST_F(Safetensors, WhatIsWrittenIsRead) {
  const NamedTensors tensors{
      {"flags", Tensor::from(std::vector<bool>{true, false, true}, {3})},
      {"dense/kernel", Tensor::from<float>({1, -2, 0.5F, 4, 5, 6}, {2, 3})},
      {"step", Tensor::scalar<int64_t>(-7)},
      {"half", Tensor::from<Float16>({Float16(1.5F), Float16(-2.0F)}, {2})},
      {"brain", Tensor::from<BFloat16>({BFloat16(3.0F)}, {1, 1})},
      {"double", Tensor::from<double>({0.1, INFINITY}, {2})},
      {"int", Tensor::from<int32_t>({1, 2}, {2, 1})},
      {"bytes", Tensor::from<uint8_t>({0, 255}, {2})},
      {"nothing", Tensor::from<float>({}, {0, 4})},
  };
  save_safetensors(path(), tensors, {.metadata = {{"format", "lockstep"}, {"größe", "\"2\""}}});
  const SafetensorsFile file(path());
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "lockstep"), Pair("größe", "\"2\"")));
  const NamedTensors read = load_safetensors(path());
  ASSERT_EQ(read.size(), tensors.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].first, tensors[i].first);
    EXPECT_EQ(read[i].second.spec(), tensors[i].second.spec());
    EXPECT_EQ(read[i].second.to_string(), tensors[i].second.to_string());
  }
}

TEST_F(Safetensors, TheHeaderIsPaddedAndTensorsAreAligned) {
  save_safetensors(path(), {{"a", Tensor::from<uint8_t>({1, 2, 3}, {3})},
                            {"b", Tensor::from<Float16>({Float16(1)}, {1})},
                            {"c", Tensor::scalar(1.0)},
                            {"d", Tensor::scalar(1.0F)}});
  const SafetensorsFile file(path());
  for (const auto& entry : file.entries())
    EXPECT_EQ(entry.offset % size_of(entry.spec.dtype), 0U) << entry.name;
  EXPECT_EQ(file.find("c")->offset % 8, 0U);
}

TEST_F(Safetensors, StridedTensorsAreWrittenInRowMajorOrder) {
  save_safetensors(path(), {{"t", transpose(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}))}});
  EXPECT_THAT(load_safetensors(path())[0].second.to_vector<float>(), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST_F(Safetensors, SomeTensorsAreReadAlone) {
  save_safetensors(
      path(), {{"kernel", Tensor::scalar(1.0F)}, {"bias", Tensor::scalar(2.0F)}, {"x", Tensor::scalar(3)}});
  const SafetensorsFile file(path());
  const std::string names[] = {"x", "kernel"};
  const NamedTensors read = file.read(names);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].second.item<int32_t>(), 3);
  EXPECT_EQ(read[1].second.item<float>(), 1);
  EXPECT_EQ(file.find("scale"), nullptr);
  EXPECT_THAT(error_of([&] { file.read("kernle"); }).message(),
              AllOf(HasSubstr(path()), HasSubstr("\"kernel\"?")));
}

TEST_F(Safetensors, AFileOfNoTensorsIsAFile) {
  save_safetensors(path(), {});
  EXPECT_TRUE(load_safetensors(path()).empty());
}

TEST_F(Safetensors, AFailedWriteLeavesTheOldFile) {
  save_safetensors(path(), {{"a", Tensor::scalar(1.0F)}});
  EXPECT_THAT(error_of([&] {
                save_safetensors(path(), {{"a", Tensor::scalar(2.0F)}, {"a", Tensor::scalar(3.0F)}});
              }).message(),
              HasSubstr("two tensors are called \"a\""));
  EXPECT_EQ(load_safetensors(path())[0].second.item<float>(), 1);
  EXPECT_THAT(error_of([&] { save_safetensors(folder_, {}); }).message(), HasSubstr("cannot write"));
  EXPECT_THAT(error_of([&] { save_safetensors(path("no/folder"), {}); }).message(),
              HasSubstr("No such file"));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1) << "a temporary file was left";
}

TEST_F(Safetensors, WhatCannotBeWrittenIsRefusedByName) {
  EXPECT_THAT(error_of([&] {
                save_safetensors(path(), {{"none", Tensor()}});
              }).message(),
              AllOf(HasSubstr("\"none\""), HasSubstr("is none")));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path(), {{"__metadata__", Tensor::scalar(1)}});
              }).message(),
              HasSubstr("__metadata__"));
  EXPECT_THAT(error_of([&] {
                save_safetensors(path(), {{"\xff", Tensor::scalar(1)}});
              }).message(),
              HasSubstr("UTF-8"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(Safetensors, DamagedFilesAreRefusedWithFileTensorAndRule) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(load_safetensors(write(good, 8)).size(), 1U);
  const struct {
    std::string header;
    size_t data;
    const char* rule;
  } kCases[] = {
      {good, 7, "outside of the 7 bytes"},
      {good, 9, "1 bytes at the end belong to no tensor"},
      {"{", 0, "parse error"},
      {"[]", 0, "not a JSON object"},
      {"\xff{}", 0, "parse error"},
      {R"({"a":3})", 0, "needs a dtype"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "needs a dtype"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "needs a dtype"},
      {R"({"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}})", 4, "dtype I16; readable are F32"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "shape holds -2"},
      {R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, "shape holds 2.5"},
      {R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8, "shape holds \"2\""},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "takes 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "outside of the 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "can be counted"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "9 dimensions"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "without overlap or holes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "without overlap or holes"},
      {R"({"__metadata__":{"a":1}})", 0, "strings only"},
      {R"({"__metadata__":[]})", 0, "not an object of strings"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(error_of([&] { load_safetensors(write(c.header, c.data)); }).message(),
                AllOf(HasSubstr(c.rule), HasSubstr(path())))
        << c.header;
  }
  EXPECT_THAT(error_of([&] { load_safetensors(write_bytes("short")); }).message(), HasSubstr("has 5 bytes"));
  EXPECT_THAT(error_of([&] { load_safetensors(write_bytes(std::string(100, '\xff'))); }).message(),
              HasSubstr("does not fit a file of 100 bytes"));
  EXPECT_THAT(error_of([&] { load_safetensors(path("missing")); }).message(), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { load_safetensors(folder_); }).message(), HasSubstr("it is a folder"));
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  save_safetensors(path(), {{"a", Tensor::from<float>({1, 2, 3}, {3})}, {"b", Tensor::scalar<int64_t>(4)}});
  const std::string whole = read_file(path());
  for (size_t length = 0; length < whole.size(); ++length) {
    write_bytes(whole.substr(0, length));
    EXPECT_THROW(load_safetensors(path()), Error) << length;
  }
}

TEST_F(Safetensors, ABooleanIsZeroOrOne) {
  const std::string header = R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
  EXPECT_TRUE(load_safetensors(write(header, 1))[0].second.item<bool>());
  std::string bytes = read_file(path());
  bytes.back() = '\2';
  EXPECT_THAT(error_of([&] { load_safetensors(write_bytes(bytes)); }).message(),
              HasSubstr("neither 0 nor 1"));
}

// Written by the format's reference implementation.
TEST_F(Safetensors, ReadsWhatTheReferenceWrites) {
  const SafetensorsFile file(LOCKSTEP_SOURCE_DIR "/src/train/testdata/reference.safetensors");
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("made_by", "reference")));
  EXPECT_EQ(file.entries().size(), 8U);
  EXPECT_THAT(file.read("F32").to_vector<float>(), ElementsAre(0, 0.5F, 1, 1.5F, 2, 2.5F));
  EXPECT_EQ(file.read("F32").shape(), (Shape{2, 3}));
  EXPECT_THAT(file.read("F64").to_vector<double>(), ElementsAre(-1, 0.1));
  EXPECT_EQ(static_cast<float>(file.read("F16").item<Float16>()), 1.5F);
  EXPECT_EQ(static_cast<float>(file.read("BF16").item<BFloat16>()), -2.0F);
  EXPECT_THAT(file.read("I32").to_vector<int32_t>(), ElementsAre(-3, 4));
  EXPECT_THAT(file.read("I64").to_vector<int64_t>(), ElementsAre(int64_t{1} << 40));
  EXPECT_THAT(file.read("U8").to_vector<uint8_t>(), ElementsAre(7, 200));
  EXPECT_THAT(file.read("BOOL").to_vector<bool>(), ElementsAre(true, false));
}

TEST_F(Safetensors, TensorsWithoutMemoryAreRefused) {
  EXPECT_THAT(error_of([&] {
                save_safetensors(path(), {{"n", Tensor::empty(DType::float32, {2}, null_device())}});
              }).message(),
              HasSubstr("holds no elements"));
}

}  // namespace
}  // namespace lockstep::train
