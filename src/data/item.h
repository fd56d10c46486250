// What flows between the stages of a dataset: an element, or a row of arrays that nobody has had to look at
// yet.
//
// Shuffling and batching examples that lie in memory then moves row numbers, and the bytes are copied once.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/data/element.h"

namespace lockstep::data {

// Arrays whose first dimension runs over the elements. Contiguous, in host memory, immutable.
class Rows {
 public:
  Rows(std::shared_ptr<const Structure> structure, TensorList arrays);

  int64_t size() const { return size_; }
  const std::shared_ptr<const Structure>& structure() const { return structure_; }
  const TensorList& arrays() const { return arrays_; }
  // A view.
  Element row(int64_t index) const;

 private:
  std::shared_ptr<const Structure> structure_;
  TensorList arrays_;
  int64_t size_;
};

class Item {
 public:
  Item() = default;
  Item(Element element) : element_(std::move(element)) {}  // NOLINT(google-explicit-constructor)
  Item(std::shared_ptr<const Rows> rows, int64_t row) : rows_(std::move(rows)), row_(row) {}

  // Null where it is an element.
  const std::shared_ptr<const Rows>& rows() const { return rows_; }
  int64_t row() const { return row_; }
  // The element, cut out of the arrays where it is a row.
  Element& element() {
    if (rows_) {
      element_ = rows_->row(row_);
      rows_.reset();
    }
    return element_;
  }
  void set_row(const std::shared_ptr<const Rows>& rows, int64_t row) {
    // Most often it is another row of the same arrays.
    if (rows_ != rows) rows_ = rows;
    row_ = row;
  }

 private:
  Element element_;
  std::shared_ptr<const Rows> rows_;
  int64_t row_ = 0;
};

}  // namespace lockstep::data
