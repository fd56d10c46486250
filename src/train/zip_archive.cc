#include "train/zip_archive.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>

#include "base/file.h"
#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
// An entry that becomes larger than this, and a thousand times as large as it is stored, is a trap. Deflate
// reaches 1032.
constexpr uint64_t kUnsuspicious = uint64_t{64} << 20;
constexpr uint64_t kMaxExpansion = 1000;

// What minizip reads from or writes to, with the first exception that came up: none may pass through C.
struct Stream {
  const InputFile* input = nullptr;
  AtomicFile* output = nullptr;
  std::source_location where;
  uint64_t at = 0;
  uint64_t end = 0;
  std::exception_ptr problem = nullptr;

  template <class F>
  bool attempt(F&& f) {
    if (problem) return false;
    try {
      f();
      return true;
    } catch (...) {
      problem = std::current_exception();
      return false;
    }
  }
  void rethrow() const {
    if (problem) std::rethrow_exception(problem);
  }

  zlib_filefunc64_def functions() {
    zlib_filefunc64_def f{};
    f.zopen64_file = [](voidpf opaque, const void*, int) { return opaque; };
    f.zread_file = [](voidpf opaque, voidpf, void* target, uLong bytes) -> uLong {
      auto& s = *static_cast<Stream*>(opaque);
      const uint64_t count = std::min<uint64_t>(bytes, s.at < s.end ? s.end - s.at : 0);
      if (!s.input || !s.attempt([&] { s.input->read_at(s.at, target, count, s.where); })) return 0;
      s.at += count;
      return static_cast<uLong>(count);
    };
    f.zwrite_file = [](voidpf opaque, voidpf, const void* source, uLong bytes) -> uLong {
      auto& s = *static_cast<Stream*>(opaque);
      if (!s.output || !s.attempt([&] { s.output->write_at(s.at, source, bytes); })) return 0;
      s.at += bytes;
      s.end = std::max(s.end, s.at);
      return bytes;
    };
    f.ztell64_file = [](voidpf opaque, voidpf) -> ZPOS64_T { return static_cast<Stream*>(opaque)->at; };
    f.zseek64_file = [](voidpf opaque, voidpf, ZPOS64_T offset, int origin) -> long {
      auto& s = *static_cast<Stream*>(opaque);
      const uint64_t base = origin == ZLIB_FILEFUNC_SEEK_CUR   ? s.at
                            : origin == ZLIB_FILEFUNC_SEEK_END ? s.end
                                                               : 0;
      uint64_t to = 0;
      if (__builtin_add_overflow(base, offset, &to) || to > s.end) return -1;
      s.at = to;
      return 0;
    };
    f.zclose_file = [](voidpf, voidpf) { return 0; };
    f.zerror_file = [](voidpf opaque, voidpf) { return static_cast<Stream*>(opaque)->problem ? 1 : 0; };
    f.opaque = this;
    return f;
  }
};

}  // namespace

// --- reading -----------------------------------------------------------------------------------------------

struct ZipReader::Archive {
  struct Entry {
    unz64_file_pos at{};
    uint64_t bytes = 0;
    uint64_t stored = 0;
  };

  Archive(const std::string& path, std::source_location where)
      : file(path, where), stream{.input = &file, .where = where, .end = file.size()} {}
  Archive(const Archive&) = delete;
  ~Archive() {
    if (handle) unzClose(handle);
  }
  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    stream.rethrow();
    require(holds, ErrorCode::io, stream.where, "zip archive \"", file.path(), "\": ", parts...);
  }

  InputFile file;
  Stream stream;
  unzFile handle = nullptr;
  std::map<std::string, Entry> entries;
};

ZipReader::ZipReader(const std::string& path, std::source_location where)
    : archive_(std::make_unique<Archive>(path, where)) {
  Archive& archive = *archive_;
  zlib_filefunc64_def functions = archive.stream.functions();
  archive.handle = unzOpen2_64(path.c_str(), &functions);
  archive.check(archive.handle != nullptr, "has no directory at its end; it is truncated, or no zip archive");
  int result = unzGoToFirstFile(archive.handle);
  for (; result == UNZ_OK; result = unzGoToNextFile(archive.handle)) {
    unz_file_info64 info{};
    archive.check(
        unzGetCurrentFileInfo64(archive.handle, &info, nullptr, 0, nullptr, 0, nullptr, 0) == UNZ_OK,
        "its directory is damaged");
    std::string name(info.size_filename, '\0');
    Archive::Entry entry{.bytes = info.uncompressed_size, .stored = info.compressed_size};
    archive.check(unzGetCurrentFileInfo64(archive.handle, nullptr, name.data(), name.size(), nullptr, 0,
                                          nullptr, 0) == UNZ_OK &&
                      unzGetFilePos64(archive.handle, &entry.at) == UNZ_OK,
                  "its directory is damaged");
    archive.check(archive.entries.emplace(name, entry).second, "has two entries \"", name, "\"");
  }
  archive.check(result == UNZ_END_OF_LIST_OF_FILE, "its directory is damaged");
}

ZipReader::~ZipReader() = default;

bool ZipReader::contains(const std::string& entry) const { return archive_->entries.contains(entry); }

std::vector<std::string> ZipReader::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : archive_->entries) all.push_back(name);
  return all;
}

std::string ZipReader::read(const std::string& name) const {
  Archive& archive = *archive_;
  const auto found = archive.entries.find(name);
  require(found != archive.entries.end(), ErrorCode::not_found, archive.stream.where, "zip archive \"",
          archive.file.path(), "\" has no \"", name, "\"");
  const Archive::Entry& entry = found->second;
  archive.check(entry.bytes <= kUnsuspicious || entry.bytes / kMaxExpansion <= entry.stored, "\"", name,
                "\" has ", entry.bytes, " bytes, but ", entry.stored, " in the archive");
  archive.check(
      unzGoToFilePos64(archive.handle, &entry.at) == UNZ_OK && unzOpenCurrentFile(archive.handle) == UNZ_OK,
      "\"", name, "\" cannot be read; it is damaged, or of a kind that is not supported");
  // One byte more than there should be, so that a longer one shows.
  std::string bytes(entry.bytes + 1, '\0');
  uint64_t done = 0;
  int got = 0;
  while (done < bytes.size() &&
         (got = unzReadCurrentFile(archive.handle, bytes.data() + done,
                                   static_cast<unsigned>(std::min<uint64_t>(kPiece, bytes.size() - done)))) >
             0)
    done += static_cast<uint64_t>(got);
  const bool whole = unzCloseCurrentFile(archive.handle) == UNZ_OK && got == 0 && done == entry.bytes;
  archive.check(whole, "\"", name, "\" is damaged: its bytes do not fit its checksum or its size");
  bytes.resize(entry.bytes);
  return bytes;
}

// --- writing -----------------------------------------------------------------------------------------------

void write_zip(const std::string& path, const std::vector<ZipEntry>& entries, std::source_location where) {
  AtomicFile file(path, where);
  Stream stream{.output = &file, .where = where};
  zlib_filefunc64_def functions = stream.functions();
  const auto check = [&](bool holds) {
    stream.rethrow();
    require(holds, ErrorCode::io, where, "cannot write zip archive \"", path, "\"");
  };
  struct Closed {
    void operator()(zipFile archive) const { zipClose(archive, nullptr); }
  };
  std::unique_ptr<void, Closed> owned(zipOpen2_64(path.c_str(), APPEND_STATUS_CREATE, nullptr, &functions));
  zipFile archive = owned.get();
  check(archive != nullptr);
  for (const auto& [name, bytes] : entries) {
    zip_fileinfo info{};
    info.tmz_date.tm_year = 1980;  // what the format begins with: the same files are the same archive
    info.tmz_date.tm_mday = 1;
    // Sizes from 4 GiB on take fields of their own, which must be there from the beginning.
    const int large = bytes.size() >= 0xffffffffU ? 1 : 0;
    check(zipOpenNewFileInZip64(archive, name.c_str(), &info, nullptr, 0, nullptr, 0, nullptr, 0, 0, large) ==
          ZIP_OK);
    for (size_t at = 0; at < bytes.size(); at += kPiece)
      check(zipWriteInFileInZip(archive, bytes.data() + at,
                                static_cast<unsigned>(std::min(kPiece, bytes.size() - at))) == ZIP_OK);
    check(zipCloseFileInZip(archive) == ZIP_OK);
  }
  check(zipClose(owned.release(), nullptr) == ZIP_OK);
  file.commit();
}

}  // namespace lockstep::train
