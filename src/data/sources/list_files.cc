#include <glob.h>

#include <algorithm>

#include "data/sources/files.h"

namespace lockstep::data {
namespace {

// The files, not folders, that match; sorted.
std::vector<std::string> matches(const std::string& pattern, std::source_location where) {
  glob_t found{};
  // GLOB_MARK: folders end in '/'.
  const int code = glob(pattern.c_str(), GLOB_MARK, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::erase_if(files, [](const std::string& name) { return name.ends_with('/'); });
  require(code == 0 || code == GLOB_NOMATCH, ErrorCode::io, where, "list_files: cannot read the folder of \"",
          pattern, "\"");
  require(!files.empty(), ErrorCode::not_found, where, "list_files: no file matches \"", pattern, "\"");
  return files;
}

}  // namespace

Dataset Dataset::list_files(const std::vector<std::string>& patterns, const ListFilesOptions& options,
                            std::source_location where) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> found = matches(pattern, where);
    files.insert(files.end(), found.begin(), found.end());
  }
  require(!files.empty(), ErrorCode::invalid_argument, where, "list_files: there is no pattern");
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  const int64_t count = std::ssize(files);
  const Dataset names = file_names_dataset("list_files", std::move(files), where);
  return options.shuffle ? names.shuffle(count, {.seed = options.seed}, where) : names;
}

}  // namespace lockstep::data
