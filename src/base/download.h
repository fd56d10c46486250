// Downloads. libcurl does the work; it is loaded when the first download starts, and no part of the build.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

namespace lockstep {

struct DownloadOptions {
  // The digest that the file must have, in hexadecimal digits; empty: any.
  std::string sha256 = {};
  // Called now and then with the bytes that are there and the bytes there will be (0: not known).
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// Loads a file (https, http or file URL). It appears at `path` complete and checked, or not at all. What was
// loaded when a connection broke is kept in `path`.part and continued by the next call; a file with another
// digest is thrown away. Several processes may ask for the same file: one loads, the others wait for it.
// Throws Error(io) that says what happened.
void download(const std::string& url, const std::string& path, const DownloadOptions& options = {},
              std::source_location where = std::source_location::current());

}  // namespace lockstep
