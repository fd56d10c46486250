// Any bytes as a table: its rows are read, or refused by Errors, and reading ends; from where a row begins
// the same rows follow.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "data/csv.h"
#include "lockstep/base/error.h"

namespace {

namespace ls = lockstep;

constexpr size_t kSmallestBuffer = 1;

// The rows' fields, or what was wrong with them.
std::vector<std::string> rows(ls::data::CsvReader& reader, size_t most) {
  std::vector<std::string> all;
  std::vector<std::string_view> fields;
  for (bool more = true; more;) {
    std::string row;
    try {
      more = reader.next(fields);
      for (size_t i = 0; i < fields.size(); ++i) {
        row += std::string(fields[i]) + '\0';
        try {
          ls::data::csv_number<int32_t>(reader, i, fields[i]);
          ls::data::csv_number<float>(reader, i, fields[i]);
        } catch (const ls::Error& error) {
          row += error.message();
        }
      }
    } catch (const ls::Error& error) {
      row = error.message();
    }
    all.push_back(row);
    if (all.size() > most) std::abort();
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (size == 0) return 0;
  const ls::data::CsvFormat format{.delimiter = data[0] & 1 ? ';' : ',', .quotes = (data[0] & 2) == 0};
  ++data;
  --size;
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  const auto open = [&](size_t buffer_bytes) {
    return ls::data::CsvReader(ls::data::ByteStream(path, ls::data::Compression::none, buffer_bytes), format,
                               std::source_location::current());
  };
  ls::data::CsvReader whole = open(ls::data::ByteStream::kBufferBytes), pieces = open(kSmallestBuffer);
  const std::vector<std::string> expected = rows(whole, size + 1);
  if (rows(pieces, size + 1) != expected) std::abort();

  ls::data::CsvReader first = open(kSmallestBuffer), rest = open(kSmallestBuffer);
  std::vector<std::string_view> fields;
  try {
    if (!first.next(fields)) return 0;
  } catch (const ls::Error&) {
  }
  rest.seek(first.offset(), first.line());
  if (rows(rest, size + 1) != std::vector(expected.begin() + 1, expected.end())) std::abort();
  return 0;
}
