#include "cli/run_mutations_test.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/files.h"

namespace lockstep::cli {
namespace {

std::vector<Json> seeds() {
  std::vector<Json> all;
  for (const auto& file :
       std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/src/cli/testdata/run_fuzz"))
    all.push_back(Json::read_file(file.path().string()));
  return all;
}

// Anything but an Error ends the program, or the test.
void mutate(uint64_t first, uint64_t count) {
  std::FILE* out = std::fopen("/dev/null", "w");
  const std::vector<Json> all = seeds();
  ASSERT_FALSE(all.empty());
  const std::string current = ::testing::TempDir() + "run_mutation_" + std::to_string(getpid()) + ".json";
  int carried_out = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Mutation mutation(seed);
    Json json = all[seed % all.size()];
    for (uint64_t i = 0; i <= seed % 3; ++i) json = mutation(json);
    // What stops the program lies there afterwards.
    std::ofstream(current) << json.dump();
    try {
      carried_out += carry_out_or_refuse(json.dump(), out) ? 1 : 0;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << json.dump();
    }
  }
  std::fclose(out);
  std::filesystem::remove(current);
  EXPECT_GT(carried_out, 0) << "not one of them works: the seeds are of no use";
}

TEST(RunMutations, WorkOrAreRefused) { mutate(0, 60); }
TEST(RunMutations, LongWorkOrAreRefused) { mutate(1000, 6000); }

TEST(RunMutations, SeedsWork) {
  std::FILE* out = std::fopen("/dev/null", "w");
  for (const Json& json : seeds()) EXPECT_TRUE(carry_out_or_refuse(json.dump(), out)) << json.dump();
  std::fclose(out);
}

}  // namespace
}  // namespace lockstep::cli
