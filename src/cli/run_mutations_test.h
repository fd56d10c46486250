// Run files that nobody would write: JSON changed at random, carried out as the tool would.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/json_mutation_test.h"
#include "base/test_folder_test.h"
#include "cli/run.h"
#include "lockstep/base/log.h"
#include "lockstep/device/device.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/random.h"
#include "lockstep/train/safetensors.h"

namespace lockstep::cli {

// One change of a run file.
class Mutation : public JsonMutation {
 public:
  explicit Mutation(uint64_t seed) : JsonMutation(seed, words()) {}

 private:
  static const Words& words() {
    static const Words all{
        {Json(), true, false, "", "same", "relu", "float16", "int64", "a/b", std::string(300, 'x'),
         Json::list(), Json::object(), Json::List{Json::List{Json::List{1}}},
         Json::List{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Json::object({{"class_name", "Dense"}})},
        {"name", "dtype", "padding", "axis", "units", "strides", "zoo", "sample_weight", "x", "y", "mask",
         "exclude_from_weight_decay"}};
    return all;
  }
};

// The files that the seeds name, in a folder of this process: examples for two inputs and two outputs, with
// weights.
inline const std::string& folder_of_examples() {
  static const TestFolder made("run_mutations");
  static const std::string folder = [] {
    const random::Generator generator(5);
    const auto numbers = [&](const Shape& shape) {
      return random::uniform(shape, {.generator = &generator});
    };
    train::save_safetensors((made / "examples.safetensors").string(),
                            {{"sizes", numbers({12, 2})},
                             {"words", cast(numbers({12}) * 2.99, DType::int32)},
                             {"kinds", cast(numbers({12}) * 2.99, DType::int32)},
                             {"prices", numbers({12})},
                             {"w", numbers({12})}});
    std::ofstream table(made / "table.csv");
    table << "height,width,word,kind,price,weight\n";
    for (int i = 0; i < 12; ++i)
      table << 0.1 * i << ',' << 1 - 0.1 * i << ',' << i % 3 << ',' << i * 5 % 3 << ',' << i << ",0.5\n";
    return made.path().string();
  }();
  return folder;
}

// Whether a run reads only what is made here: files of others, and downloads, are other fuzzers' part.
inline bool reads_own_files(const Source& source) {
  const auto known = [](const std::string& path) {
    return path == "examples.safetensors" || path == "table.csv" || path == "nowhere.csv";
  };
  if (const auto* builtin = std::get_if<BuiltinSource>(&source)) return builtin->name == "digits";
  if (const auto* csv = std::get_if<CsvSource>(&source)) return known(csv->path);
  if (const auto* tensors = std::get_if<SafetensorsSource>(&source)) return known(tensors->path);
  return false;
}

// What runs say, and the most memory that they may take, for a scope.
class Quiet {
 public:
  Quiet() {
    set_log_level(LogLevel::off);
    current_device().set_memory_limit(int64_t{256} << 20);
  }
  ~Quiet() {
    set_log_level(level_);
    current_device().set_memory_limit(limit_);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  LogLevel level_ = log_level();
  int64_t limit_ = current_device().memory_info().limit;
};

// Carries a run out, small: whatever the file says, it either works or is refused by an Error. True where it
// worked.
inline bool carry_out_or_refuse(const std::string& text, std::FILE* out) {
  const Quiet quiet;
  try {
    RunFile run = parse_run(Json::parse(text), folder_of_examples());
    const auto limited = [](int64_t& value, int64_t most) { value = std::min(value, most); };
    const auto few = [](Source& source) {
      if (auto* digits = std::get_if<BuiltinSource>(&source)) {
        digits->train_size = std::clamp<int64_t>(digits->train_size, 0, 16);
        digits->test_size = std::clamp<int64_t>(digits->test_size, 0, 8);
      }
      return reads_own_files(source);
    };
    std::optional<SourceSettings>& validation = run.data.options.validation;
    if (!few(run.data.source) || (validation && !few(validation->source))) return false;
    // A model in another file is read by whoever reads this one.
    if (run.model.json.is_string() && run.model.from_json()) return false;
    limited(run.fit.epochs, 1);
    if (run.fit.steps_per_epoch > 2) run.fit.steps_per_epoch = 2;
    if (run.fit.validation_steps > 2) run.fit.validation_steps = 2;
    if (run.compile) limited(run.compile->steps_per_execution, 2);
    // Layers that are asked for one by one take as long as they are many.
    if (Json* depth = run.model.json.is_object() && run.model.json.contains("depth")
                          ? &run.model.json["depth"]
                          : nullptr)
      if (depth->is_number()) *depth = std::clamp<double>(depth->as_double(), -1, 2);
    run.fit.verbose = 0;
    run.initial_weights = run.output = run.backup = "";
    // What is written of it is the same run.
    const Json written = written_run(run);
    if (written_run(parse_run(written, "")) != written) std::abort();
    carry_out(run, {}, {.out = out});
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace lockstep::cli
