#include "base/gzip_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/file.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

gzFile gz(void* file) { return static_cast<gzFile>(file); }

constexpr size_t kChunk = size_t{1} << 20;

}  // namespace

GzipFile::GzipFile(std::string path, std::source_location where) : path_(std::move(path)), where_(where) {
  // Says what is wrong with the name, if something is.
  { const InputFile check(path_, where); }
  file_ = gzopen(path_.c_str(), "rbe");
  require(file_ != nullptr, ErrorCode::io, where_, "cannot open \"", path_, "\": ", system_message(errno));
  gzbuffer(gz(file_), 1 << 17);
}

GzipFile::GzipFile(GzipFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, nullptr)), where_(other.where_) {}

GzipFile::~GzipFile() {
  if (file_) gzclose_r(gz(file_));
}

size_t GzipFile::read(void* target, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const auto wanted = static_cast<unsigned>(std::min(bytes - done, kChunk));
    const int got = gzread(gz(file_), static_cast<char*>(target) + done, wanted);
    int code = Z_OK;
    const char* message = gzerror(gz(file_), &code);
    require(got >= 0 && (code == Z_OK || code == Z_STREAM_END), ErrorCode::io, where_, "cannot read \"",
            path_, "\": ", code == Z_ERRNO ? system_message(errno) : message,
            "; the file is damaged or truncated");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

std::string GzipFile::read_exactly(size_t bytes, const char* what) {
  std::string text;
  while (text.size() < bytes) {
    const size_t before = text.size();
    // Doubles, up to what is asked for.
    text.resize(before + std::min(bytes - before, std::max(kChunk, before)));
    const size_t got = read(text.data() + before, text.size() - before);
    require(before + got == text.size(), ErrorCode::io, where_, "\"", path_, "\" ends inside of ", what, ": ",
            bytes, " bytes are expected, ", before + got, " are there; the file is truncated");
  }
  return text;
}

void GzipFile::skip(size_t bytes, const char* what) {
  std::vector<char> buffer(std::min(bytes, kChunk));
  for (size_t left = bytes; left > 0;) {
    const size_t got = read(buffer.data(), std::min(left, buffer.size()));
    require(got > 0, ErrorCode::io, where_, "\"", path_, "\" ends inside of ", what,
            "; the file is truncated");
    left -= got;
  }
}

}  // namespace lockstep
