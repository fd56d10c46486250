#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "data/elements_test.h"
#include "data/node.h"
#include "data/pipeline.h"
#include "lockstep/base/log.h"
#include "lockstep/data/explain.h"
#include "lockstep/data/files.h"
#include "lockstep/ops/random.h"

namespace lockstep::data {
namespace {

using Numbers = std::vector<int64_t>;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A source of files, each of which holds ten numbers from ten times its own on.
class FilesNode final : public NodeOf<FilesNode> {
 public:
  explicit FilesNode(Numbers files)
      : NodeOf("files", {}, std::source_location::current()),
        files_(std::move(files)),
        all_(Dataset::from_tensor_slices(Tensor::from<int64_t>(files_, {static_cast<int64_t>(files_.size())}))
                 .flat_map([](const Tensor& file) {
                   const int64_t first = 10 * file.item<int64_t>();
                   return Dataset::range(first, first + 10);
                 })) {}
  std::unique_ptr<Cursor> open(const Opening& opening) const override { return opening.open(*all_.node()); }
  std::optional<ElementSpec> spec() const override { return {}; }
  int64_t cardinality() const override { return static_cast<int64_t>(10 * files_.size()); }
  int64_t files() const override { return std::ssize(files_); }
  NodePtr shard_files(int64_t count, int64_t index) const override {
    if (static_cast<int64_t>(files_.size()) < count) return nullptr;
    Numbers share;
    for (auto i = static_cast<size_t>(index); i < files_.size(); i += static_cast<size_t>(count))
      share.push_back(files_[i]);
    return std::make_shared<FilesNode>(share);
  }

 private:
  Numbers files_;
  Dataset all_;
};

Dataset files(const Numbers& all) { return Dataset(std::make_shared<FilesNode>(all)); }
Dataset with(const Dataset& data, AutoShardPolicy policy) {
  return data.with_options({.auto_shard = policy});
}

// The workers' shares, put together: what one alone would see?
Numbers together(const Dataset& data, int64_t workers) {
  Numbers all;
  for (int64_t i = 0; i < workers; ++i)
    for (const int64_t one : numbers(data.auto_shard(workers, i))) all.push_back(one);
  std::sort(all.begin(), all.end());
  return all;
}
Numbers sorted(const Dataset& data) { return together(data, 1); }

TEST(AutoShard, SharesFilesWhereThereAreEnough) {
  const Dataset data = files({1, 2, 3, 4, 5}).shuffle(7).batch(3);  // of files, each may shuffle as it likes
  EXPECT_EQ(numbers(files({1, 2, 3}).auto_shard(2, 1)), numbers(files({2})));
  EXPECT_EQ(together(data, 2), sorted(data));
  EXPECT_EQ(together(data, 5), sorted(data));
  // Each worker has files of its own: no file's numbers are in two shares.
  for (const int64_t one : numbers(data.auto_shard(5, 2))) EXPECT_EQ(one / 10, 3);
}

TEST(AutoShard, SharesElementsWhereThereAreNot) {
  // Workers are processes, each in its first pass; here one process makes their passes one after the other.
  const ShuffleOptions same_order{.seed = 1, .reshuffle_each_iteration = false};
  for (const Dataset& data : {
           files({1, 2}).shuffle(5, same_order).batch(3),
           Dataset::range(20).shuffle(5, same_order).repeat(2),
           Dataset::range(20).take(7).batch(2),
           Dataset::range(20).skip(3).map([](const Tensor& i) { return i; }),
           Dataset::range(10).window(3, [](const Dataset& window) { return window; }, {.shift = 1}),
           Dataset::zip({Dataset::range(9), Dataset::range(9)}).batch(2),
           Dataset::range(4).flat_map([](const Tensor&) { return Dataset::range(3); }),
           Dataset::range(9).concatenate(Dataset::range(5)).cache().batch(2),
           with(files({1, 2, 3, 4}).batch(2), AutoShardPolicy::data),
       })
    EXPECT_EQ(together(data, 3), sorted(data));
}

// Recorded from TensorFlow 2: what each of two workers sees of range(8).batch(2), with and without a prefetch
// behind it.
TEST(AutoShard, WholeBatchesAsInTensorFlow) {
  const Dataset batches = Dataset::range(8).batch(2);
  for (const Dataset& data :
       {batches, with(batches, AutoShardPolicy::data), with(batches.prefetch(2), AutoShardPolicy::data)}) {
    EXPECT_EQ(lists(data.auto_shard(2, 0)), (std::vector<Numbers>{{0, 1}, {4, 5}}));
    EXPECT_EQ(lists(data.auto_shard(2, 1)), (std::vector<Numbers>{{2, 3}, {6, 7}}));
  }
  const Dataset every = with(batches, AutoShardPolicy::off);
  EXPECT_EQ(lists(every.auto_shard(2, 1)), lists(batches));
  // By files, batches are of one worker's elements.
  EXPECT_EQ(lists(files({0, 1}).batch(6).auto_shard(2, 1)),
            (std::vector<Numbers>{{10, 11, 12, 13, 14, 15}, {16, 17, 18, 19}}));
}

// What is logged while it lives.
class Notes {
 public:
  Notes()
      : before_(
            set_log_sink([this](const LogMessage& message) { text += std::string(message.text) + "\n"; })),
        level_(log_level()) {
    set_log_level(LogLevel::info);
  }
  ~Notes() {
    set_log_sink(before_);
    set_log_level(level_);
  }
  std::string text;

 private:
  LogSink before_;
  LogLevel level_;
};

TEST(AutoShard, SaysWhatPeopleDoNotExpect) {
  const auto said = [](const Dataset& data) {
    const Notes notes;
    data.auto_shard(4, 1);
    return notes.text;
  };
  EXPECT_THAT(said(files({1})),
              AllOf(HasSubstr("reads 1 file, which is not enough for 4 workers: every worker reads all of "
                              "it and keeps one of 4 elements"),
                    HasSubstr("Options::auto_shard = data says that this is meant")));
  EXPECT_THAT(said(files({1, 2, 3, 4}).take(7)), HasSubstr("take ["));
  EXPECT_THAT(said(files({1, 2, 3, 4, 5, 6, 7})),
              HasSubstr("reads 7 files for 4 workers: 3 read one more than the others"));
  EXPECT_THAT(said(with(Dataset::range(3), AutoShardPolicy::off)), HasSubstr("see every element 4 times"));
  EXPECT_EQ(said(with(files({1}), AutoShardPolicy::data)), "") << "it was asked for";
  EXPECT_EQ(said(files({1, 2, 3, 4, 5, 6, 7, 8})), "");
  EXPECT_EQ(said(Dataset::range(9)), "") << "there is nothing to be read twice";
  EXPECT_EQ(said(with(Dataset::range(3), AutoShardPolicy::off)), "") << "once";
}

std::string refusal(const Dataset& data) {
  try {
    data.auto_shard(2, 0);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

// A process has a seed or has none.
TEST(AutoShardOwnProcess, AnOrderOfNoSeedIsRefused) {
  const Dataset shuffled = Dataset::range(9).shuffle(3).batch(2);
  EXPECT_THAT(refusal(shuffled), AllOf(HasSubstr("shuffle ["), HasSubstr("has no seed")));
  EXPECT_THAT(refusal(Dataset::sample_from_datasets({Dataset::range(9), Dataset::range(9)})),
              HasSubstr("sample_from_datasets ["));
  EXPECT_EQ(refusal(files({1, 2}).shuffle(3)), "") << "each shuffles its own files";
  random::set_seed(1);
  EXPECT_EQ(refusal(Dataset::range(9).shuffle(3).batch(2)), "");
  EXPECT_NE(refusal(shuffled), "") << "it was made before there was a seed";
}

TEST(AutoShard, AnOrderThatWorkersDoNotShareIsRefused) {
  const auto same = [](const Tensor& i) { return i; };
  EXPECT_EQ(refusal(Dataset::range(9).shuffle(3, {.seed = 1})), "");
  EXPECT_THAT(refusal(Dataset::range(9).map(same, {.num_parallel_calls = 2, .deterministic = false})),
              AllOf(HasSubstr("map ["), HasSubstr("as they become ready")));
  EXPECT_THAT(
      refusal(Dataset::range(9).map(same, {.num_parallel_calls = 2}).with_options({.deterministic = false})),
      HasSubstr("map ["));
  EXPECT_EQ(refusal(Dataset::range(9).map(same, {.num_parallel_calls = 2})), "");
}

TEST(AutoShard, ExplainShowsWhoReadsWhat) {
  const TestFolder folder("auto_shard");
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) {
    names.push_back((folder / (std::to_string(i) + ".txt")).string());
    std::ofstream(names.back()) << "a\nb\n";
  }
  const auto shown = [](const Dataset& data) { return to_text(explain(data)); };
  EXPECT_THAT(shown(TextLineDataset(names).auto_shard(4, 1)),
              HasSubstr("2 of 8 files: one of 4, from number 1"));
  EXPECT_THAT(shown(TextLineDataset(names).auto_shard(2, 1).auto_shard(2, 1)),
              HasSubstr("2 of 8 files: one of 4, from number 3"));
  EXPECT_THAT(shown(Dataset::list_files({(folder / "*.txt").string()}, {.shuffle = false})
                        .interleave([](const Tensor& name) { return TextLineDataset({text(name)}); })
                        .auto_shard(4, 0)),
              HasSubstr("2 of 8 files: one of 4, from number 0"));
  // By elements: one that reads all, and one that keeps some.
  const std::string shared = shown(TextLineDataset({names[0]}).auto_shard(2, 1));
  EXPECT_THAT(shared, AllOf(HasSubstr("shard(2, 1)"), HasSubstr(names[0])));
}

TEST(AutoShard, SaysWhyFilesCannotBeShared) {
  const auto expect = [](const Dataset& data, const char* message) {
    try {
      with(data, AutoShardPolicy::file).auto_shard(3, 0);
      FAIL() << message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  expect(files({1, 2}).batch(2), "files [");
  expect(files({1, 2}).batch(2), "reads 2 files, which is not enough for 3 workers");
  expect(files({1, 2, 3}).take(2).batch(2), "take [");
  expect(Dataset::range(3), "range [");
  expect(Dataset::range(3), "reads no files");
  EXPECT_THROW(Dataset::range(3).auto_shard(2, 2), Error);
  EXPECT_EQ(together(with(Dataset::range(3), AutoShardPolicy::off), 2), (Numbers{0, 0, 1, 1, 2, 2}));
}

TEST(IgnoreErrors, CountsAndGivesUpAfterTooMany) {
  const LogLevel level = log_level();
  set_log_level(LogLevel::off);
  const Dataset bad = Dataset::range(10).map([](const Tensor& i) {
    require(i.item<int64_t>() % 3 != 1, ErrorCode::io, std::source_location::current(), "bad");
    return i;
  });
  Iterator all(bad.ignore_errors());
  Numbers seen;
  while (const auto element = all.next()) seen.push_back(number(*element));
  EXPECT_EQ(seen, (Numbers{0, 2, 3, 5, 6, 8, 9}));
  EXPECT_EQ(all.pipeline().root()->skipped, 3);
  Iterator few(bad.ignore_errors({.most = 1}));
  EXPECT_TRUE(few.next() && few.next() && few.next());
  EXPECT_THROW(few.next(), Error);
  EXPECT_FALSE(few.next());
  set_log_level(level);
}

}  // namespace
}  // namespace lockstep::data
