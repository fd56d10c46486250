#include "lockstep/keras/datasets.h"
#include "lockstep/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/http_server_test.h"
#include "keras/datasets/files.h"
#include "keras/datasets/tar.h"
#include "lockstep/base/error.h"

namespace lockstep::keras::datasets {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Datasets : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ + "/mnist");
    setenv("LOCKSTEP_DATA_DIR", (folder_ + "/cache").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_DATA_DIR");
    std::filesystem::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& bytes, bool compressed = false) const {
    const std::string path = folder_ + "/" + name;
    gzFile file = gzopen(path.c_str(), compressed ? "wb1" : "wbT");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path;
  }

  static std::string error(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }

  std::string folder_ = testing::TempDir() + "lockstep_datasets_" + std::to_string(getpid());
};

std::string idx(uint8_t type, std::initializer_list<uint32_t> dims, const std::string& elements) {
  std::string text{0, 0, static_cast<char>(type), static_cast<char>(dims.size())};
  for (const uint32_t dim : dims)
    for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(dim >> shift));
  return text + elements;
}

std::string tar_member(const std::string& name, const std::string& contents) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  char size[13];
  std::snprintf(size, sizeof(size), "%011o", static_cast<unsigned>(contents.size()));
  header.replace(124, 11, size);
  header.replace(148, 8, "        ");
  header[156] = '0';
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%06o", sum);
  header.replace(148, 7, std::string(digits, 7));
  std::string padded = contents;
  padded.resize((contents.size() + 511) / 512 * 512, '\0');
  return header + padded;
}

TEST_F(Datasets, IdxFilesHaveFourTypes) {
  for (const bool compressed : {false, true}) {
    const Tensor bytes = read_idx(write("a", idx(8, {2, 2}, "\1\2\3\4"), compressed));
    EXPECT_EQ(bytes.shape(), (Shape{2, 2}));
    EXPECT_THAT(bytes.to_vector<uint8_t>(), ElementsAre(1, 2, 3, 4));
  }
  EXPECT_THAT(read_idx(write("a", idx(12, {2}, {0, 0, 1, 2, -1, -1, -1, -2}))).to_vector<int32_t>(),
              ElementsAre(258, -2));
  EXPECT_EQ(read_idx(write("a", idx(13, {}, {0x3f, -128, 0, 0}))).item<float>(), 1);
  EXPECT_EQ(read_idx(write("a", idx(14, {1}, {0x40, 0, 0, 0, 0, 0, 0, 0}))).item<double>(), 2);
  EXPECT_EQ(read_idx(write("a", idx(8, {0, 3}, ""))).shape(), (Shape{0, 3}));
}

TEST_F(Datasets, IdxFilesThatAreDamagedAreRefused) {
  EXPECT_THAT(error([&] { read_idx(write("a", "\1\2\3\4")); }), HasSubstr("no IDX file"));
  EXPECT_THAT(error([&] { read_idx(write("a", "")); }), HasSubstr("truncated"));
  EXPECT_THAT(error([&] { read_idx(write("a", idx(9, {1}, "a"))); }), HasSubstr("type 9"));
  EXPECT_THAT(error([&] { read_idx(write("a", idx(8, {3}, "ab"))); }),
              HasSubstr("3 bytes are expected, 2 are"));
  EXPECT_THAT(error([&] { read_idx(write("a", idx(8, {1}, "ab"))); }), HasSubstr("more bytes"));
  EXPECT_THAT(error([&] { read_idx(write("a", idx(8, {~0U, ~0U, ~0U}, "ab"))); }), HasSubstr("counted"));
  EXPECT_THAT(error([&] { read_idx(write("a", idx(8, {~0U, 1000}, "ab"))); }), HasSubstr("truncated"));
  EXPECT_THAT(error([&] {
                read_idx(write("a", idx(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "a")));
              }),
              HasSubstr("9 dimensions"));
}

TEST_F(Datasets, LongMnistIsFoundInAFolderInEitherForm) {
  write("mnist/train-images-idx3-ubyte", idx(8, {60000, 28, 28}, std::string(60000 * 784, '\7')));
  write("mnist/train-labels.idx1-ubyte", idx(8, {60000}, std::string(60000, '\1')));
  write("mnist/t10k-images-idx3-ubyte.gz", idx(8, {10000, 28, 28}, std::string(10000 * 784, '\2')), true);
  write("mnist/t10k-labels-idx1-ubyte.gz", idx(8, {10000}, std::string(10000, '\3')), true);
  for (const char* folder : {"", "/mnist"}) {
    const auto [train, test] = mnist::load_data({.folder = folder_ + folder, .download = false});
    EXPECT_EQ(train.x.spec(), (TensorSpec{DType::uint8, {60000, 28, 28}}));
    EXPECT_EQ(train.y.data<uint8_t>()[0], 1);
    EXPECT_EQ(test.x.data<uint8_t>()[5], 2);
    EXPECT_EQ(test.y.spec(), (TensorSpec{DType::uint8, {10000}}));
  }
  write("mnist/t10k-labels-idx1-ubyte.gz", idx(8, {9999}, std::string(9999, '\3')), true);
  EXPECT_THAT(error([&] { mnist::load_data({.folder = folder_, .download = false}); }),
              AllOf(HasSubstr("uint8(9999,)"), HasSubstr("another data set")));
}

TEST_F(Datasets, AMissingFileSaysWhereToPutIt) {
  EXPECT_THAT(
      error([&] { mnist::load_data({.folder = folder_ + "/mine", .download = false}); }),
      AllOf(HasSubstr(folder_ + "/mine/train-images-idx3-ubyte.gz"),
            HasSubstr(folder_ + "/cache/mnist/train-images-idx3-ubyte.gz"), HasSubstr("switched off")));
}

TEST_F(Datasets, MirrorsAreTriedInOrderAndFilesAreKept) {
  const HttpServer broken([](const std::string&) { return HttpServer::not_found(); });
  const HttpServer working([](const std::string&) { return HttpServer::ok("abc"); });
  const std::string second = working.url("");
  const Publication publication{"letters", {second}};
  PublishedFile file{"abc.txt", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", {}};
  const LoadOptions options{.mirrors = {broken.url("")}};
  const auto where = std::source_location::current();
  EXPECT_EQ(locate(publication, file, options, where), folder_ + "/cache/letters/abc.txt");
  EXPECT_EQ(locate(publication, file, options, where), folder_ + "/cache/letters/abc.txt");
  EXPECT_EQ(broken.requests().size(), 1U);
  EXPECT_EQ(working.requests().size(), 1U);
  file.name = "other.txt";
  file.sha256 = "00";
  EXPECT_THAT(error([&] { locate(publication, file, options, where); }),
              AllOf(HasSubstr(broken.url("other.txt")), HasSubstr("404"), HasSubstr(working.url("other.txt")),
                    HasSubstr("SHA-256"), HasSubstr("put it at " + folder_ + "/cache/letters/other.txt")));
}

TEST_F(Datasets, TheCacheFolderFollowsTheEnvironment) {
  const auto where = std::source_location::current();
  EXPECT_EQ(cache_folder(where), folder_ + "/cache");
  unsetenv("LOCKSTEP_DATA_DIR");
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before ? before : "";
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(cache_folder(where), "/x/lockstep");
  unsetenv("XDG_CACHE_HOME");
  if (const char* home = std::getenv("HOME")) {
    EXPECT_EQ(cache_folder(where), std::string(home) + "/.cache/lockstep");
  }
  if (before) setenv("XDG_CACHE_HOME", kept.c_str(), 1);
}

TEST_F(Datasets, TarMembersAreRead) {
  const std::string archive = tar_member("d/one", "1") + tar_member("d/two", std::string(600, '2'));
  const auto where = std::source_location::current();
  const auto read = read_tar(write("a.tar.gz", archive, true), {"d/two"}, where);
  EXPECT_EQ(read.at("d/two"), std::string(600, '2'));
  EXPECT_THAT(error([&] { read_tar(write("a.tar", archive), {"d/three"}, where); }),
              HasSubstr("\"d/three\""));
  EXPECT_THAT(error([&] { read_tar(write("a.tar", archive.substr(0, 1500)), {"d/two"}, where); }),
              HasSubstr("truncated"));
  std::string damaged = archive;
  damaged[3] = 'x';
  EXPECT_THAT(error([&] { read_tar(write("a.tar", damaged), {"d/two"}, where); }), HasSubstr("checksum"));
}

// Each image is its class in the red plane, 100 in the green and 200 in the blue one.
TEST_F(Datasets, LongCifarPlanesBecomeChannels) {
  const auto batch = [](int64_t count, int labels) {
    std::string bytes;
    for (int64_t i = 0; i < count; ++i) {
      const char label = static_cast<char>(i % 10);
      if (labels == 2) bytes.push_back('\5');
      bytes.push_back(label);
      bytes.append(1024, label).append(1024, 100).append(1024, static_cast<char>(200));
    }
    return bytes;
  };
  std::filesystem::create_directories(folder_ + "/cifar-10-batches-bin");
  for (int i = 1; i <= 5; ++i)
    write("cifar-10-batches-bin/data_batch_" + std::to_string(i) + ".bin", batch(10000, 1));
  write("cifar-10-batches-bin/test_batch.bin", batch(10000, 1));
  const auto [train, test] = cifar10::load_data({.folder = folder_, .download = false});
  EXPECT_EQ(train.x.spec(), (TensorSpec{DType::uint8, {50000, 32, 32, 3}}));
  EXPECT_EQ(train.y.spec(), (TensorSpec{DType::uint8, {50000, 1}}));
  EXPECT_EQ(test.y.data<uint8_t>()[13], 3);
  const auto pixels = test.x.data<uint8_t>().subspan(13 * 3072 + 3 * 77, 3);
  EXPECT_THAT(std::vector(pixels.begin(), pixels.end()), ElementsAre(3, 100, 200));

  write("cifar-100-binary.tar.gz",
        tar_member("cifar-100-binary/train.bin", batch(50000, 2)) +
            tar_member("cifar-100-binary/test.bin", batch(10000, 2)),
        true);
  EXPECT_EQ(cifar100::load_data("fine", {.folder = folder_}).test.y.data<uint8_t>()[9], 9);
  EXPECT_EQ(cifar100::load_data("coarse", {.folder = folder_}).test.y.data<uint8_t>()[9], 5);
  EXPECT_THAT(error([&] { cifar100::load_data("rough"); }), HasSubstr("\"rough\""));
}

TEST_F(Datasets, CsvRowsBecomeExamples) {
  const std::string path =
      write("a.csv", "\xef\xbb\xbfheight,\"wei\"\"ght\",kind\r\n1,2.5,0\r\n-3e2, +4 ,\"1\"\r\n\r\n");
  const Examples named = read_csv(path, {.label_column = "kind"});
  EXPECT_EQ(named.x.shape(), (Shape{2, 2}));
  EXPECT_THAT(named.x.to_vector<float>(), ElementsAre(1, 2.5F, -300, 4));
  EXPECT_THAT(named.y.to_vector<float>(), ElementsAre(0, 1));
  EXPECT_THAT(read_csv(path, {.label_column = "wei\"ght"}).y.to_vector<float>(), ElementsAre(2.5F, 4));
  EXPECT_THAT(read_csv(path, {.label_column = "-3"}).y.to_vector<float>(), ElementsAre(1, -300));
  EXPECT_FALSE(read_csv(path).y.defined());
  const Examples plain =
      read_csv(write("b.csv", "1;2\n3;4"), {.label_column = "0", .header = false, .separator = ';'});
  EXPECT_THAT(plain.y.to_vector<float>(), ElementsAre(1, 3));
  EXPECT_EQ(read_csv(write("c.csv", "a,b\n")).x.shape(), (Shape{0, 2}));
}

TEST_F(Datasets, CsvErrorsNameLineAndColumn) {
  const auto read = [&](const std::string& text, const CsvOptions& options = {}) {
    return error([&] { read_csv(write("a.csv", text), options); });
  };
  EXPECT_THAT(read("a,b\n1,2\n3,four\n"), AllOf(HasSubstr("line 3, column 2"), HasSubstr("\"four\"")));
  EXPECT_THAT(read("\"a\nb\",c\n1,\n"), AllOf(HasSubstr("line 3, column 2"), HasSubstr("empty")));
  EXPECT_THAT(read("a,b\n1\n"), AllOf(HasSubstr("line 2"), HasSubstr("1 fields where 2")));
  EXPECT_THAT(read("a,b\n\"1,2\n"), HasSubstr("does not end"));
  EXPECT_THAT(read("a,b\n\"1\"2,3\n"), HasSubstr("followed by more text"));
  EXPECT_THAT(read(""), HasSubstr("is empty"));
  EXPECT_THAT(read("kind,b\n", {.label_column = "kin"}), HasSubstr("did you mean \"kind\"?"));
  EXPECT_THAT(read("1,2\n", {.label_column = "2", .header = false}), HasSubstr("no column \"2\""));
}

TEST_F(Datasets, CsvOfAnotherSeparatorNamesIt) {
  for (const char* text : {"a;b\n1;2\n", "a;b\n1,5;2,5\n"})
    EXPECT_THAT(
        error([&] { read_csv(write("a.csv", text)); }),
        HasSubstr("has one column, \"a;b\"; where \";\" separates its fields, separator must say so"));
  EXPECT_THAT(error([&] { read_csv(write("a.csv", "1\t2\n3\t4\n"), {.header = false}); }),
              HasSubstr("where \"\\t\" separates its fields"));
  EXPECT_EQ(read_csv(write("a.csv", "a;b\n1\n")).x.shape(), (Shape{1, 1})) << "one column may be called so";
}

TEST_F(Datasets, CsvThatSeemsToHaveNoHeaderIsWarnedOf) {
  const auto warnings = [&](const std::string& text, const CsvOptions& options = {}) {
    std::string said;
    const LogSink previous = set_log_sink([&](const LogMessage& message) { said += message.text; });
    read_csv(write("a.csv", text), options);
    set_log_sink(previous);
    return said;
  };
  EXPECT_THAT(warnings("1.5,2\n3,4\n"),
              AllOf(HasSubstr("holds numbers (1.5, ...)"), HasSubstr("header must be false")));
  for (const char* named : {"0,1,2\n3,4,5\n", "1,2,3\n3,4,5\n", "a,2\n3,4\n"})
    EXPECT_EQ(warnings(named), "") << named;
  EXPECT_EQ(warnings("1.5,2\n3,4\n", {.header = false}), "");
}

}  // namespace
}  // namespace lockstep::keras::datasets
