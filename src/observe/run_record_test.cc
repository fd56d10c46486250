#include "lockstep/observe/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/host.h"
#include "observe/record_mutations_test.h"
#include "observe/record_writer.h"

namespace lockstep::observe {
namespace {

using testing::HasSubstr;

std::string refusal(const Json& json) {
  try {
    record_from_json(json);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

class Folder {
 public:
  Folder() : path_(std::filesystem::path(testing::TempDir()) / ("record_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(RunRecord, IsReadAsItWasWritten) {
  const RunRecord record = sample_record();
  const Folder folder;
  write_record(record, folder.path());
  const RunRecord read = read_record(folder.path());
  EXPECT_EQ(to_json(read), to_json(record));
  EXPECT_EQ(to_json(read_record(folder.path() + "/record.json")), to_json(record));
  EXPECT_EQ(read.state, RunRecord::State::interrupted);
  ASSERT_EQ(read.curves.size(), 2u);
  EXPECT_TRUE(std::isnan(read.curves[1].values[0])) << "what is no number comes back as none";
  EXPECT_EQ(read.replicas[1].intervals[1].times_ns, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read.timeline->spans[0].duration_ns, 500);
  EXPECT_EQ(read.input->root.inputs[0].name, "range");
}

TEST(RunRecord, MembersOfALaterVersionAreLeftOut) {
  Json json = to_json(sample_record());
  json.set("scaling", Json::List{1, 2});
  EXPECT_EQ(to_json(record_from_json(json)), to_json(sample_record()));
}

TEST(RunRecord, WhatIsWrongIsNamedWithItsPlace) {
  const Json right = to_json(sample_record());
  const auto changed = [&](auto change) {
    Json json = right;
    change(json);
    return refusal(json);
  };
  EXPECT_THAT(refusal(Json::List{}), HasSubstr("should be an object, and is a list"));
  EXPECT_THAT(refusal(Json::object()), HasSubstr("not the record of a run"));
  EXPECT_THAT(changed([](Json& j) { j.set("schema", 2); }),
              HasSubstr("schema: is 2, and this version reads 1"));
  EXPECT_THAT(changed([](Json& j) { j.erase("curves"); }), HasSubstr("has no member \"curves\""));
  EXPECT_THAT(changed([](Json& j) { j.set("state", "gone"); }), HasSubstr("\"gone\""));
  EXPECT_THAT(changed([](Json& j) { j.set("step", -1); }), HasSubstr("cannot be negative"));
  EXPECT_THAT(changed([](Json& j) { j.set("step", 1.5); }), HasSubstr("step: should be a whole number"));
  EXPECT_THAT(changed([](Json& j) { j.set("history_epochs", Json::List{0}); }),
              HasSubstr("has 2 entries, and should have one for each of 1 epochs"));
  EXPECT_THAT(changed([](Json& j) { j.set("categories", Json::List{"compute"}); }),
              HasSubstr("replicas[0].times_ms: has 2 entries"));
  EXPECT_THAT(changed([](Json& j) { j["timeline"].set("rows", Json::list()); }),
              HasSubstr("timeline.spans[0]: is in row 0, which does not exist"));
  EXPECT_THAT(changed([](Json& j) {
                Json::List spans;
                spans.emplace_back(Json::List{0, 0, 0});
                j["timeline"].set("spans", std::move(spans));
              }),
              HasSubstr("timeline.spans[0]: has 3 numbers, and should have 5"));
  EXPECT_THAT(changed([](Json& j) { j["kernels"].set("steps", 0); }),
              HasSubstr("kernels.steps: should be 1 or more"));
  EXPECT_THAT(changed([](Json& j) {
                j.set("versions", Json::object({{"lockstep", 1}}));
              }),
              HasSubstr("versions.lockstep: should be text, and is a number"));
}

TEST(RunRecord, ReadingNamesTheFileAndHowToGetOne) {
  const Folder folder;
  make_folders(folder.path());
  try {
    read_record(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.message(),
                HasSubstr("there is no record.json in the folder \"" + folder.path() + "\""));
    EXPECT_THAT(error.message(), HasSubstr("lockstep train --output"));
  }
  std::ofstream(folder.path() + "/record.json") << "{\"schema\": 1, \"state\": ";
  try {
    read_record(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.notes(), testing::Contains(HasSubstr("/record.json")));
  }
}

// Whatever was changed: read to a record that can be written, or refused by an Error.
void mutate(uint64_t first, uint64_t count) {
  const Json right = to_json(sample_record());
  int read = 0, refused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RecordMutation mutation(seed);
    Json json = right;
    for (uint64_t i = 0; i <= seed % 3; ++i) json = mutation(json);
    (read_or_refuse(json.dump()) ? read : refused) += 1;
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}
TEST(RunRecord, MutationsAreReadOrRefused) { mutate(0, 400); }
TEST(RunRecord, LongMutationsAreReadOrRefused) { mutate(10'000, 20'000); }

TEST(RunRecord, WhatCameLaterMayBeMissing) {
  Json json = to_json(sample_record());
  EXPECT_EQ(record_from_json(json).bound, sample_record().bound);
  json.erase("bound");
  json.erase("others_ms");
  EXPECT_EQ(record_from_json(json).bound, "");
  EXPECT_EQ(record_from_json(json).others_ms, 0);
}

TEST(RunRecord, TheCeilingIsThatOfWhatLimitsTheKernel) {
  const RunRecord::Kernels of{.flops_per_second = 100, .bytes_per_second = 10};
  EXPECT_DOUBLE_EQ(*share_of_ceiling({.name = "", .total_ns = 1'000'000'000, .flops = 50, .bytes = 1}, of),
                   0.5);
  EXPECT_DOUBLE_EQ(*share_of_ceiling({.name = "", .total_ns = 1'000'000'000, .flops = 5, .bytes = 8}, of),
                   0.8);
  const RunRecord::Kernels gpu{.flops_per_second = 100, .half_flops_per_second = 1000};
  EXPECT_DOUBLE_EQ(*share_of_ceiling({.name = "", .total_ns = 1'000'000'000, .flops = 50}, gpu), 0.5);
  EXPECT_DOUBLE_EQ(
      *share_of_ceiling({.name = "", .total_ns = 1'000'000'000, .flops = 50, .half_flops = 50}, gpu), 0.05);
  EXPECT_FALSE(share_of_ceiling({.name = "", .total_ns = 1'000'000'000, .flops = 5}, {}).has_value());
  EXPECT_FALSE(share_of_ceiling({.name = "", .total_ns = 0, .flops = 5}, of).has_value());
}

TEST(RunRecord, ARunWhoseProcessIsGoneLooksDead) {
  RunRecord record = sample_record();
  record.state = RunRecord::State::running;
  record.host = host_name();
  record.process = getpid();
  EXPECT_FALSE(looks_dead(record));
  record.process = 0x7ffffffe;  // more than the system gives
  EXPECT_TRUE(looks_dead(record));
  record.host = "another machine";
  EXPECT_FALSE(looks_dead(record)) << "nobody can tell";
}

TEST(RecordWriter, TheLastRecordCounts) {
  const Folder folder;
  RecordWriter writer(folder.path());
  RunRecord record = sample_record();
  for (int64_t step = 0; step < 50; ++step) {
    record.step = step;
    writer.hand_over(record);
  }
  EXPECT_EQ(writer.last().step, 49);
  EXPECT_EQ(read_record(folder.path()).step, 49);
  record.step = 50;
  writer.write(record);
  EXPECT_EQ(read_record(folder.path()).step, 50);
}

TEST(RecordWriter, WhatCannotBeWrittenIsThrownByTheNextCall) {
  const Folder folder;
  std::ofstream(folder.path()) << "no folder";
  RecordWriter writer(folder.path());
  writer.hand_over(sample_record());
  writer.last();
  EXPECT_THROW(writer.hand_over(sample_record()), Error);
  EXPECT_THROW(writer.write(sample_record()), Error);
}

}  // namespace
}  // namespace lockstep::observe
