#include "keras/training/source.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"

namespace lockstep::keras {

const char* text_of(NamedPart part) {
  switch (part) {
    case NamedPart::input: return "input";
    case NamedPart::output: return "output";
    case NamedPart::weight: return "weight of output";
  }
  return "";
}

std::vector<size_t> in_order_of(const std::vector<std::string>& wanted, const std::vector<std::string>& names,
                                NamedPart part, std::source_location where) {
  std::vector<size_t> positions;
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    positions.push_back(found == names.end() ? kMissing : static_cast<size_t>(found - names.begin()));
  }
  // A table may have columns that are no input of the model. Where an input is missing, too, it was misspelled.
  const bool extra_columns =
      part == NamedPart::input && std::find(positions.begin(), positions.end(), kMissing) == positions.end();
  for (const std::string& name : names) {
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) continue;
    std::string known;
    for (const std::string& other : wanted) known += (known.empty() ? "\"" : ", \"") + other + "\"";
    if (extra_columns) {
      log_once(LogLevel::warning, "the data has a column \"", name, "\", which is no input of the model (",
               known, "): it is not used");
      continue;
    }
    const std::string near = nearest_spelling(name, wanted);
    fail(ErrorCode::invalid_argument, where, "the data names ", text_of(part), " \"", name,
         "\", the model has ", known, near.empty() ? "" : "; did you mean \"" + near + "\"?");
  }
  return positions;
}

int64_t examples_in(const Batch& batch) {
  int64_t examples = 0;
  each_array(batch, [&](const Tensor& tensor) { examples = tensor.shape()[0]; });
  return examples;
}

int64_t steps_of(const Data& data, int64_t told, int64_t batch_size, const char* caller, const char* option,
                 std::source_location where) {
  require(told > 0 || told == -1, ErrorCode::invalid_argument, where, caller, ": ", option,
          " must be positive, or -1 for all batches, received ", told);
  if (told > 0) return told;
  const int64_t batches = data.source()->batches(batch_size);
  require(batches != Data::Source::kEndless, ErrorCode::invalid_argument, where, caller,
          ": the dataset has no end (repeat() without a count); say with ", option,
          " how many batches to take, or take(count) of it");
  return batches;
}

}  // namespace lockstep::keras
