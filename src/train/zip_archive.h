// Zip archives, as far as models are kept in them.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace lockstep::train {

// An archive opened for reading. Everything throws Error(io) for a damaged one, with its path; an entry's
// checksum is looked at when it has been read to its end.
class ZipReader {
 public:
  explicit ZipReader(const std::string& path, std::source_location where = std::source_location::current());
  ~ZipReader();

  bool contains(const std::string& entry) const;
  std::vector<std::string> names() const;  // sorted

  // The entry's bytes. Throws Error(not_found) where there is none of this name, Error(io) where it would
  // become a thousand times as large as it is in the archive.
  std::string read(const std::string& entry) const;

 private:
  struct Archive;
  std::unique_ptr<Archive> archive_;
};

struct ZipEntry {
  std::string name;
  std::string bytes;
};

// Writes an archive of these, uncompressed. The file appears complete or not at all.
void write_zip(const std::string& path, const std::vector<ZipEntry>& entries,
               std::source_location where = std::source_location::current());

}  // namespace lockstep::train
