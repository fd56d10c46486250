#include "lockstep/train/checkpoint_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <unordered_map>

#include "base/file.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/train/safetensors.h"
#include "tensor/tensor_impl.h"
#include "train/checkpoint_format.h"
#include "train/safetensors_format.h"

namespace lockstep::train {
namespace {

// Tensors begin on a page of their own, so that the file is written in whole ones.
constexpr size_t kPage = 4096;
constexpr int64_t kVersion = 1;
// The header's text begins so. Then come the eight digits of its checksum, taken with zeros in their place.
constexpr std::string_view kCheckpointMagic = R"({"__metadata__":{"header_crc32c":")";
constexpr size_t kDigits = 8;
constexpr std::string_view kZeros = "00000000";

std::string hex(uint32_t checksum) { return fmt::format("{:08x}", checksum); }

std::string_view dtype_text(DType dtype) {
  constexpr std::string_view kNames[kNumDTypes] = {"F32", "F64", "BF16", "F16", "I32", "I64", "U8", "BOOL"};
  return kNames[static_cast<size_t>(dtype)];
}

uint32_t parse_hex(const std::string& path, const std::string& name, const Json& json) {
  uint32_t value = 0;
  const std::string text = json.is_string() ? json.as_string() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(text.size() == kDigits && error == std::errc() && end == text.data() + text.size(), ErrorCode::io,
          std::source_location::current(), "checkpoint \"", path, "\": the checksum of tensor \"", name,
          "\" is ", json, ", not eight hexadecimal digits");
  return value;
}

uint32_t checksum_of(const Tensor& tensor) {
  const size_t bytes = tensor.spec().bytes();
  if (tensor.device().kind() == DeviceKind::cpu)
    return crc32c({static_cast<const char*>(tensor.impl()->data()), bytes});
  std::string copy(bytes, '\0');
  backend_of(tensor.device()).copy_to_host(copy.data(), tensor.impl()->data(), bytes);
  return crc32c(copy);
}

// The header's text, which must have the checksum that it names.
void check_header(const std::string& path, std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::io, where, "checkpoint \"", path, "\": ", rule...);
  };
  const InputFile file(path, where);
  const size_t least = kLengthBytes + kCheckpointMagic.size() + kDigits;
  check(file.size() >= least, "it has ", file.size(), " bytes: truncated, or no checkpoint");
  std::string begin(least, '\0');
  file.read_at(0, begin.data(), begin.size(), where);
  check(std::string_view(begin).substr(kLengthBytes, kCheckpointMagic.size()) == kCheckpointMagic,
        "its header does not begin as a checkpoint's; it is damaged, or another kind of file (weights that "
        "were saved by themselves are for load_weights() or load_safetensors())");
  uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof(length));
  check(length <= kMaxHeaderBytes && length >= kCheckpointMagic.size() + kDigits &&
            length <= file.size() - kLengthBytes,
        "a header of ", length, " bytes does not fit a file of ", file.size(), " bytes; it is truncated");
  std::string text(length, '\0');
  file.read_at(kLengthBytes, text.data(), length, where);
  const std::string named = text.substr(kCheckpointMagic.size(), kDigits);
  text.replace(kCheckpointMagic.size(), kDigits, kZeros);
  check(hex(crc32c(text)) == named, "its header is damaged (checksum ", hex(crc32c(text)), ", not ", named,
        ")");
}

}  // namespace

std::string join_names(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a + b;
  return a + "/" + b;
}

uint64_t lay_out(std::vector<CheckpointFile::Entry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(entries[a].spec.dtype) > size_of(entries[b].spec.dtype);
  });
  uint64_t end = 0;
  for (const size_t i : order) {
    entries[i].offset = end;
    end += entries[i].spec.bytes();
  }
  return end;
}

std::string header_bytes(const CheckpointHeader& header) {
  Json tensors = Json::list();
  for (const auto& entry : header.entries) {
    Json tensor = Json::object({{"name", entry.name}, {"crc32c", hex(entry.crc32c)}});
    if (!entry.variable.empty()) tensor.set("variable", entry.variable);
    tensors.push_back(std::move(tensor));
  }
  const Json manifest = Json::object({{"format", "lockstep checkpoint"},
                                      {"version", kVersion},
                                      {"library", LOCKSTEP_VERSION},
                                      {"save_counter", header.save_counter},
                                      {"saved_at", header.saved_at},
                                      {"objects", header.objects},
                                      {"tensors", std::move(tensors)}});
  Json::Members members;
  members.emplace_back("__metadata__",
                       Json::object({{"header_crc32c", kZeros}, {"manifest", manifest.dump()}}));
  for (const auto& entry : header.entries) {
    Json::List shape(entry.spec.shape.begin(), entry.spec.shape.end());
    members.emplace_back(
        entry.name,
        Json::object({{"dtype", dtype_text(entry.spec.dtype)},
                      {"shape", std::move(shape)},
                      {"data_offsets", Json::List{entry.offset, entry.offset + entry.spec.bytes()}}}));
  }
  std::string text = Json::object(std::move(members)).dump();
  require(text.starts_with(kCheckpointMagic), ErrorCode::internal, std::source_location::current(),
          "a checkpoint's header begins with ", text.substr(0, kCheckpointMagic.size()));
  text.resize((text.size() + kLengthBytes + kPage - 1) / kPage * kPage - kLengthBytes, ' ');
  require(text.size() <= kMaxHeaderBytes, ErrorCode::invalid_argument, std::source_location::current(),
          "the names and shapes of this checkpoint take ", text.size(), " bytes; the format allows ",
          kMaxHeaderBytes);
  text.replace(kCheckpointMagic.size(), kDigits, hex(crc32c(text)));
  const uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

bool looks_like_checkpoint(const std::string& path) {
  try {
    const InputFile file(path);
    std::string begin(std::min<uint64_t>(file.size(), kLengthBytes + kCheckpointMagic.size()), '\0');
    file.read_at(0, begin.data(), begin.size());
    return begin.size() > kLengthBytes && std::string_view(begin).substr(kLengthBytes) == kCheckpointMagic;
  } catch (const Error&) {
    return false;
  }
}

struct CheckpointFile::Impl {
  explicit Impl(const std::string& path, std::source_location where) : file(path, where) {}
  SafetensorsFile file;
  std::vector<Entry> entries;
  std::unordered_map<std::string_view, size_t> by_name;  // views of the entries' names
  Json objects;
  std::string library_version;
  int64_t save_counter = 0;
  double saved_at = 0;
};

CheckpointFile::CheckpointFile(const std::string& given, std::source_location where) {
  std::string path = given;
  if (!path.ends_with(kCheckpointEnding)) path += kCheckpointEnding;
  check_header(path, where);
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::io, where, "checkpoint \"", path, "\": ", rule...);
  };
  auto impl = std::make_shared<Impl>(path, where);
  const auto text = impl->file.metadata().find("manifest");
  check(text != impl->file.metadata().end(), "its header has no manifest");
  // Whatever the manifest holds, what is wrong with it is an Error(io).
  try {
    const Json manifest = Json::parse(text->second, "the manifest", where);
    check(manifest.at("format").as_string() == "lockstep checkpoint", "its manifest is of another format, ",
          manifest.at("format"));
    check(manifest.at("version").as_int() == kVersion, "its manifest is of version ", manifest.at("version"),
          ", written by Lockstep ", manifest.at("library"), "; this one, ", LOCKSTEP_VERSION,
          ", reads version ", kVersion);
    impl->library_version = manifest.at("library").as_string();
    impl->save_counter = manifest.at("save_counter").as_int();
    impl->saved_at = manifest.at("saved_at").as_double();
    impl->objects = manifest.at("objects");
    check(impl->objects.is_object(), "\"objects\" in its manifest is ", impl->objects);
    const Json& tensors = manifest.at("tensors");
    const auto entries = impl->file.entries();
    check(tensors.items().size() == entries.size(), "its manifest lists ", tensors.items().size(),
          " tensors, its header ", entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      const Json& tensor = tensors.at(i);
      check(tensor.at("name").as_string() == entries[i].name, "its manifest lists ", tensor.at("name"),
            " where its header has \"", entries[i].name, "\"");
      const Json* variable = tensor.find("variable");
      impl->entries.push_back({.name = entries[i].name,
                               .spec = entries[i].spec,
                               .offset = entries[i].offset,
                               .crc32c = parse_hex(path, entries[i].name, tensor.at("crc32c")),
                               .variable = variable ? variable->as_string() : ""});
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    check(false, "its manifest is damaged: ", error.message());
  }
  for (size_t i = 0; i < impl->entries.size(); ++i) impl->by_name.emplace(impl->entries[i].name, i);
  impl_ = std::move(impl);
}

const std::string& CheckpointFile::path() const { return impl_->file.path(); }
std::span<const CheckpointFile::Entry> CheckpointFile::entries() const& { return impl_->entries; }
const Json& CheckpointFile::objects() const { return impl_->objects; }
const std::string& CheckpointFile::library_version() const { return impl_->library_version; }
int64_t CheckpointFile::save_counter() const { return impl_->save_counter; }
double CheckpointFile::saved_at() const { return impl_->saved_at; }

const CheckpointFile::Entry* CheckpointFile::find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : &impl_->entries[found->second];
}

Tensor CheckpointFile::read(std::string_view name, std::source_location where) const {
  Tensor tensor = impl_->file.read(name, where);
  const Entry& entry = *find(name);
  const uint32_t checksum = checksum_of(tensor);
  require(checksum == entry.crc32c, ErrorCode::io, where, "checkpoint \"", path(), "\": tensor \"", name,
          "\" (", entry.spec, ") is damaged: its checksum is ", hex(checksum), ", it was saved with ",
          hex(entry.crc32c));
  return tensor;
}

std::vector<std::string> CheckpointFile::verify() const {
  std::vector<std::string> wrong;
  for (const Entry& entry : entries()) try {
      read(entry.name);
    } catch (const Error& error) {
      wrong.push_back(error.message());
    }
  return wrong;
}

}  // namespace lockstep::train
