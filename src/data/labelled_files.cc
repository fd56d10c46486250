#include "data/labelled_files.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

std::vector<std::string> files_under(const char* op, const fs::path& folder,
                                     std::span<const char* const> extensions, std::source_location where) {
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink);
       entry != fs::recursive_directory_iterator(); ++entry) {
    if (hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (!entry->is_directory() && std::find(extensions.begin(), extensions.end(),
                                                   lower_extension(entry->path())) != extensions.end()) {
      // A link into what is not mounted, say: without it the run would learn from fewer examples.
      require(entry->is_regular_file(), ErrorCode::io, where, op, ": \"", entry->path().string(), "\" is ",
              entry->exists() ? "no file" : "a link that leads nowhere", "; mend it, or take it away");
      found.push_back(entry->path().string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

LabelledFiles list_labelled_files(const char* op, const std::string& folder,
                                  const std::vector<std::string>& class_names,
                                  std::span<const char* const> extensions, std::source_location where) {
  LabelledFiles listing{class_names, {}};
  try {
    require(fs::is_directory(folder), ErrorCode::not_found, where, op, ": there is no folder \"", folder,
            "\"");
    std::vector<std::string> folders;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_directory() && !hidden(entry.path())) folders.push_back(entry.path().filename().string());
    std::sort(folders.begin(), folders.end());
    if (listing.class_names.empty()) listing.class_names = folders;
    for (const std::string& name : listing.class_names)
      if (std::find(folders.begin(), folders.end(), name) == folders.end()) {
        const std::string nearest = nearest_spelling(name, folders);
        fail(ErrorCode::not_found, where, op, ": \"", folder, "\" has no folder \"", name, "\"",
             nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
      }
    for (size_t label = 0; label < listing.class_names.size(); ++label)
      for (std::string& path :
           files_under(op, fs::path(folder) / listing.class_names[label], extensions, where))
        listing.files.push_back({std::move(path), static_cast<int32_t>(label)});
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::io, where, op, ": cannot read the folder: ", error.what());
  }
  std::string wanted;
  for (const char* extension : extensions) wanted += (wanted.empty() ? "" : ", ") + std::string(extension);
  require(!listing.files.empty(), ErrorCode::not_found, where, op, ": there is no file (", wanted,
          ") in the class folders of \"", folder, "\"; each class has a folder of its own there");
  return listing;
}

}  // namespace lockstep::data
