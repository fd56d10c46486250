#include "lockstep/train/tensorflow_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/protobuf.h"
#include "graph/tensor_bytes.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::train {
namespace {

// The index is a sorted table of keys and values in blocks, each followed by its kind and its checksum. Its
// last bytes say where the block is that lists the others.
constexpr size_t kFooterBytes = 48, kTrailerBytes = 5;
constexpr uint64_t kMagic = 0xdb4775248b80fb57;
constexpr char kUncompressed = 0;

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// TensorFlow's numbers of the types that can be read.
std::optional<DType> dtype_of_number(uint64_t number) {
  switch (number) {
    case 1: return DType::float32;
    case 2: return DType::float64;
    case 3: return DType::int32;
    case 4: return DType::uint8;
    case 9: return DType::int64;
    case 10: return DType::boolean;
    case 14: return DType::bfloat16;
    case 19: return DType::float16;
    default: return std::nullopt;
  }
}

class TableReader {
 public:
  TableReader(const std::string& path, std::source_location where)
      : path_(path), where_(where), bytes_(read_file(path, where)) {}

  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require(holds, ErrorCode::io, where_, "TensorFlow checkpoint \"", path_, "\": ", parts...);
  }

  // f(key, value) for all of them, in their order.
  template <class F>
  void for_each(F&& f) const {
    check(bytes_.size() >= kFooterBytes, "it has ", bytes_.size(),
          " bytes, less than the end of such a file");
    std::string_view footer = std::string_view(bytes_).substr(bytes_.size() - kFooterBytes);
    check(number_at<uint64_t>(footer, kFooterBytes - 8) == kMagic,
          "does not end as such a file does; it is truncated, or something else");
    guarded([&] {
      take_handle(footer);  // of a block that nobody writes
      const Handle list = take_handle(footer);
      for_each_in(block(list), [&](std::string_view, std::string_view value) {
        for_each_in(block(take_handle(value)), f);
      });
    });
  }

  // What is no message, or ends inside of a number, is said with the file's name.
  template <class F>
  void guarded(F&& f) const {
    try {
      f();
    } catch (const Error& error) {
      if (error.message().starts_with("protocol buffer")) check(false, error.message());
      throw;
    }
  }

 private:
  struct Handle {
    uint64_t offset;
    uint64_t size;
  };
  static Handle take_handle(std::string_view& text) {
    const uint64_t offset = protobuf::take_varint(text);
    return {offset, protobuf::take_varint(text)};
  }

  std::string_view block(Handle handle) const {
    const uint64_t end = bytes_.size() - kFooterBytes;
    check(handle.offset <= end && handle.size <= end - handle.offset &&
              kTrailerBytes <= end - handle.offset - handle.size,
          "a block lies outside of the file; it is truncated or damaged");
    const std::string_view whole =
        std::string_view(bytes_).substr(handle.offset, handle.size + kTrailerBytes);
    const std::string_view with_kind = whole.substr(0, handle.size + 1);
    check(number_at<uint32_t>(whole, handle.size + 1) == masked_crc32c(crc32c(with_kind)),
          "a block does not fit its checksum; the file is damaged");
    require(with_kind.back() == kUncompressed, ErrorCode::unsupported, where_, "TensorFlow checkpoint \"",
            path_, "\": its index is compressed, which TensorFlow does not write");
    return with_kind.substr(0, handle.size);
  }

  // Keys are written without what they share with the one before. The end of a block lists places that are
  // not needed here.
  template <class F>
  void for_each_in(std::string_view block, F&& f) const {
    check(block.size() >= 4, "a block has no end");
    const uint64_t restarts = number_at<uint32_t>(block, block.size() - 4);
    check(restarts <= (block.size() - 4) / 4, "a block has no end");
    std::string_view rest = block.substr(0, block.size() - 4 - 4 * restarts);
    std::string key;
    while (!rest.empty()) {
      const uint64_t shared = protobuf::take_varint(rest), own = protobuf::take_varint(rest);
      const uint64_t value = protobuf::take_varint(rest);
      check(shared <= key.size() && own <= rest.size() && value <= rest.size() - own,
            "an entry of a block is damaged");
      key.resize(shared);
      key += rest.substr(0, own);
      f(std::string_view(key), rest.substr(own, value));
      rest.remove_prefix(own + value);
    }
  }

  std::string path_;
  std::source_location where_;
  std::string bytes_;
};

int64_t signed_number(uint64_t number) { return static_cast<int64_t>(number); }

}  // namespace

struct TensorflowCheckpoint::Impl {
  std::string prefix;
  std::vector<Entry> entries;
  std::set<std::string> in_pieces;
  int shards = 1;

  void read_header(const TableReader& table, std::string_view value) {
    for (protobuf::Reader reader(value); reader.next();) {
      if (reader.field() == 1) shards = static_cast<int>(reader.integer());
      if (reader.field() == 2)
        table.check(reader.integer() == 0, "was written by a machine of the other order of bytes");
    }
    table.check(shards > 0 && shards < 100'000, "says that it has ", shards, " files of data");
  }

  Shape read_shape(const TableReader& table, const std::string& name, std::string_view value) const {
    Shape shape;
    int64_t count = 1;
    for (protobuf::Reader reader(value); reader.next();) {
      if (reader.field() != 2) continue;
      int64_t size = 0;
      for (protobuf::Reader dimension(reader.bytes()); dimension.next();)
        if (dimension.field() == 1) size = signed_number(dimension.integer());
      table.check(size >= 0 && !__builtin_mul_overflow(count, size, &count) && count < (int64_t{1} << 58),
                  "tensor \"", name, "\" has more elements than can be counted");
      table.check(shape.rank() < kMaxRank, "tensor \"", name, "\" has more than ", kMaxRank, " dimensions");
      shape.push_back(size);
    }
    return shape;
  }

  void read_entry(const TableReader& table, std::string_view key, std::string_view value) {
    Entry entry;
    entry.name = key;
    uint64_t number = 0;
    std::string_view shape;
    bool pieces = false;
    for (protobuf::Reader reader(value); reader.next();) {
      switch (reader.field()) {
        case 1: number = reader.integer(); break;
        case 2: shape = reader.bytes(); break;
        case 3: entry.shard = static_cast<int>(reader.integer()); break;
        case 4: entry.offset = reader.integer(); break;
        case 5: entry.bytes = reader.integer(); break;
        case 6: {
          const float bits = reader.real32();
          std::memcpy(&entry.checksum, &bits, sizeof(bits));
          break;
        }
        case 7: pieces = true; break;
        default: break;
      }
    }
    const std::optional<DType> dtype = dtype_of_number(number);
    // Texts, and numbers that there is no type for, may stand beside the weights.
    if (!dtype) return;
    entry.spec = {*dtype, read_shape(table, entry.name, shape)};
    if (pieces) in_pieces.insert(entry.name);
    table.check(pieces || entry.bytes == entry.spec.bytes(), "tensor \"", entry.name, "\" is ", entry.spec,
                ", which takes ", entry.spec.bytes(), " bytes, but has ", entry.bytes);
    table.check(entry.shard >= 0 && entry.shard < shards, "tensor \"", entry.name, "\" is in file ",
                entry.shard, " of ", shards);
    entries.push_back(std::move(entry));
  }

  std::string shard_path(int shard) const {
    char ending[32];
    std::snprintf(ending, sizeof ending, ".data-%05d-of-%05d", shard, shards);
    return prefix + ending;
  }
};

TensorflowCheckpoint::TensorflowCheckpoint(const std::string& prefix, std::source_location where) {
  auto impl = std::make_shared<Impl>();
  impl->prefix = prefix;
  const TableReader table(prefix + ".index", where);
  bool first = true;
  table.for_each([&](std::string_view key, std::string_view value) {
    table.guarded([&] {
      // The empty key is the first: what holds for all.
      table.check(first == key.empty(), "its index does not begin with what holds for all tensors");
      if (first)
        impl->read_header(table, value);
      else
        impl->read_entry(table, key, value);
    });
    first = false;
  });
  table.check(!first, "its index is empty");
  std::sort(impl->entries.begin(), impl->entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  impl_ = std::move(impl);
}

const std::string& TensorflowCheckpoint::prefix() const { return impl_->prefix; }
std::span<const TensorflowCheckpoint::Entry> TensorflowCheckpoint::entries() const { return impl_->entries; }

const TensorflowCheckpoint::Entry* TensorflowCheckpoint::find(std::string_view name) const {
  const auto found =
      std::lower_bound(impl_->entries.begin(), impl_->entries.end(), name,
                       [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != impl_->entries.end() && found->name == name ? &*found : nullptr;
}

Tensor TensorflowCheckpoint::read(std::string_view name, std::source_location where) const {
  const Entry* entry = find(name);
  if (!entry) {
    std::vector<std::string> names;
    for (const Entry& known : entries()) names.push_back(known.name);
    const std::string near = nearest_spelling(name, names);
    fail(ErrorCode::not_found, where, "TensorFlow checkpoint \"", prefix(), "\" has no tensor \"", name,
         "\" among its ", names.size(), near.empty() ? "" : "; did you mean \"" + near + "\"?");
  }
  require(!impl_->in_pieces.contains(entry->name), ErrorCode::unsupported, where, "TensorFlow checkpoint \"",
          prefix(), "\": \"", name, "\" is kept in pieces, which are not put together");
  const InputFile file(impl_->shard_path(entry->shard), where);
  require(entry->offset <= file.size() && entry->bytes <= file.size() - entry->offset, ErrorCode::io, where,
          "\"", file.path(), "\" ends before tensor \"", name, "\" does; it is truncated");
  std::string bytes(entry->bytes, '\0');
  file.read_at(entry->offset, bytes.data(), bytes.size(), where);
  require(masked_crc32c(crc32c(bytes)) == entry->checksum, ErrorCode::io, where, "\"", file.path(),
          "\": tensor \"", name, "\" does not fit its checksum; the file is damaged");
  if (entry->spec.dtype == DType::boolean)
    require(std::all_of(bytes.begin(), bytes.end(), [](char flag) { return flag == 0 || flag == 1; }),
            ErrorCode::io, where, "\"", file.path(), "\": tensor \"", name,
            "\" has elements that are neither true nor false");
  return tensor_of(entry->spec, bytes);
}

TensorflowCheckpoint load_checkpoint(const std::string& path, std::source_location where) {
  if (!is_folder(path)) return TensorflowCheckpoint(path, where);
  // model_checkpoint_path: "ckpt-3"
  const std::string list = path + "/checkpoint", text = read_file(list, where),
                    key = "model_checkpoint_path: \"";
  const size_t begin = text.find(key);
  const size_t end = begin == std::string::npos ? begin : text.find('"', begin + key.size());
  require(end != std::string::npos, ErrorCode::io, where, "\"", list, "\" names no model_checkpoint_path");
  const std::string name = text.substr(begin + key.size(), end - begin - key.size());
  return TensorflowCheckpoint((std::filesystem::path(path) / name).string(), where);
}

}  // namespace lockstep::train
