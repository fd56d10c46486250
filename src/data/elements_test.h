// What tests see of a dataset's elements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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

// A folder of its own, gone with it.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("lockstep_" + name + "_XXXXXX")) {
    std::string pattern = path_.string();
    path_ = mkdtemp(pattern.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::data
