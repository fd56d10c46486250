// Where the files of a published data set are.
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {

struct PublishedFile {
  std::string_view name;
  std::string_view sha256;
  // Names under which its contents may be found instead: unpacked.
  std::vector<std::string_view> also;
};

struct Publication {
  std::string_view name;  // of the data set, and of its folder in the cache folder
  std::vector<std::string_view> mirrors;
};

// Throws Error(failed_precondition) where the environment names no folder.
std::string cache_folder(std::source_location where);

// The path of the file, or of what it contains; downloaded where need be. Throws Error(not_found) that says
// what was looked for and tried, and where to put it.
std::string locate(const Publication& publication, const PublishedFile& file, const LoadOptions& options,
                   std::source_location where);

}  // namespace lockstep::keras::datasets
