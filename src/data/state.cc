#include "data/state.h"

#include <algorithm>

#include "data/node.h"
#include "graph/eager.h"

namespace lockstep::data {
namespace {

constexpr const char* kRows = ".rows";
constexpr const char* kArrays = ".arrays";
constexpr const char* kCount = ".count";
constexpr const char* kStructure = ".structure";
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

void StateReader::cursor(const std::string& name, Cursor& cursor) const {
  cursor.restore(StateReader(state_, known_, where_, prefix_ + name + "/"));
}

}  // namespace lockstep::data
