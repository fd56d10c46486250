#include "base/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

using testing::HasSubstr;

int marker = 0;

TEST(SharedLibrary, LoadsTheFirstCandidateThatLoadsAndKeepsWhatFailedBefore) {
  const std::vector<std::string> candidates{"/nowhere/libabsent.so", "", "libm.so.6", "libc.so.6"};
  const LoadResult result = load_library(candidates);
  ASSERT_TRUE(result.library.has_value()) << describe(result.failures);
  EXPECT_THAT(result.library->path(), HasSubstr("libm"));
  ASSERT_EQ(result.failures.size(), 2u);
  EXPECT_EQ(result.failures[0].path, "/nowhere/libabsent.so");
  EXPECT_THAT(result.failures[0].reason, HasSubstr("No such file"));
  EXPECT_EQ(result.failures[1].reason, "the path is empty");
}

TEST(SharedLibrary, FindsFunctionsAndSaysWhatIsMissing) {
  const std::vector<std::string> candidates{"libm.so.6"};
  LoadResult result = load_library(candidates);
  ASSERT_TRUE(result.library.has_value());
  const SharedLibrary library = std::move(*result.library);
  const auto cosine = library.symbol<double(double)>("cos");
  ASSERT_TRUE(cosine) << cosine.error;
  EXPECT_EQ(cosine.address(0.0), 1.0);
  const auto absent = library.symbol<void()>("lockstep_no_such_symbol");
  EXPECT_FALSE(absent);
  EXPECT_THAT(absent.error, HasSubstr("lockstep_no_such_symbol"));
}

TEST(SharedLibrary, SaysWhyAFileCannotBeLoaded) {
  const std::string path = testing::TempDir() + "lockstep_not_a_library.so";
  std::ofstream(path) << "this is text\n";
  const std::vector<std::string> candidates{path};
  const LoadResult result = load_library(candidates);
  std::filesystem::remove(path);
  EXPECT_FALSE(result.library.has_value());
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].path, path);
  EXPECT_FALSE(result.failures[0].reason.empty());
  EXPECT_EQ(describe(result.failures).find(path), 0u);
}

TEST(SharedLibrary, DescribesAttemptsWithoutRepeatingThePath) {
  const std::vector<LoadAttempt> attempts{{"a.so", "a.so: bad"}, {"b.so", "worse"}};
  EXPECT_EQ(describe(attempts), "a.so: bad; b.so: worse");
}

TEST(SharedLibrary, KnowsTheFolderOfCode) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  EXPECT_EQ(folder_of_code(&marker), program);
  const std::vector<std::string> candidates{"libm.so.6"};
  const LoadResult result = load_library(candidates);
  ASSERT_TRUE(result.library.has_value());
  const auto cosine = result.library->symbol<double(double)>("cos");
  EXPECT_EQ(folder_of_code(reinterpret_cast<const void*>(cosine.address)),
            std::filesystem::canonical(result.library->path()).parent_path().string());
  int on_the_stack = 0;
  EXPECT_EQ(folder_of_code(&on_the_stack), "");
}

}  // namespace
}  // namespace lockstep
