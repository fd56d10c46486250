// The files of a folder that has a folder for each class.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

struct LabelledFile {
  std::string path;
  int32_t label;
};

struct LabelledFiles {
  std::vector<std::string> class_names;
  std::vector<LabelledFile> files;  // class by class, sorted
};

// Files with one of these extensions (".png"), in any case; folders inside of a class' belong to it; hidden
// files and folders are left out, other files are left out with a warning that counts them. class_names: the
// folders to read, in the order of their labels; empty: all, sorted. Where no labels are wanted, a folder
// without class folders is read itself. Throws Error(not_found) where there is no such folder or no file in
// them, Error(io) where one cannot be read; `op` is whom the message speaks for.
LabelledFiles list_labelled_files(const char* op, const std::string& folder,
                                  const std::vector<std::string>& class_names,
                                  std::span<const char* const> extensions, bool labels,
                                  std::source_location where);

inline constexpr const char* kImageExtensions[] = {".jpeg", ".jpg", ".png"};

}  // namespace lockstep::data
