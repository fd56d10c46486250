#include <gtest/gtest.h>

#include <algorithm>

#include "data/elements_test.h"
#include "data/node.h"
#include "data/pipeline.h"
#include "lockstep/base/log.h"

namespace lockstep::data {
namespace {

using Numbers = std::vector<int64_t>;

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
  const Dataset data = files({1, 2, 3, 4, 5}).shuffle(7).batch(3);
  EXPECT_EQ(numbers(files({1, 2, 3}).auto_shard(2, 1)), numbers(files({2})));
  EXPECT_EQ(together(data, 2), sorted(data));
  EXPECT_EQ(together(data, 5), sorted(data));
  // Each worker has files of its own: no file's numbers are in two shares.
  for (const int64_t one : numbers(data.auto_shard(5, 2))) EXPECT_EQ(one / 10, 3);
}

TEST(AutoShard, SharesElementsWhereThereAreNot) {
  for (const Dataset& data : {
           files({1, 2}).shuffle(5).batch(3),
           Dataset::range(20).shuffle(5).repeat(2),
           Dataset::range(20).take(7).batch(2),
           Dataset::range(20).skip(3).map([](const Tensor& i) { return i; }),
           Dataset::range(10).window(3, [](const Dataset& window) { return window; }, {.shift = 1}),
           Dataset::zip({Dataset::range(9), Dataset::range(9)}).batch(2),
           Dataset::range(4).flat_map([](const Tensor&) { return Dataset::range(3); }),
           Dataset::range(9).concatenate(Dataset::range(5)).cache().batch(2),
           with(files({1, 2, 3, 4}).batch(2), AutoShardPolicy::data),
       })
    EXPECT_EQ(together(data, 3), sorted(data));
  // Dropped before anything is done to it: batches are of one worker's elements.
  EXPECT_EQ(lists(Dataset::range(8).batch(2).auto_shard(2, 1)), (std::vector<Numbers>{{1, 3}, {5, 7}}));
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
  expect(files({1, 2}).batch(2), "does not read as many files as there are workers");
  expect(files({1, 2, 3}).take(2).batch(2), "take [");
  expect(Dataset::range(3), "range [");
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
