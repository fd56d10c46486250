#include "train/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error_of_test.h"
#include "lockstep/base/files.h"

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ZipArchive : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    large_.assign(3'000'000, 'x').append("end");
    write_zip(path_, {{.name = "a.json", .bytes = "{}"},
                      {.name = "empty", .bytes = ""},
                      {.name = "b/large", .bytes = large_}});
    bytes_ = read_file(path_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string refusal(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return error_of([&] {
             const ZipReader zip(path_);
             for (const std::string& name : zip.names()) zip.read(name);
           })
        .what();
  }

  std::filesystem::path folder_ = ::testing::TempDir() + "zip_" + std::to_string(getpid());
  std::string path_ = (folder_ / "a.zip").string();
  std::string large_;
  std::string bytes_;
};

TEST_F(ZipArchive, GivesBackWhatWasWritten) {
  const ZipReader zip(path_);
  EXPECT_THAT(zip.names(), ElementsAre("a.json", "b/large", "empty"));
  EXPECT_EQ(zip.read("a.json"), "{}");
  EXPECT_EQ(zip.read("empty"), "");
  const std::string large = zip.read("b/large");
  EXPECT_EQ(large.size(), 3'000'003U);
  EXPECT_TRUE(large.ends_with("xend"));
  EXPECT_EQ(zip.read("a.json"), "{}") << "entries may be read again, in any order";
  EXPECT_THAT(error_of([&] { zip.read("none"); }).what(), HasSubstr("none"));
}

TEST_F(ZipArchive, TheSameFilesAreTheSameArchive) {
  write_zip(path_, {{.name = "a.json", .bytes = "{}"},
                    {.name = "empty", .bytes = ""},
                    {.name = "b/large", .bytes = large_}});
  EXPECT_EQ(read_file(path_), bytes_);
}

TEST_F(ZipArchive, DamagedBytesDoNotFitTheChecksum) {
  std::string damaged = bytes_;
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_THAT(refusal(damaged), HasSubstr("checksum"));
}

TEST_F(ZipArchive, CutAnywhereItIsRefused) {
  for (const size_t size : {size_t{0}, size_t{3}, size_t{30}, bytes_.size() / 2, bytes_.size() - 20})
    EXPECT_THAT(refusal(bytes_.substr(0, size)), HasSubstr("zip archive")) << size;
  EXPECT_THAT(refusal("no archive at all"), HasSubstr("no zip archive"));
}

}  // namespace
}  // namespace lockstep::train
