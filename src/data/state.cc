#include "data/state.h"

#include <algorithm>
#include <sstream>

#include "data/node.h"
#include "graph/eager.h"

namespace lockstep::data {
namespace {

constexpr const char* kRows = ".rows";
constexpr const char* kArrays = ".arrays";
constexpr const char* kCount = ".count";
constexpr const char* kStructure = ".structure";
constexpr const char* kCodes = ".codes";
constexpr const char* kMessage = ".message";
constexpr const char* kNotes = ".notes";
constexpr int64_t kNoError = -1;
constexpr int64_t kElement = -1;  // in kArrays: not a row

}  // namespace

void StateWriter::number(const std::string& name, int64_t value) {
  state_[prefix_ + name] = Tensor::scalar<int64_t>(value);
}

void StateWriter::numbers(const std::string& name, std::span<const int64_t> values) {
  state_[prefix_ + name] = Tensor::from<int64_t>(values, {static_cast<int64_t>(values.size())});
}

void StateWriter::text(const std::string& name, const std::string& value) {
  state_[prefix_ + name] = bytes(value);
}

void StateWriter::tensor(const std::string& name, const Tensor& value) {
  state_[prefix_ + name] = contiguous(value, std::source_location::current());
}

void StateWriter::element(const std::string& name, const Element& value) {
  text(name + kStructure, value.defined() ? value.structure().to_string() : "");
  for (size_t i = 0; i < value.flat().size(); ++i) tensor(name + "." + std::to_string(i), value.flat()[i]);
}

void StateWriter::items(const std::string& name, std::span<Item> items) {
  std::vector<int64_t> arrays, rows;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto found = std::find(known_.begin(), known_.end(), items[i].rows());
    if (items[i].rows() && found != known_.end()) {
      arrays.push_back(found - known_.begin());
      rows.push_back(items[i].row());
    } else {
      arrays.push_back(kElement);
      rows.push_back(0);
      element(name + "." + std::to_string(i), items[i].element());
    }
  }
  number(name + kCount, static_cast<int64_t>(items.size()));
  numbers(name + kArrays, arrays);
  numbers(name + kRows, rows);
}

void StateWriter::outcomes(const std::string& name, std::span<Outcome> outcomes) {
  std::vector<Item> all;
  std::vector<int64_t> codes;
  const auto add_error = [&](ErrorCode code, const std::string& message, const std::string& notes) {
    const std::string place = name + "." + std::to_string(codes.size());
    text(place + kMessage, message);
    text(place + kNotes, notes);
    codes.push_back(static_cast<int64_t>(code));
  };
  for (Outcome& outcome : outcomes) {
    all.push_back(outcome.error ? Item() : outcome.item);
    if (!outcome.error) {
      codes.push_back(kNoError);
      continue;
    }
    try {
      std::rethrow_exception(outcome.error);
    } catch (const Error& error) {
      std::string notes;
      for (const std::string& note : error.notes()) notes += note + '\n';
      add_error(error.code(), error.message(), notes);
    } catch (const std::exception& error) {
      add_error(ErrorCode::internal, error.what(), {});
    } catch (...) {
      add_error(ErrorCode::internal, "what was thrown is no exception", {});
    }
  }
  numbers(name + kCodes, codes);
  items(name, all);
}

void StateWriter::cursor(const std::string& name, Cursor& cursor) {
  StateWriter inner(state_, known_, prefix_ + name + "/");
  cursor.save(inner);
}

const Tensor& StateReader::tensor(const std::string& name) const {
  const auto found = state_.find(prefix_ + name);
  require(found != state_.end(), ErrorCode::not_found, where_, "the iterator's state has no '", prefix_, name,
          "': it was saved from another dataset");
  return found->second;
}

int64_t StateReader::number(const std::string& name) const {
  const Tensor& value = tensor(name);
  require(value.dtype() == DType::int64 && value.size() == 1, ErrorCode::invalid_argument, where_,
          "the iterator's state has ", value.spec(), " as '", prefix_, name, "', not a number");
  return value.item<int64_t>();
}

std::vector<int64_t> StateReader::numbers(const std::string& name) const {
  const Tensor& value = tensor(name);
  require(value.dtype() == DType::int64 && value.rank() == 1, ErrorCode::invalid_argument, where_,
          "the iterator's state has ", value.spec(), " as '", prefix_, name, "', not a list of numbers");
  return value.to_vector<int64_t>();
}

std::string StateReader::text(const std::string& name) const { return data::text(tensor(name), where_); }

Element StateReader::element(const std::string& name) const {
  const std::string written = text(name + kStructure);
  if (written.empty()) return {};
  auto structure = std::make_shared<const Structure>(Structure::parse(written, where_));
  TensorList tensors;
  for (size_t i = 0; i < structure->leaves(); ++i) tensors.push_back(tensor(name + "." + std::to_string(i)));
  if (structure->kind() == Structure::Kind::leaf) return tensors[0];
  return {std::move(structure), std::move(tensors)};
}

std::vector<Item> StateReader::items(const std::string& name) const {
  const auto count = static_cast<size_t>(number(name + kCount));
  const std::vector<int64_t> arrays = numbers(name + kArrays), rows = numbers(name + kRows);
  require(arrays.size() == count && rows.size() == count, ErrorCode::invalid_argument, where_,
          "the iterator's state is damaged at '", prefix_, name, "'");
  std::vector<Item> items;
  items.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (arrays[i] == kElement) {
      items.emplace_back(element(name + "." + std::to_string(i)));
      continue;
    }
    require(arrays[i] >= 0 && arrays[i] < static_cast<int64_t>(known_.size()), ErrorCode::invalid_argument,
            where_, "the iterator's state names arrays that this dataset does not have at '", prefix_, name,
            "'");
    const std::shared_ptr<const Rows>& known = known_[static_cast<size_t>(arrays[i])];
    require(rows[i] >= 0 && rows[i] < known->size(), ErrorCode::invalid_argument, where_,
            "the iterator's state names row ", rows[i], " of arrays with ", known->size(), " rows");
    items.emplace_back(known, rows[i]);
  }
  return items;
}

std::vector<Outcome> StateReader::outcomes(const std::string& name) const {
  std::vector<Item> all = items(name);
  const std::vector<int64_t> codes = numbers(name + kCodes);
  require(codes.size() == all.size(), ErrorCode::invalid_argument, where_,
          "the iterator's state is damaged at '", prefix_, name, "'");
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < all.size(); ++i) {
    Outcome& outcome = outcomes.emplace_back(Outcome{std::move(all[i])});
    if (codes[i] == kNoError) continue;
    const std::string place = name + "." + std::to_string(i);
    Error error(static_cast<ErrorCode>(codes[i]), text(place + kMessage), where_);
    std::istringstream notes(text(place + kNotes));
    for (std::string note; std::getline(notes, note);) error.note(note);
    outcome.error = std::make_exception_ptr(std::move(error));
  }
  return outcomes;
}

void StateReader::cursor(const std::string& name, Cursor& cursor) const {
  cursor.restore(StateReader(state_, known_, where_, prefix_ + name + "/"));
}

}  // namespace lockstep::data
