#include <gmock/gmock.h>

#include "data/node.h"
#include "data/sources/files_test.h"
#include "data/tfrecord.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TFRecordDatasetTest : public FilesTest {
 protected:
  std::string records(const std::string& name, const std::vector<std::string>& contents,
                      Compression compression = Compression::none) const {
    TFRecordWriter writer(path(name), {.compression = compression});
    for (const std::string& record : contents) writer.write(record);
    writer.close();
    return path(name);
  }
};

constexpr Compression kCompressions[] = {Compression::none, Compression::gzip, Compression::zlib};

TEST_F(TFRecordDatasetTest, WhatWasWrittenIsRead) {
  std::vector<std::string> contents{"one", "", std::string("\0\n", 2), std::string(700'000, 'x')};
  for (int i = 0; i < 3000; ++i) contents.emplace_back(static_cast<size_t>(i % 300), static_cast<char>(i));
  for (const Compression compression : kCompressions) {
    const std::string file = records("a", contents, compression);
    EXPECT_EQ(texts(TFRecordDataset(file)), contents);
    EXPECT_EQ(texts(TFRecordDataset(file, {.compression = compression, .buffer_bytes = 1})), contents);
  }
  EXPECT_EQ(texts(TFRecordDataset({records("b", {"1", "2"}), records("c", {}), records("d", {"3"})})),
            (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(TFRecordDataset("x").element_spec().tensors[0], (TensorSpec{DType::uint8, {-1}}));
}

// A record of 376 bytes begins as a zlib file does, one of 559903 as a gzip file.
TEST_F(TFRecordDatasetTest, LengthsThatLookLikeCompressionAreNotTakenForIt) {
  for (const size_t length : {0x178U, 0x88b1fU}) {
    const std::string record(length, 'r');
    const std::string file = records("a", {record});
    ASSERT_NE(compression_of(frame_record(record)), Compression::none);
    EXPECT_EQ(texts(TFRecordDataset(file)), std::vector{record});
  }
}

TEST_F(TFRecordDatasetTest, RestoresAtEveryPosition) {
  for (const Compression compression : kCompressions)
    expect_restores_everywhere(TFRecordDataset({records("a", {"1", "", "22"}, compression), records("b", {}),
                                                records("c", {"3", std::string(5000, 'x')}, compression)}));
}

TEST_F(TFRecordDatasetTest, BehindABadRecordTheNextOneIsRead) {
  std::string bytes = frame_record("first") + frame_record("second") + frame_record("third");
  bytes[frame_record("first").size() + 13] ^= 1;
  const Dataset data = TFRecordDataset({write("a", bytes), records("b", {"fourth"})});
  EXPECT_THAT(texts(data),
              ElementsAre("first",
                          AllOf(HasSubstr("! TFRecord file \"" + path("a") + "\""),
                                HasSubstr("contents of the record at byte 21"), HasSubstr("checksum")),
                          "third", "fourth"));
  expect_restores_everywhere(data);
}

TEST_F(TFRecordDatasetTest, BehindABadLengthTheNextFileIsRead) {
  std::string bytes = frame_record("first") + frame_record("second") + frame_record("third");
  bytes[frame_record("first").size()] ^= 1;
  const std::string whole = frame_record("1") + frame_record("2");
  const Dataset data =
      TFRecordDataset({write("a", bytes), path("missing"), write("c", whole.substr(0, whole.size() - 2)),
                       records("d", {"last"})});
  EXPECT_THAT(
      texts(data),
      ElementsAre("first", HasSubstr("the length of the record at byte 21 does not match its checksum"),
                  HasSubstr("No such file"), "1", HasSubstr("truncated"), "last"));
  expect_restores_everywhere(data);
}

TEST_F(TFRecordDatasetTest, DamagedCompressionIsNamed) {
  const std::string plain =
      frame_record("first") + frame_record(std::string(100, 'x')) + frame_record("third");
  for (const Compression compression : {Compression::gzip, Compression::zlib}) {
    const std::string packed = compressed(plain, compression);
    EXPECT_EQ(texts(TFRecordDataset(write("a", packed + packed))).size(), 6U) << "two members are one file";
    for (size_t length = 3; length < packed.size(); ++length)
      EXPECT_THAT(texts(TFRecordDataset(write("a", packed.substr(0, length)))).back(),
                  AllOf(HasSubstr(path("a")), HasSubstr("truncated")))
          << length;
    std::string changed = packed;
    changed[packed.size() - 2] ^= 1;
    EXPECT_THAT(texts(TFRecordDataset(write("a", changed))).back(), HasSubstr("damaged"));
    EXPECT_THAT(texts(TFRecordDataset(write("a", plain), {.compression = compression})).back(),
                HasSubstr("damaged"));
  }
}

TEST_F(TFRecordDatasetTest, AFileAppearsWhenItIsClosed) {
  {
    TFRecordWriter writer(path("a"));
    writer.write("lost");
  }
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  TFRecordWriter writer(path("a"));
  writer.write(bytes("kept"));
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  writer.close();
  writer.close();
  EXPECT_EQ(texts(TFRecordDataset(path("a"))), std::vector<std::string>{"kept"});
  EXPECT_THAT(error([&] { writer.write("more"); }), HasSubstr("is closed"));
  EXPECT_THAT(error([&] { TFRecordWriter(path("b"), {.compression = Compression::automatic}); }),
              HasSubstr("none, gzip or zlib"));
  EXPECT_THAT(error([&] { TFRecordWriter(path("b"), {.level = 0}); }), HasSubstr("level"));
}

TEST_F(TFRecordDatasetTest, FilesAreShared) {
  const Dataset data = TFRecordDataset({records("a", {"1"}), records("b", {"2"}), records("c", {"3"})});
  EXPECT_EQ(texts(Dataset(data.node()->shard_files(2, 0))), (std::vector<std::string>{"1", "3"}));
  EXPECT_EQ(texts(Dataset(data.node()->shard_files(2, 1))), (std::vector<std::string>{"2"}));
  EXPECT_EQ(data.node()->shard_files(4, 0), nullptr);
}

TEST_F(TFRecordDatasetTest, SeveralFilesAreReadInTurn) {
  const std::vector<std::string> files{records("a", {"a1", "a2", "a3"}), records("b", {"b1"}),
                                       records("c", {"c1", "c2"})};
  const Dataset data = TFRecordDataset(files, {.num_parallel_reads = 2});
  EXPECT_EQ(texts(data), (std::vector<std::string>{"a1", "b1", "a2", "a3", "c1", "c2"}));
  expect_restores_everywhere(data);
  EXPECT_EQ(data.element_spec().tensors[0].dtype, DType::uint8);
}

TEST_F(TFRecordDatasetTest, OptionsAreChecked) {
  EXPECT_THAT(error([&] { TFRecordDataset("a", {.num_parallel_reads = 0}); }),
              HasSubstr("num_parallel_reads"));
  EXPECT_THAT(error([&] { TFRecordDataset("a", {.buffer_bytes = 0}); }), HasSubstr("buffer_bytes"));
}

}  // namespace
}  // namespace lockstep::data
