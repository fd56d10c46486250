// What tests see of a dataset's elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/test_folder_test.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The first tensor of every element.
inline std::vector<std::vector<int64_t>> lists(const Dataset& dataset) {
  std::vector<std::vector<int64_t>> all;
  for (const Element& element : dataset) all.push_back(element.flat()[0].to_vector<int64_t>());
  return all;
}
// The same, all in one.
inline std::vector<int64_t> numbers(const Dataset& dataset) {
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& list : lists(dataset)) all.insert(all.end(), list.begin(), list.end());
  return all;
}
inline int64_t number(const Element& element) { return element.flat()[0].item<int64_t>(); }

}  // namespace lockstep::data
