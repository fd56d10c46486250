// Every source and transformation of Dataset, put through the same trials. A method of Dataset without a row
// fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "base/philox.h"
#include "data/node.h"
#include "graph/eager.h"
#include "lockstep/base/log.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/files.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// --- what goes in ---

constexpr int64_t kElements = 10;
constexpr int64_t kBad = 5;  // the element that the failing source cannot make
constexpr const char* kFailure = "this one is bad";

// The first number of an element, whatever else it holds.
int64_t value(const Element& element) { return element.flat()[0].to_vector<int64_t>().at(0); }

enum class Source { plain, dict, failing };

Dataset source_of(Source kind) {
  const Dataset numbers = Dataset::range(kElements);
  if (kind == Source::plain) return numbers;
  if (kind == Source::dict)
    return numbers.map([](const Tensor& i) {
      const Tensor half = Tensor::full(DType::float32, {2}, static_cast<double>(i.item<int64_t>()) / 2);
      return Element::dict({{"number", i}, {"halves", half}});
    });
  return numbers.map([](const Tensor& i) {
    if (i.item<int64_t>() == kBad) throw std::runtime_error(kFailure);
    return i;
  });
}

std::string fresh_path() {
  static std::atomic<int> number{0};
  static const struct Folder {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("lockstep_harness_" + std::to_string(getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return (folder.path / std::to_string(number++)).string();
}

// --- the rows ---

struct Row {
  std::string name;
  // The same dataset every time it is called with the same arguments.
  std::function<Dataset(const Dataset& source, int64_t calls)> make;
  bool reshuffles = false;  // another pass gives something else
  bool keeps = true;        // elements have the structure of the source's
  bool ordered = true;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Element noisy(const Element& element) {
  Element changed = element;
  changed.flat()[0] =
      changed.flat()[0] * int64_t{1000} + random::uniform({}, {.maxval = 1000, .dtype = DType::int64});
  return changed;
}
Element shifted(const Element& element) {
  Element changed = element;
  changed.flat()[0] = changed.flat()[0] + int64_t{100};
  return changed;
}
// So many copies of an element.
Dataset copies(const Element& element, int64_t count) { return Dataset::from_tensors(element).repeat(count); }
Element sequence(const Element& element) {
  Element changed = element;
  changed.flat()[0] =
      Tensor::full(DType::int64, {value(element) % 5 + 1}, static_cast<double>(value(element)));
  return changed;
}

std::vector<Row> rows() {
  const auto vary = [](const Element& element) { return copies(element, value(element) % 4); };
  return {
      // Sources.
      {.name = "from_tensor_slices",
       .make =
           [](const Dataset&, int64_t) {
             return Dataset::from_tensor_slices(
                 {Tensor::from<int64_t>({1, 2, 3, 4, 5, 6}, {3, 2}),
                  Element::dict({{"a", Tensor::from<float>({7, 8, 9}, {3})}})});
           },
       .keeps = false},
      {.name = "from_tensors",
       .make =
           [](const Dataset&, int64_t) {
             return Dataset::from_tensors(Tensor::from<float>({1, 2}, {2}));
           },
       .keeps = false},
      {.name = "range",
       .make = [](const Dataset&, int64_t) { return Dataset::range(20, 5, -3); },
       .keeps = false},
      {.name = "from_generator",
       .make =
           [](const Dataset&, int64_t) {
             return Dataset::from_generator([] {
               return [i = int64_t{0}]() mutable -> std::optional<Element> {
                 if (i == 7) return {};
                 return Element(Tensor::scalar<int64_t>(i++));
               };
             });
           },
       .keeps = false},
      {.name = "list_files",
       .make =
           [](const Dataset&, int64_t) {
             return Dataset::list_files({std::string(LOCKSTEP_SOURCE_DIR) + "/src/data/stages/*.cc"},
                                        {.seed = 2})
                 .take(8);
           },
       .reshuffles = true,
       .keeps = false},
      {.name = "tfrecord_files",
       .make =
           [](const Dataset&, int64_t) {
             const std::string folder = LOCKSTEP_SOURCE_DIR "/src/data/testdata/tensorflow/";
             return TFRecordDataset(
                 {folder + "plain.tfrecord", folder + "gzip.tfrecord", folder + "zlib.tfrecord"},
                 {.num_parallel_reads = 2});
           },
       .keeps = false},
      // Elements one by one.
      {.name = "map",
       .make = [](const Dataset& in, int64_t calls) { return in.map(noisy, {.num_parallel_calls = calls}); },
       .reshuffles = true},
      {.name = "map_unordered",
       .make =
           [](const Dataset& in, int64_t calls) {
             return in.map(shifted, {.num_parallel_calls = calls, .deterministic = false});
           },
       .ordered = false},
      {.name = "filter",
       .make = [](const Dataset& in,
                  int64_t) { return in.filter([](const Element& e) { return value(e) % 3 != 1; }); }},
      {.name = "filter_rows",
       .make =
           [](const Dataset&, int64_t) {
             return Dataset::from_tensor_slices(Tensor::from<int64_t>({1, 2, 3, 4, 5}, {5}))
                 .filter([](const Tensor& i) { return i.item<int64_t>() != 3; })
                 .shuffle(3, {.seed = 1, .reshuffle_each_iteration = false})
                 .batch(2);
           },
       .keeps = false},
      {.name = "take_while",
       .make = [](const Dataset& in,
                  int64_t) { return in.take_while([](const Element& e) { return value(e) < 8; }); }},
      {.name = "scan",
       .make =
           [](const Dataset& in, int64_t) {
             return in.scan(Tensor::scalar<int64_t>(0), [](const Element& state, const Element& element) {
               const Tensor sum = state.tensor() + element.flat()[0];
               return std::pair<Element, Element>(sum, Element(sum, element));
             });
           },
       .keeps = false},
      {.name = "enumerate",
       .make = [](const Dataset& in, int64_t) { return in.enumerate(3); },
       .keeps = false},
      // Datasets of datasets.
      {.name = "flat_map", .make = [vary](const Dataset& in, int64_t) { return in.flat_map(vary); }},
      {.name = "flat_map_random",
       .make =
           [](const Dataset& in, int64_t) {
             return in.flat_map([](const Element& e) { return copies(e, 3).map(noisy).shuffle(3); });
           },
       .reshuffles = true},
      {.name = "interleave",
       .make = [vary](const Dataset& in,
                      int64_t) { return in.interleave(vary, {.cycle_length = 3, .block_length = 2}); }},
      {.name = "interleave_parallel",
       .make =
           [vary](const Dataset& in, int64_t calls) {
             return in.interleave(vary, {.cycle_length = 3, .num_parallel_calls = calls});
           }},
      {.name = "interleave_random",
       .make =
           [](const Dataset& in, int64_t calls) {
             return in.interleave(
                 [calls](const Element& e) {
                   return copies(e, 3).map(noisy, {.num_parallel_calls = calls}).shuffle(3).prefetch(2);
                 },
                 {.block_length = 2, .num_parallel_calls = calls});
           },
       .reshuffles = true},
      {.name = "interleave_unordered",
       .make =
           [vary](const Dataset& in, int64_t calls) {
             return in.interleave(vary, {.cycle_length = 3,
                                         .num_parallel_calls = std::max<int64_t>(calls, 2),
                                         .deterministic = false});
           },
       .ordered = false},
      {.name = "interleave_of_failing",
       .make =
           [](const Dataset& in, int64_t calls) {
             return in.interleave(
                 [](const Element& e) {
                   require(value(e) != 3, ErrorCode::invalid_argument, std::source_location::current(),
                           "no dataset");
                   return copies(e, 3).enumerate().map([](const Element& pair) {
                     require(value(pair) + value(pair[1]) != 5, ErrorCode::invalid_argument,
                             std::source_location::current(), "no element");
                     return pair[1];
                   });
                 },
                 {.cycle_length = 4, .num_parallel_calls = calls});
           }},
      {.name = "window",
       .make =
           [](const Dataset& in, int64_t) {
             return in.window(3, [](const Dataset& window) { return window.batch(3); },
                              {.shift = 2, .stride = 2});
           }},
      {.name = "window_gaps",
       .make =
           [](const Dataset& in, int64_t) {
             return in.window(2, [](const Dataset& window) { return window; },
                              {.shift = 4, .drop_remainder = true});
           }},
      {.name = "group_by_window",
       .make =
           [](const Dataset& in, int64_t) {
             return in.group_by_window([](const Element& e) { return value(e) % 3; },
                                       [](int64_t, const Dataset& window) { return window.batch(2); }, 3);
           }},
      {.name = "bucket_by_sequence_length",
       .make =
           [](const Dataset& in, int64_t) {
             return in.map(sequence).bucket_by_sequence_length(
                 [](const Element& e) { return e.flat()[0].shape()[0]; }, {3, 5}, {2, 3, 2});
           }},
      // Batches.
      {.name = "batch",
       .make =
           [](const Dataset& in, int64_t calls) {
             return in.batch(5, {.drop_remainder = true, .num_parallel_calls = calls});
           }},
      {.name = "padded_batch",
       .make = [](const Dataset& in,
                  int64_t) { return in.map(sequence).padded_batch(5, {.padding_values = {-1}}); }},
      {.name = "unbatch", .make = [](const Dataset& in, int64_t) { return in.batch(5).unbatch().batch(2); }},
      {.name = "rebatch", .make = [](const Dataset& in, int64_t) { return in.batch(5).rebatch(3); }},
      {.name = "rebatch_rows",
       .make =
           [](const Dataset&, int64_t) {
             return Dataset::from_tensor_slices(Tensor::from<int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}))
                 .rebatch(2);
           },
       .keeps = false},
      // Order and number.
      {.name = "shuffle",
       .make = [](const Dataset& in, int64_t) { return in.shuffle(5, {.seed = 3}); },
       .reshuffles = true},
      {.name = "shuffle_once",
       .make = [](const Dataset& in,
                  int64_t) { return in.shuffle(50, {.seed = 3, .reshuffle_each_iteration = false}); }},
      {.name = "repeat",
       .make = [](const Dataset& in, int64_t) { return in.map(noisy).shuffle(4, {.seed = 3}).repeat(3); },
       .reshuffles = true},
      {.name = "repeat_for_ever", .make = [](const Dataset& in, int64_t) { return in.repeat(); }},
      {.name = "take", .make = [](const Dataset& in, int64_t) { return in.take(7); }},
      {.name = "skip", .make = [](const Dataset& in, int64_t) { return in.skip(4); }},
      {.name = "shard", .make = [](const Dataset& in, int64_t) { return in.shard(3, 1); }},
      {.name = "auto_shard",
       .make = [](const Dataset& in,
                  int64_t) { return in.shuffle(4, {.seed = 1}).batch(2).auto_shard(2, 1); },
       .reshuffles = true},
      {.name = "concatenate",
       .make = [](const Dataset& in, int64_t) { return in.take(5).concatenate(in.map(shifted)); }},
      {.name = "zip",
       .make =
           [](const Dataset& in, int64_t) {
             return Dataset::zip({in, in.skip(2), Dataset::range(100)});
           },
       .keeps = false},
      {.name = "choose_from_datasets",
       .make =
           [](const Dataset& in, int64_t) {
             const Dataset choice = Dataset::range(60).map([](const Tensor& i) {
               return Tensor::scalar<int64_t>(i.item<int64_t>() * i.item<int64_t>() % 3);
             });
             return Dataset::choose_from_datasets({in, in.map(shifted), in.take(3)}, choice, false);
           }},
      {.name = "sample_from_datasets",
       .make =
           [](const Dataset& in, int64_t) {
             return Dataset::sample_from_datasets({in, in.map(shifted), in.take(2)},
                                                  {.weights = {2, 1, 0.5}, .seed = 7});
           },
       .reshuffles = true},
      // Speed.
      {.name = "cache", .make = [](const Dataset& in, int64_t) { return in.map(noisy).cache(); }},
      {.name = "cache_repeated",
       .make =
           [](const Dataset& in, int64_t) {
             return in.shuffle(6, {.seed = 2})
                 .ignore_errors({.log_warning = false})
                 .cache()
                 .shuffle(3, {.seed = 1})
                 .repeat(2);
           },
       .reshuffles = true},
      {.name = "cache_file",
       .make = [](const Dataset& in, int64_t) { return in.map(noisy).cache(fresh_path()); }},
      {.name = "snapshot",
       .make =
           [](const Dataset& in, int64_t) {
             return in.map(noisy)
                 .ignore_errors({.log_warning = false})
                 .snapshot(fresh_path(), {.shards = 2, .compressed = true})
                 .repeat(2);
           }},
      {.name = "prefetch",
       .make = [](const Dataset& in, int64_t) { return in.map(noisy).prefetch(3); },
       .reshuffles = true},
      {.name = "prefetch_to_device",
       .make = [](const Dataset& in,
                  int64_t) { return in.batch(2).prefetch_to_device(device_by_name("/CPU:0")); }},
      // The rest.
      {.name = "ignore_errors",
       .make = [](const Dataset& in, int64_t) { return in.ignore_errors({.log_warning = false}); }},
      {.name = "with_options",
       .make =
           [](const Dataset& in, int64_t calls) {
             return in.map(shifted, {.num_parallel_calls = calls}).with_options({.threads = 2});
           }},
      // Together.
      {.name = "training",
       .make =
           [](const Dataset&, int64_t calls) {
             std::vector<float> values(48);
             for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
             std::vector<int64_t> labels(16);
             for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i);
             return Dataset::from_tensor_slices(
                        {Tensor::from<float>(values, {16, 3}), Tensor::from<int64_t>(labels, {16})})
                 .shuffle(8, {.seed = 1})
                 .map([](const Tensor& x, const Tensor& y) { return Element(x + random::uniform({3}), y); },
                      {.num_parallel_calls = calls})
                 .batch(3, {.num_parallel_calls = calls})
                 .repeat(2)
                 .prefetch();
           },
       .reshuffles = true,
       .keeps = false},
      {.name = "deep",
       .make =
           [](const Dataset& in, int64_t calls) {
             const Dataset mixed = in.skip(3)
                                       .batch(2, {.num_parallel_calls = calls})
                                       .unbatch()
                                       .shuffle(5, {.seed = 4})
                                       .interleave(
                                           [calls](const Element& e) {
                                             return copies(e, 2).map(noisy, {.num_parallel_calls = calls});
                                           },
                                           {.cycle_length = 2, .num_parallel_calls = calls})
                                       .prefetch(2);
             return mixed.repeat(2).map(shifted, {.num_parallel_calls = calls}).prefetch();
           },
       .reshuffles = true},
  };
}

// --- what comes out ---

constexpr size_t kMost = 60;  // of a dataset that does not end

const std::string kError = "error: ";

// Bit for bit.
std::string text_of(const Element& element) {
  std::ostringstream out;
  out << element.spec();
  for (const Tensor& tensor : element.flat()) {
    const Tensor dense = contiguous(tensor, std::source_location::current());
    out.put('|').write(static_cast<const char*>(dense.impl()->data()),
                       static_cast<std::streamsize>(dense.spec().bytes()));
  }
  return out.str();
}

// The next element, or the error in its place; nothing at the end.
std::optional<std::string> step(Iterator& iterator) {
  try {
    Element element;
    if (!iterator.next(element)) return {};
    return text_of(element);
  } catch (const Error& error) {
    return kError + error.message() + (error.notes().empty() ? "" : " " + error.notes().back());
  }
}

std::vector<std::string> rest(Iterator& iterator, size_t most = kMost) {
  std::vector<std::string> all;
  while (all.size() < most) {
    std::optional<std::string> one = step(iterator);
    if (!one) break;
    all.push_back(*std::move(one));
  }
  return all;
}

class DatasetHarness : public testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() { set_log_level(LogLevel::error); }
  static void TearDownTestSuite() { set_log_level(LogLevel::info); }
  // A dataset of its own, equal to all others made so.
  static Dataset make(Source kind, int64_t calls) {
    random::set_seed(11);
    return GetParam().make(source_of(kind), calls);
  }
  static std::vector<std::string> in_order(std::vector<std::string> all) {
    if (!GetParam().ordered) std::sort(all.begin(), all.end());
    return all;
  }
};

constexpr Source kSources[] = {Source::plain, Source::dict, Source::failing};

TEST_P(DatasetHarness, GoesOnFromEveryPosition) {
  const std::pair<Source, int64_t> cases[] = {{Source::plain, 3}, {Source::dict, 1}, {Source::failing, 3}};
  for (const auto& [kind, calls] : cases) {
    Iterator undisturbed(make(kind, calls));
    const std::vector<std::string> all = rest(undisturbed);
    for (size_t at = 0; at <= all.size() && at + 5 < kMost; ++at) {
      SCOPED_TRACE(testing::Message()
                   << "source " << static_cast<int>(kind) << ", " << calls << " calls, position " << at);
      const Dataset dataset = make(kind, calls);
      Iterator iterator(dataset);
      std::vector<std::string> given = rest(iterator, at);
      const IteratorState state = iterator.save();
      const auto expect_goes_on = [&](std::vector<std::string> seen, Iterator& from) {
        const std::vector<std::string> last = rest(from, kMost - seen.size());
        seen.insert(seen.end(), last.begin(), last.end());
        ASSERT_EQ(in_order(std::move(seen)), in_order(all));
      };
      // The one that was saved, another one of an equal dataset, and one of the same that stood elsewhere.
      expect_goes_on(given, iterator);
      Iterator equal(make(kind, calls));
      equal.restore(state);
      const size_t more = at % 3;
      std::vector<std::string> further = given;
      for (const std::string& one : rest(equal, more)) further.push_back(one);
      const IteratorState again = equal.save();
      expect_goes_on(further, equal);
      Iterator twice(make(kind, calls));
      twice.restore(again);
      expect_goes_on(further, twice);
      Iterator same(dataset);
      step(same);
      same.restore(state);
      expect_goes_on(given, same);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DatasetHarness, GivesTheSameOnAnyNumberOfThreads) {
  for (const Source kind : kSources) {
    Iterator alone(make(kind, 1));
    const std::vector<std::string> expected = in_order(rest(alone));
    for (const int64_t calls : {int64_t{2}, int64_t{3}, int64_t{8}, AUTOTUNE}) {
      Iterator iterator(make(kind, calls));
      EXPECT_EQ(in_order(rest(iterator)), expected) << calls << " threads, source " << static_cast<int>(kind);
    }
  }
}

TEST_P(DatasetHarness, PassesCardinalityAndSpecAgree) {
  for (const Source kind : {Source::plain, Source::dict}) {
    const Dataset dataset = make(kind, 2);
    const ElementSpec spec = dataset.element_spec();
    Iterator first(dataset), second(dataset);
    const std::vector<std::string> all = rest(first);
    // element_spec() looked at the dataset without being a pass over it.
    Iterator fresh(make(kind, 2));
    EXPECT_EQ(in_order(rest(fresh)), in_order(all));
    if (GetParam().reshuffles)
      EXPECT_NE(rest(second), all);
    else
      EXPECT_EQ(in_order(rest(second)), in_order(all));
    const int64_t cardinality = dataset.cardinality();
    if (cardinality >= 0) {
      EXPECT_EQ(static_cast<int64_t>(all.size()), cardinality);
    }
    if (cardinality == INFINITE_CARDINALITY) {
      EXPECT_EQ(all.size(), kMost);
    }
    if (GetParam().keeps) {
      EXPECT_EQ(spec.structure, source_of(kind).element_spec().structure);
    }
    // What stages say without a look holds for every element.
    const std::optional<ElementSpec> known = dataset.node()->spec();
    Iterator third(dataset);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].starts_with(kError)) {
        EXPECT_THROW(third.next(), Error);
        continue;
      }
      const ElementSpec given = third.next()->spec();
      EXPECT_EQ(given.structure, spec.structure);
      for (size_t leaf = 0; known && leaf < given.tensors.size(); ++leaf) {
        const TensorSpec &said = known->tensors[leaf], &is = given.tensors[leaf];
        EXPECT_EQ(said.dtype, is.dtype);
        ASSERT_EQ(said.shape.rank(), is.shape.rank()) << *known << " and " << given;
        for (int axis = 0; axis < is.shape.rank(); ++axis)
          EXPECT_TRUE(said.shape[axis] < 0 || said.shape[axis] == is.shape[axis])
              << *known << " and " << given;
      }
    }
  }
}

TEST_P(DatasetHarness, AnErrorComesOnceAPassAndTheRestFollows) {
  Iterator iterator(make(Source::failing, 3));
  bool ended = false;
  size_t good = 0;
  for (size_t i = 0; i < 2 * kMost && !ended; ++i) {
    try {
      ended = !iterator.next();
      good += !ended;
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool known = text.find(kFailure) != std::string::npos || text.find("no ") != std::string::npos;
      EXPECT_TRUE(known) << text;
      EXPECT_NE(text.find("in element "), std::string::npos) << text;
    }
  }
  EXPECT_GT(good, 0U);
  if (make(Source::plain, 3).cardinality() != INFINITE_CARDINALITY) {
    EXPECT_TRUE(ended);
  }
}

// The source takes its time, so that what is cancelled waits.
TEST_P(DatasetHarness, StopsWheneverItIsToldTo) {
  random::set_seed(11);
  const Dataset slow = Dataset::range(kElements).map([](const Tensor& i) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    return i;
  });
  const Dataset dataset = GetParam().make(slow, 3).repeat();
  for (uint64_t trial = 0; trial < 25; ++trial) {
    const std::chrono::microseconds moment(Philox::block(5, 0, trial)[0] % 3000);
    Iterator iterator(dataset);
    std::thread consumer([&] {
      while (step(iterator)) {
      }
    });
    std::this_thread::sleep_for(moment);
    iterator.cancel();
    consumer.join();
    EXPECT_FALSE(iterator.next());
    // Another one goes away in the middle of everything.
    Iterator left(dataset);
    for (uint64_t i = 0; i < trial % 4; ++i) step(left);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, DatasetHarness, testing::ValuesIn(rows()),
                         [](const testing::TestParamInfo<Row>& info) { return info.param.name; });

// --- completeness ---

void collect_names(const Node& node, std::set<std::string>& names) {
  names.insert(node.name());
  for (const NodePtr& input : node.inputs()) collect_names(*input, names);
}

TEST(DatasetHarnessRows, HaveEveryMethodOfDataset) {
  std::set<std::string> in_rows;
  for (const Row& row : rows()) collect_names(*row.make(source_of(Source::plain), 2).node(), in_rows);
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/include/lockstep/data/dataset.h");
  const std::regex method(R"(^  (?:static )?Dataset (\w+)\()");
  std::set<std::string> methods;
  for (std::string line; std::getline(file, line) && line != "class Iterator {";)
    if (std::smatch match; std::regex_search(line, match, method) && !match[1].str().ends_with("_elements"))
      methods.insert(match[1]);
  ASSERT_GT(methods.size(), 30U);
  // They make no node of their own, or one of another name.
  for (const char* name : {"apply", "auto_shard"}) methods.erase(name);
  methods.erase("with_options");
  methods.insert("options");
  for (const std::string& name : methods) EXPECT_TRUE(in_rows.contains(name)) << name << " has no row";
}

}  // namespace
}  // namespace lockstep::data
