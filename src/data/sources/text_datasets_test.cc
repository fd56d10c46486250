#include <gmock/gmock.h>

#include "data/sources/files_test.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using TextFiles = FilesTest;

TEST_F(TextFiles, LinesLoseTheirEnds) {
  EXPECT_EQ(
      texts(TextLineDataset({write("a", "one\r\n\ntwo\rthree\n"), write("b", ""), write("c", "\n\nlast\r")})),
      (std::vector<std::string>{"one", "", "two\rthree", "", "", "last\r"}));
  const std::string longest(1 << 20, 'x');
  EXPECT_EQ(texts(TextLineDataset(write("a", "a\n" + longest + "\nb"))),
            (std::vector<std::string>{"a", longest, "b"}));
  EXPECT_EQ(texts(TextLineDataset(write("a", "x^ is text\n"))), std::vector<std::string>{"x^ is text"});
}

TEST_F(TextFiles, LinesRestoreAtEveryPosition) {
  const std::string text = "one\n\ntwo\nthree";
  for (const Compression compression : {Compression::gzip, Compression::zlib})
    expect_restores_everywhere(TextLineDataset(
        {write("a", text), path("missing"), write("b", compressed(text, compression)), write("c", "")}));
}

TEST_F(TextFiles, RowsBecomeTuples) {
  const Dataset data = CsvDataset(write("a",
                                        "\xef\xbb\xbf"
                                        "1.5,-2,\"a \"\"quoted\"\"\nname\",9000000000\n\r\n +2 , 3,,\n"),
                                  {DType::float32, DType::int32, bytes("none"), Tensor::scalar<int64_t>(7)});
  Iterator iterator(data);
  const Element first = *iterator.next();
  EXPECT_EQ(first[0].tensor().item<float>(), 1.5F);
  EXPECT_EQ(first[1].tensor().item<int32_t>(), -2);
  EXPECT_EQ(text(first[2].tensor()), "a \"quoted\"\nname");
  EXPECT_EQ(first[3].tensor().item<int64_t>(), 9000000000);
  const Element second = *iterator.next();
  EXPECT_EQ(second[0].tensor().item<float>(), 2);
  EXPECT_EQ(text(second[2].tensor()), "none");
  EXPECT_EQ(second[3].tensor().item<int64_t>(), 7);
  EXPECT_FALSE(iterator.next());
  EXPECT_EQ(
      data.element_spec(),
      (ElementSpec{Structure::parse("(*, *, *, *)"),
                   {{DType::float32, {}}, {DType::int32, {}}, {DType::uint8, {-1}}, {DType::int64, {}}}}));
}

TEST_F(TextFiles, ColumnsAreChosenAndNamed) {
  const std::string file = write("a", "x;y;z\n1;\"2;3\";NA\n");
  const Dataset data = CsvDataset(file, {DType::uint8, Tensor::scalar(0.5)},
                                  {.header = true,
                                   .delimiter = ';',
                                   .na_value = "NA",
                                   .select_cols = {1, 2},
                                   .names = {"text", "number"}});
  const Element element = *Iterator(data).next();
  EXPECT_EQ(text(element["text"].tensor()), "2;3");
  EXPECT_EQ(element["number"].tensor().item<double>(), 0.5);
  const Dataset plain = CsvDataset(write("b", "\"1\",2\n"), {DType::uint8, DType::uint8}, {.quotes = false});
  EXPECT_EQ(text((*Iterator(plain).next())[0].tensor()), "\"1\"");
}

TEST_F(TextFiles, RowsCrossTheBuffersEnd) {
  std::string table;
  for (int i = 0; i < 40000; ++i)
    table += std::to_string(i) + ",\"line\r\nbreak " + std::to_string(i) + "\"\r\n";
  int64_t expected = 0;
  for (const Element& row : CsvDataset(write("a", table), {DType::int64, DType::uint8})) {
    ASSERT_EQ(row[0].tensor().item<int64_t>(), expected);
    ASSERT_EQ(text(row[1].tensor()), "line\r\nbreak " + std::to_string(expected));
    ++expected;
  }
  EXPECT_EQ(expected, 40000);
}

TEST_F(TextFiles, BadRowsAreNamedAndTheNextOneFollows) {
  const Dataset data =
      CsvDataset({write("a", "1,2\n3\n4,five\n6,7.5\n,8\n\"9\"9,9\n\"10\n\n\",11\n99999999999,1\n12,\"13"),
                  write("b", "14,15")},
                 {DType::int32, DType::int32});
  const std::string file = "! CSV file \"" + path("a") + "\", ";
  EXPECT_THAT(
      all(data),
      ElementsAre(HasSubstr("1"), AllOf(HasSubstr(file + "line 2"), HasSubstr("1 fields where 2")),
                  AllOf(HasSubstr(file + "line 3, column 2"), HasSubstr("\"five\" is not a whole number")),
                  HasSubstr("\"7.5\" is not a whole number"),
                  AllOf(HasSubstr("line 5, column 1"), HasSubstr("has no default")),
                  AllOf(HasSubstr("line 6, column 1"), HasSubstr("followed by more text")),
                  AllOf(HasSubstr("line 7, column 1"), HasSubstr("is not a whole number")),
                  AllOf(HasSubstr("line 10, column 1"), HasSubstr("out of range")),
                  AllOf(HasSubstr("line 11, column 2"), HasSubstr("does not end")), HasSubstr("14")));
  expect_restores_everywhere(data);
}

TEST_F(TextFiles, RowsRestoreAtEveryPosition) {
  const std::string table = "a,b\n1,\"x\ny\"\n2,z\n";
  for (const Compression compression : {Compression::gzip, Compression::zlib})
    expect_restores_everywhere(CsvDataset({write("a", table), write("b", compressed(table, compression))},
                                          {DType::float64, DType::uint8}, {.header = true}));
}

TEST_F(TextFiles, TablesAreChecked) {
  const auto made = [&](const std::vector<CsvColumn>& columns, const CsvDatasetOptions& options = {}) {
    return error([&] { CsvDataset("a", columns, options); });
  };
  EXPECT_THAT(made({}), HasSubstr("no columns"));
  EXPECT_THAT(made({DType::boolean}), HasSubstr("column 0 is bool"));
  EXPECT_THAT(made({DType::float32}, {.delimiter = '"'}), HasSubstr("separate no columns"));
  EXPECT_THAT(made({DType::float32}, {.select_cols = {0, 1}}), HasSubstr("select_cols has 2"));
  EXPECT_THAT(made({DType::float32, DType::float32}, {.select_cols = {1, 1}}), HasSubstr("ascending"));
  EXPECT_THAT(made({DType::float32}, {.names = {"a", "b"}}), HasSubstr("2 names"));
  EXPECT_THAT(made({Tensor::from<float>({1, 2}, {2})}), HasSubstr("must be a scalar"));
}

TEST_F(TextFiles, RecordsOfFixedLength) {
  const std::string file = write("a", "HEADaabbccFT");
  const FixedLengthRecordOptions options{.header_bytes = 4, .footer_bytes = 2};
  const std::string packed = write("b", compressed("HEADddeeFT", Compression::zlib));
  const Dataset data = FixedLengthRecordDataset({file, packed}, 2, options);
  EXPECT_EQ(texts(data), (std::vector<std::string>{"aa", "bb", "cc", "dd", "ee"}));
  EXPECT_EQ(data.cardinality(), UNKNOWN_CARDINALITY);
  EXPECT_EQ(FixedLengthRecordDataset({file, file}, 2, options).cardinality(), 6);
  EXPECT_EQ(data.element_spec().tensors[0], (TensorSpec{DType::uint8, {2}}));
  const Dataset bad =
      FixedLengthRecordDataset({write("c", "HEADaabFT"), write("d", "HEA"), file}, 2, options);
  EXPECT_THAT(texts(bad),
              ElementsAre("aa", AllOf(HasSubstr(path("c")), HasSubstr("byte 6 has only 1 of 2 bytes")),
                          AllOf(HasSubstr(path("d")), HasSubstr("shorter")), "aa", "bb", "cc"));
  expect_restores_everywhere(data);
  expect_restores_everywhere(bad);
  EXPECT_THAT(error([] { FixedLengthRecordDataset("a", 0); }), HasSubstr("must be positive"));
}

}  // namespace
}  // namespace lockstep::data
