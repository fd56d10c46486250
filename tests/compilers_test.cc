// What compilers say to programs that use the public headers: nothing to good ones, and to bad ones what is
// wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr const char* kRoot = LOCKSTEP_SOURCE_DIR;

// The output of a command, and whether it ended well.
struct Outcome {
  bool ok = false;
  std::string text;
};
Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  while (const size_t read = fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), read);
  outcome.ok = pclose(pipe) == 0;
  return outcome;
}

bool is_there(const std::string& compiler) { return run("command -v " + compiler).ok; }

Outcome compile(const std::string& compiler, const std::string& file) {
  return run(compiler + " -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I" + kRoot + "/include " + file);
}

TEST(Compilers, Clang16TakesAProgramWithAllPublicHeaders) {
  if (!is_there("clang++-16")) GTEST_SKIP() << "there is no clang++-16 on this machine";
  const Outcome outcome = compile("clang++-16", std::string(kRoot) + "/examples/subclassed_model.cc");
  EXPECT_TRUE(outcome.ok) << outcome.text;
}

// --- programs that do not compile --------------------------------------------------------------------------

class CompilersLong : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!is_there(GetParam())) GTEST_SKIP() << "there is no " << GetParam() << " on this machine";
  }

  // The compiler's words on a program with this body.
  std::string refusal(const std::string& body) const {
    const std::string file = testing::TempDir() + "lockstep_refused_" + std::to_string(getpid()) + ".cc";
    std::ofstream(file) << "#include <lockstep/lockstep.h>\nnamespace tf = lockstep;\nint main() {\n"
                           "  tf::keras::Sequential model;\n"
                        << body << "\n}\n";
    const Outcome outcome = compile(GetParam(), file);
    std::filesystem::remove(file);
    EXPECT_FALSE(outcome.ok) << body;
    return outcome.text;
  }
};

TEST_P(CompilersLong, NameAMisspeltOption) {
  EXPECT_THAT(refusal("tf::keras::layers::Dense(3, {.activaton = \"relu\"});"), HasSubstr("activaton"));
}

TEST_P(CompilersLong, NameAnOptionOutOfOrder) {
  const std::string words =
      refusal("model.fit(tf::Tensor(), tf::Tensor(), {.epochs = 2, .batch_size = 32});");
  EXPECT_THAT(words, HasSubstr("batch_size"));
  EXPECT_THAT(words, HasSubstr("order"));
}

TEST_P(CompilersLong, SayThatATracedFunctionReturnsTensors) {
  const char* const says = "returns tensors";
  EXPECT_THAT(refusal("tf::distribute::Strategy().run([](const tf::Tensor& x) { return x.item<float>(); }, "
                      "tf::ones({2}));"),
              HasSubstr(says));
  EXPECT_THAT(refusal("tf::function([](const tf::Tensor&) { return 1.0F; })(tf::ones({2}));"),
              HasSubstr(says));
}

TEST_P(CompilersLong, SayThatAComparisonIsNoBool) {
  EXPECT_THAT(refusal("if (tf::ones({2}) == tf::ones({2})) return 1;"),
              AnyOf(HasSubstr("to ‘bool’"), HasSubstr("to 'bool'")));
}

INSTANTIATE_TEST_SUITE_P(All, CompilersLong, testing::Values("g++", "clang++-16"),
                         [](const auto& info) { return info.param[0] == 'g' ? "Gcc" : "Clang16"; });

}  // namespace
