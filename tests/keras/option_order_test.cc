// C++ wants options in the order in which their struct declares them: that is the order of Keras' signatures,
// which people know.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

#include "lockstep/base/json.h"

namespace lockstep::keras {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const fs::path kHeaders = LOCKSTEP_SOURCE_DIR "/include/lockstep/keras";

std::string code_of(const fs::path& path) {
  std::ifstream file(path);
  return std::regex_replace(std::string(std::istreambuf_iterator<char>(file), {}), std::regex("//[^\n]*"),
                            "");
}

Names matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_token_iterator(text.begin(), text.end(), pattern, 1), std::sregex_token_iterator()};
}

// The members of a struct's body, in order; a macro stands for those that it declares.
Names members(const std::string& body, const std::string& code) {
  Names names;
  for (const std::string& line : matches(body, std::regex("([^;]+);"))) {
    std::smatch found;
    if (std::regex_search(line, found, std::regex("(LOCKSTEP_[A-Z_]+)\\s*$"))) {
      const std::regex definition("#define " + found[1].str() + "[ \\\\]([^#]*?[^\\\\])\n");
      std::smatch macro;
      if (std::regex_search(code, macro, definition))
        for (const std::string& name : members(macro[1].str() + ";", code)) names.push_back(name);
    } else if (std::regex_search(line, found, std::regex("([A-Za-z_0-9]+)\\s*(=[^=]*|\\{[^()]*\\})?\\s*$"))) {
      names.push_back(found[1]);
    }
  }
  return names;
}

// Structs of options by name, those of the header itself first.
std::map<std::string, Names> options_of(const std::string& code) {
  std::map<std::string, Names> all;
  const std::regex structure("struct ([A-Za-z0-9]+Options) (?:: [A-Za-z]+ )?\\{\n([^]*?)\n\\};");
  for (auto it = std::sregex_iterator(code.begin(), code.end(), structure); it != std::sregex_iterator();
       ++it)
    all.emplace((*it)[1], members((*it)[2], code));
  return all;
}

// The names that both have, in the order of the first.
Names common(const Names& ordered, const Names& others) {
  Names both;
  std::copy_if(ordered.begin(), ordered.end(), std::back_inserter(both), [&](const std::string& name) {
    return std::find(others.begin(), others.end(), name) != others.end();
  });
  return both;
}

TEST(OptionOrder, IsThatOfKerasSignatures) {
  const Json recorded = Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/signatures.json");
  const auto keras = [&](const std::string& kind, const std::string& name) -> std::optional<Names> {
    const Json* arguments = recorded.at(kind).find(name);
    if (!arguments) return {};
    Names names;
    for (const Json& argument : arguments->items()) names.push_back(argument.as_string());
    return names;
  };
  size_t compared = 0;
  const auto compare = [&](const std::string& what, const Names& ours, const Names& theirs) {
    // Keras' own order differs between Conv2DTranspose and Conv3DTranspose.
    if (what == "Conv3DTranspose") return;
    ++compared;
    EXPECT_EQ(common(ours, theirs), common(theirs, ours)) << "of " << what;
  };
  for (const auto& entry : fs::recursive_directory_iterator(kHeaders)) {
    if (entry.path().extension() != ".h") continue;
    const std::string code = code_of(entry.path()), stem = entry.path().stem().string();
    const std::string kind = entry.path().parent_path().filename() == "layers" ? "layers" : stem;
    if (!recorded.find(kind)) continue;
    const auto options = options_of(code);
    const std::regex function("\n[A-Za-z]+ ([A-Z][A-Za-z0-9]*)\\([^;{]*?([A-Za-z0-9]+Options)& ");
    for (auto it = std::sregex_iterator(code.begin(), code.end(), function); it != std::sregex_iterator();
         ++it) {
      const auto found = options.find((*it)[2]);
      const auto theirs = keras(kind, (*it)[1]);
      if (found != options.end() && theirs) compare((*it)[1], found->second, *theirs);
    }
  }
  const auto of_models = options_of(code_of(kHeaders / "model.h"));
  for (const auto& [method, name] : std::map<std::string, std::string>{{"compile", "CompileOptions"},
                                                                       {"evaluate", "EvaluateOptions"},
                                                                       {"fit", "FitOptions"},
                                                                       {"predict", "PredictOptions"},
                                                                       {"summary", "SummaryOptions"}})
    compare(method, of_models.at(name), keras("model", method).value());
  compare("Input", options_of(code_of(kHeaders / "layer.h")).at("InputOptions"),
          keras("model", "Input").value());
  EXPECT_GT(compared, 120u);
  // A struct whose members were not understood would pass everything.
  EXPECT_EQ(options_of(code_of(kHeaders / "optimizers.h")).at("AdamWOptions").at(1), "weight_decay");
  EXPECT_EQ(options_of(code_of(kHeaders / "optimizers.h")).at("AdamOptions").back(), "name");
  EXPECT_EQ(of_models.at("FitOptions").size(), 14u);
}

}  // namespace
}  // namespace lockstep::keras
