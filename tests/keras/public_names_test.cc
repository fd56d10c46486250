// Every public class of Keras' modules is there under its name, or docs/keras.md says why it is not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "lockstep/base/json.h"

namespace lockstep::keras {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The words of the public headers; a name that only a comment mentions is not there.
std::set<std::string> declared_names() {
  std::set<std::string> names;
  const std::regex comment("//[^\n]*"), word("[A-Za-z_][A-Za-z0-9_]*");
  for (const auto& entry : fs::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/include/lockstep/keras")) {
    if (entry.path().extension() != ".h") continue;
    const std::string code = std::regex_replace(text_of(entry.path()), comment, "");
    for (auto it = std::sregex_iterator(code.begin(), code.end(), word); it != std::sregex_iterator(); ++it)
      names.insert(it->str());
  }
  return names;
}

// The rows "| `Name`, `Other` | why |" under "## What is left out".
std::map<std::string, std::string> left_out() {
  const std::string page = text_of(LOCKSTEP_SOURCE_DIR "/docs/keras.md");
  const size_t begin = page.find("## What is left out");
  const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  std::map<std::string, std::string> reasons;
  const std::regex row("\n\\| (`[^|]*) \\| ([^|]*) \\|"), name("`([A-Za-z0-9]+)`");
  for (auto it = std::sregex_iterator(section.begin(), section.end(), row); it != std::sregex_iterator();
       ++it) {
    const std::string names = (*it)[1];
    for (auto n = std::sregex_iterator(names.begin(), names.end(), name); n != std::sregex_iterator(); ++n)
      reasons[(*n)[1]] = (*it)[2];
  }
  return reasons;
}

TEST(PublicNames, OfKerasAreThereOrLeftOutForAReason) {
  const Json recorded = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/public_names.json");
  const std::set<std::string> declared = declared_names();
  const std::map<std::string, std::string> missing = left_out();
  ASSERT_FALSE(missing.empty());
  std::set<std::string> of_keras;
  size_t kinds = 0;
  for (const auto& [kind, names] : recorded.members()) {
    if (!names.is_list()) continue;
    ++kinds;
    for (const Json& name : names.items()) {
      const std::string& text = name.as_string();
      of_keras.insert(text);
      EXPECT_NE(declared.contains(text), missing.contains(text))
          << "keras." << kind << "." << text
          << " must be declared under include/lockstep/keras or stand in the table "
          << "of docs/keras.md, and not in both";
    }
  }
  EXPECT_EQ(kinds, 9u);
  for (const auto& [name, reason] : missing) {
    EXPECT_TRUE(of_keras.contains(name)) << name << " is left out, but Keras has no such class";
    EXPECT_GT(reason.size(), 10u) << name;
  }
}

}  // namespace
}  // namespace lockstep::keras
