#include "keras/datasets/files.h"

#include <filesystem>
#include <sstream>

#include "base/download.h"
#include "base/environment.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::keras::datasets {
namespace {

namespace fs = std::filesystem;

// Says every ten seconds how far a download is.
class ProgressLog {
 public:
  explicit ProgressLog(std::string url) : url_(std::move(url)) {}
  void operator()(int64_t done, int64_t total) {
    constexpr int64_t kInterval = 10'000'000'000;
    const int64_t now = monotonic_ns();
    if (now - last_ < kInterval) return;
    last_ = now;
    log(LogLevel::info, "downloading ", url_, ": ", done / 1'000'000, total ? " of " : "",
        total ? std::to_string(total / 1'000'000) : "", " MB");
  }

 private:
  std::string url_;
  int64_t last_ = monotonic_ns();
};

std::string joined(const std::vector<std::string>& lines) {
  std::ostringstream out;
  for (const std::string& line : lines) out << "\n  " << line;
  return out.str();
}

}  // namespace

std::string cache_folder(std::source_location where) {
  if (const auto folder = env::read_string("LOCKSTEP_DATA_DIR")) return *folder;
  if (const auto folder = env::read_string("XDG_CACHE_HOME"))
    return (fs::path(*folder) / "lockstep").string();
  const auto home = env::read_string("HOME");
  require(
      home.has_value(), ErrorCode::failed_precondition, where,
      "there is no folder for data sets: set LOCKSTEP_DATA_DIR (HOME and XDG_CACHE_HOME are not set either)");
  return (fs::path(*home) / ".cache" / "lockstep").string();
}

std::string locate(const Publication& publication, const PublishedFile& file, const LoadOptions& options,
                   std::source_location where) {
  const fs::path kept = fs::path(cache_folder(where)) / publication.name;
  std::vector<fs::path> folders;
  if (!options.folder.empty())
    folders = {fs::path(options.folder), fs::path(options.folder) / publication.name};
  folders.push_back(kept);
  std::vector<std::string_view> names = file.also;
  names.push_back(file.name);
  for (const fs::path& folder : folders)
    for (const std::string_view name : names)
      if (std::error_code ignored; fs::exists(folder / name, ignored)) return (folder / name).string();

  std::vector<std::string> tried;
  if (options.download) {
    std::error_code error;
    fs::create_directories(kept, error);
    require(!error, ErrorCode::io, where, publication.name, ": cannot make the folder ", kept, ": ",
            error.message(), "; set LOCKSTEP_DATA_DIR to a folder that can be written");
    std::vector<std::string> mirrors = options.mirrors;
    mirrors.insert(mirrors.end(), publication.mirrors.begin(), publication.mirrors.end());
    for (const std::string& mirror : mirrors) {
      const std::string url = mirror + (mirror.ends_with('/') ? "" : "/") + std::string(file.name);
      const std::string path = (kept / file.name).string();
      log(LogLevel::info, publication.name, ": downloading ", url, " to ", path);
      try {
        download(url, path, {.sha256 = std::string(file.sha256), .progress = ProgressLog(url)}, where);
        return path;
      } catch (const Error& problem) {
        tried.push_back(problem.message());
      }
    }
  }
  std::vector<std::string> looked;
  for (const fs::path& folder : folders) looked.push_back((folder / file.name).string());
  fail(ErrorCode::not_found, where, publication.name, ": the file ", file.name,
       " is in none of these places:", joined(looked),
       tried.empty() ? "\nand downloading is switched off" : "\nand could not be downloaded:", joined(tried),
       "\nGet it elsewhere and put it at ", (kept / file.name).string(),
       ", or name its folder in LoadOptions::folder");
}

}  // namespace lockstep::keras::datasets
