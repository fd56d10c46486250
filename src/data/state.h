// The position of an iterator as named tensors.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "data/item.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

class Cursor;

// The arrays that a dataset's sources hold: their rows are saved as numbers.
using RowsList = std::vector<std::shared_ptr<const Rows>>;

// What came of one element: an item, or an error in its place.
struct Outcome {
  Item item;
  std::exception_ptr error{};
};

class StateWriter {
 public:
  StateWriter(IteratorState& state, const RowsList& known, std::string prefix = {})
      : state_(state), known_(known), prefix_(std::move(prefix)) {}

  void number(const std::string& name, int64_t value);
  void numbers(const std::string& name, std::span<const int64_t> values);
  void text(const std::string& name, const std::string& value);
  void tensor(const std::string& name, const Tensor& value);
  void element(const std::string& name, const Element& value);
  // Rows of known arrays as their numbers, everything else in full.
  void items(const std::string& name, std::span<Item> items);
  void outcomes(const std::string& name, std::span<Outcome> outcomes);
  void cursor(const std::string& name, Cursor& cursor);

 private:
  IteratorState& state_;
  const RowsList& known_;
  std::string prefix_;
};

// Throws Error(not_found) naming what the state lacks, Error(invalid_argument) where it does not fit the
// dataset.
class StateReader {
 public:
  StateReader(const IteratorState& state, const RowsList& known, std::source_location where,
              std::string prefix = {})
      : state_(state), known_(known), where_(where), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const { return state_.contains(prefix_ + name); }
  int64_t number(const std::string& name) const;
  std::vector<int64_t> numbers(const std::string& name) const;
  std::string text(const std::string& name) const;
  const Tensor& tensor(const std::string& name) const;
  Element element(const std::string& name) const;
  std::vector<Item> items(const std::string& name) const;
  std::vector<Outcome> outcomes(const std::string& name) const;
  void cursor(const std::string& name, Cursor& cursor) const;
  std::source_location where() const { return where_; }

 private:
  const IteratorState& state_;
  const RowsList& known_;
  std::source_location where_;
  std::string prefix_;
};

}  // namespace lockstep::data
