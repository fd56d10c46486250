#include "keras/datasets/tar.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/gzip_file.h"
#include "lockstep/base/error.h"

namespace lockstep::keras::datasets {
namespace {

constexpr size_t kBlock = 512;

// A field of the header: text up to a zero byte.
std::string_view field(std::string_view header, size_t start, size_t size) {
  const std::string_view text = header.substr(start, size);
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::map<std::string, std::string> read_tar(const std::string& path, const std::vector<std::string>& members,
                                            std::source_location where) {
  const auto damaged = [&](const auto&... what) {
    fail(ErrorCode::io, where, "tar archive \"", path, "\": ", what..., "; the file is damaged");
  };
  GzipFile file(path, where);
  std::map<std::string, std::string> contents;
  while (contents.size() < members.size()) {
    std::string header(kBlock, '\0');
    if (file.read(header.data(), kBlock) < kBlock || header[0] == '\0') {
      const auto missing = std::find_if(members.begin(), members.end(),
                                        [&](const std::string& m) { return !contents.contains(m); });
      fail(ErrorCode::io, where, "tar archive \"", path, "\": it has no member \"", *missing,
           "\"; it is another archive, or truncated");
    }
    uint64_t sum = 0, stored = 0, size = 0;
    // The checksum counts its own field as spaces.
    for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(header[i]);
    const auto octal = [&](size_t start, size_t length, uint64_t& value) {
      for (const char c : field(header, start, length)) {
        if (c == ' ') continue;
        if (c < '0' || c > '7') damaged("a header holds '", c, "' where a number is expected");
        value = value << 3 | static_cast<uint64_t>(c - '0');
      }
    };
    octal(148, 8, stored);
    octal(124, 12, size);
    if (sum != stored) damaged("the checksum of a header does not match");
    const std::string_view prefix = field(header, 257, 5) == "ustar" ? field(header, 345, 155) : "";
    const std::string name =
        (prefix.empty() ? "" : std::string(prefix) + "/") + std::string(field(header, 0, 100));
    const char type = header[156];
    if ((type == '0' || type == '\0') && std::find(members.begin(), members.end(), name) != members.end()) {
      contents[name] = file.read_exactly(size, name.c_str());
    } else {
      file.skip(size, "a member");
    }
    file.skip((kBlock - size % kBlock) % kBlock, "a member");
  }
  return contents;
}

}  // namespace lockstep::keras::datasets
