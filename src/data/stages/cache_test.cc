#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "data/element_file.h"
#include "data/elements_test.h"
#include "lockstep/base/log.h"
#include "lockstep/ops/math.h"

namespace lockstep::data {
namespace {

// Counts how often its elements are made.
Dataset counted(std::shared_ptr<int> made, int64_t elements = 5) {
  return Dataset::range(elements).map([made = std::move(made)](const Tensor& i) {
    ++*made;
    return Element(i, Tensor::full(DType::float32, {3}, 0.5));
  });
}

TEST(Cache, MakesEveryElementOnceAfterAWholePass) {
  const auto made = std::make_shared<int>(0);
  const Dataset data = counted(made).cache();
  EXPECT_EQ(numbers(data.take(2)).size(), 2U);
  EXPECT_EQ(*made, 2);
  const auto first = numbers(data);
  EXPECT_EQ(*made, 7);
  EXPECT_EQ(numbers(data), first);
  EXPECT_EQ(numbers(data.repeat(3)).size(), 15U);
  EXPECT_EQ(*made, 7);
}

TEST(Cache, APositionInAWholeCacheIsANumber) {
  const Dataset data = counted(std::make_shared<int>(0), 50).cache();
  Iterator fills(data);
  for (int i = 0; i < 40; ++i) fills.next();
  const size_t filling = fills.save().size();
  numbers(data);
  Iterator reads(data);
  for (int i = 0; i < 40; ++i) reads.next();
  EXPECT_LT(reads.save().size(), 8U);
  EXPECT_GT(filling, 40U);
}

TEST(Cache, APassInWhichAnElementFailedIsNotKept) {
  const LogLevel level = log_level();
  set_log_level(LogLevel::off);
  int calls = 0;
  const Dataset data = Dataset::range(3)
                           .map([&](const Tensor& i) {
                             require(++calls != 2, ErrorCode::io, std::source_location::current(), "once");
                             return i;
                           })
                           .cache();
  Iterator iterator(data);
  iterator.next();
  EXPECT_THROW(iterator.next(), Error);
  EXPECT_TRUE(iterator.next());
  EXPECT_FALSE(iterator.next());
  EXPECT_EQ(numbers(data).size(), 3U);
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(numbers(data).size(), 3U);
  EXPECT_EQ(calls, 6);
  set_log_level(level);
}

TEST(Cache, AFileOutlivesTheDatasetAndAHalfWrittenOneCountsForNothing) {
  const TestFolder folder("cache");
  const auto made = std::make_shared<int>(0);
  const std::string name = folder / "train";
  // What a process that was killed leaves behind.
  std::ofstream(name + ".elements.tmp-1-0") << "half";
  {
    Iterator half(counted(made).cache(name));
    half.next();
  }
  EXPECT_FALSE(std::filesystem::exists(name + ".elements"));
  const auto first = numbers(counted(made).cache(name));
  EXPECT_EQ(*made, 6);
  const Dataset again = counted(made).cache(name);
  EXPECT_EQ(numbers(again), first);
  EXPECT_EQ(*made, 6);
  EXPECT_EQ(again.iterator().next()->at(1).tensor().to_vector<float>(), (std::vector<float>{0.5, 0.5, 0.5}));
}

TEST(Snapshot, IsReadByLaterOnesOnceItIsComplete) {
  const TestFolder folder("snapshot");
  const auto made = std::make_shared<int>(0);
  for (const bool compressed : {false, true}) {
    *made = 0;
    const std::string path = folder / (compressed ? "compressed" : "plain");
    const SnapshotOptions options{.shards = 3, .compressed = compressed};
    {
      Iterator half(counted(made, 10).snapshot(path, options));
      half.next();
    }
    EXPECT_TRUE(std::filesystem::is_empty(path));
    EXPECT_EQ(numbers(counted(made, 10).snapshot(path, options)), numbers(Dataset::range(10)));
    EXPECT_EQ(*made, 11);
    EXPECT_EQ(numbers(counted(made, 10).snapshot(path, options)), numbers(Dataset::range(10)));
    EXPECT_EQ(*made, 11);
  }
}

TEST(Snapshot, TheFirstOfTwoThatWriteAtOnceCounts) {
  const TestFolder folder("snapshot");
  const Dataset data = Dataset::range(4).snapshot(folder.path());
  Iterator slow(data);
  slow.next();
  numbers(data);
  const std::string manifest = read_file(folder / "manifest.json");
  while (slow.next()) {
  }
  EXPECT_EQ(read_file(folder / "manifest.json"), manifest);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(ElementFile, NamesDamage) {
  const TestFolder folder("elements");
  const std::string path = folder / "file";
  {
    ElementWriter writer(path, 7, false);
    writer.add(Element::dict(
        {{"a", Tensor::scalar<int64_t>(3)}, {"b", Tensor::from(std::vector<bool>{true, false}, {2})}}));
    writer.add(Tensor::empty(DType::float32, {0, 4}));
    writer.commit();
  }
  {
    ElementReader reader(path);
    EXPECT_EQ(reader.tag(), 7U);
    EXPECT_EQ(reader.next()->at("a").tensor().item<int64_t>(), 3);
    EXPECT_EQ(reader.next()->tensor().shape(), Shape({0, 4}));
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.next());
  }
  const std::string good = read_file(path);
  // Whatever byte is changed and wherever it is cut: an error, or another number of the tag.
  for (size_t at = 0; at < good.size(); ++at) {
    for (const bool cut : {false, true}) {
      std::string bad = good;
      if (cut)
        bad.resize(at);
      else
        bad[at] = static_cast<char>(bad[at] ^ 0x41);
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
      const bool tag = !cut && at >= 8 && at < 16;
      const auto read_all = [&] {
        ElementReader reader(path);
        while (reader.next()) {
        }
      };
      if (tag)
        EXPECT_NO_THROW(read_all());
      else
        EXPECT_THROW(read_all(), Error) << at << (cut ? " cut" : "");
    }
  }
}

}  // namespace
}  // namespace lockstep::data
