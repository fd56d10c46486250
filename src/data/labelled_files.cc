#include "data/labelled_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

// The files of these extensions, and by extension how many others there are.
class Selection {
 public:
  Selection(const char* op, std::span<const char* const> extensions, std::source_location where)
      : op_(op), extensions_(extensions), where_(where) {}

  std::vector<std::string> files_under(const fs::path& folder) {
    std::vector<std::string> found;
    for (auto entry =
             fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink);
         entry != fs::recursive_directory_iterator(); ++entry) {
      if (hidden(entry->path())) {
        if (entry->is_directory()) entry.disable_recursion_pending();
      } else if (!entry->is_directory()) {
        take(*entry, found);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  // Files that stand beside the class folders have no class.
  void count_beside(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (!entry.is_directory() && !hidden(entry.path()) && wanted(entry.path())) ++beside_;
  }
  std::string extensions() const {
    std::string all;
    for (const char* extension : extensions_) all += (all.empty() ? "" : ", ") + std::string(extension);
    return all;
  }
  void warn_of_others(const std::string& folder) const {
    std::string others;
    for (const auto& [extension, count] : others_)
      others += (others.empty() ? "" : ", ") + std::to_string(count) + " " +
                (extension.empty() ? "without an extension" : extension);
    if (!others.empty())
      log_once({LogLevel::warning, where_}, op_, ": files of \"", folder, "\" that are not ", extensions(),
               " are left out: ", others);
    if (beside_ > 0)
      log_once({LogLevel::warning, where_}, op_, ": ", beside_, " files (", extensions(), ") of \"", folder,
               "\" lie beside the class folders, so they have no class and are left out");
  }

 private:
  bool wanted(const fs::path& path) const {
    return std::find(extensions_.begin(), extensions_.end(), lower_extension(path)) != extensions_.end();
  }
  void take(const fs::directory_entry& entry, std::vector<std::string>& found) {
    if (!wanted(entry.path())) {
      ++others_[lower_extension(entry.path())];
      return;
    }
    // A link into what is not mounted, say: without it the run would learn from fewer examples.
    require(entry.is_regular_file(), ErrorCode::io, where_, op_, ": \"", entry.path().string(), "\" is ",
            entry.exists() ? "no file" : "a link that leads nowhere", "; mend it, or take it away");
    found.push_back(entry.path().string());
  }

  const char* op_;
  std::span<const char* const> extensions_;
  std::source_location where_;
  std::map<std::string, int64_t> others_;
  int64_t beside_ = 0;
};

}  // namespace

LabelledFiles list_labelled_files(const char* op, const std::string& folder,
                                  const std::vector<std::string>& class_names,
                                  std::span<const char* const> extensions, bool labels,
                                  std::source_location where) {
  LabelledFiles listing{class_names, {}};
  Selection selection(op, extensions, where);
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
      for (std::string& path : selection.files_under(fs::path(folder) / listing.class_names[label]))
        listing.files.push_back({std::move(path), static_cast<int32_t>(label)});
    if (!labels && folders.empty())
      for (std::string& path : selection.files_under(folder)) listing.files.push_back({std::move(path), 0});
    else
      selection.count_beside(folder);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::io, where, op, ": cannot read the folder: ", error.what());
  }
  require(!listing.files.empty(), ErrorCode::not_found, where, op, ": there is no file (",
          selection.extensions(), ") in the class folders of \"", folder,
          "\"; each class has a folder of its own there");
  selection.warn_of_others(folder);
  return listing;
}

}  // namespace lockstep::data
