#include "base/gzip_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Gzip : public testing::Test {
 protected:
  void SetUp() override {
    gzFile file = gzopen(path_.c_str(), "wb");
    gzwrite(file, text_.data(), static_cast<unsigned>(text_.size()));
    gzclose(file);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string error(const std::function<void()>& call) const {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(path_));
      return error.message();
    }
    return "no error";
  }

  std::string path_ = testing::TempDir() + "lockstep_gzip_" + std::to_string(getpid());
  std::string text_ = [] {
    std::string text;
    for (int i = 0; i < 50'000; ++i) text += std::to_string(i);
    return text;
  }();
};

TEST_F(Gzip, CompressedAndPlainFilesReadTheSame) {
  for (const bool compressed : {true, false}) {
    if (!compressed) std::ofstream(path_) << text_;
    GzipFile file(path_);
    EXPECT_EQ(file.read_exactly(10, "it"), text_.substr(0, 10));
    file.skip(100'000, "it");
    std::string rest(text_.size(), '\0');
    rest.resize(file.read(rest.data(), rest.size()));
    EXPECT_EQ(rest, text_.substr(100'010));
  }
}

TEST_F(Gzip, EndsAndDamagesAreErrors) {
  EXPECT_THAT(error([&] { GzipFile(path_).read_exactly(text_.size() + 1, "the images"); }),
              AllOf(HasSubstr("ends inside of the images"), HasSubstr("238891 bytes are expected")));
  EXPECT_THAT(error([&] { GzipFile(path_).read_exactly(size_t{1} << 60, "it"); }), HasSubstr("truncated"));
  EXPECT_THAT(error([&] { GzipFile(path_).skip(text_.size() + 1, "it"); }), HasSubstr("truncated"));
  const std::string whole = read_file(path_);
  std::ofstream(path_, std::ios::trunc) << whole.substr(0, whole.size() - 1);
  EXPECT_THAT(error([&] { GzipFile(path_).read_exactly(text_.size() + 1, "it"); }), HasSubstr("truncated"));
  std::string damaged = whole;
  damaged[damaged.size() / 2] ^= 0x55;
  std::ofstream(path_, std::ios::trunc) << damaged;
  EXPECT_THAT(error([&] { GzipFile(path_).read_exactly(text_.size(), "it"); }), HasSubstr("damaged"));
  std::filesystem::remove(path_);
  EXPECT_THAT(error([&] { GzipFile file(path_); }), HasSubstr("No such file"));
}

}  // namespace
}  // namespace lockstep
