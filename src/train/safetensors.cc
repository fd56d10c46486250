#include "lockstep/train/safetensors.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "tensor/tensor_impl.h"
#include "train/safetensors_format.h"

namespace lockstep::train {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

// By DType.
constexpr std::array<std::string_view, kNumDTypes> kDTypeNames{"F32", "F64", "BF16", "F16",
                                                               "I32", "I64", "U8",   "BOOL"};

std::optional<DType> dtype_named(std::string_view name) {
  const auto found = std::find(kDTypeNames.begin(), kDTypeNames.end(), name);
  if (found == kDTypeNames.end()) return std::nullopt;
  return static_cast<DType>(found - kDTypeNames.begin());
}

std::string_view name_of(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

// Checks one file's header.
class HeaderReader {
 public:
  HeaderReader(const InputFile& file, std::source_location where) : file_(file), where_(where) {}

  void read(Metadata& metadata, std::vector<SafetensorsFile::Entry>& entries) {
    check(file_.size() >= kLengthBytes, "it has ", file_.size(),
          " bytes, but the format starts with 8 that hold the length of its header");
    uint64_t length = 0;
    file_.read_at(0, &length, sizeof(length), where_);
    check(length <= kMaxHeaderBytes && length <= file_.size() - kLengthBytes, "a header of ", length,
          " bytes does not fit a file of ", file_.size(), " bytes; it is truncated, or no safetensors file");
    data_ = kLengthBytes + length;
    std::string text(length, '\0');
    file_.read_at(kLengthBytes, text.data(), length, where_);

    const Json header = parse(text);
    check(header.is_object(), "the header is not a JSON object");
    for (const auto& [name, value] : header.members()) {
      if (name == kMetadata) {
        read_metadata(value, metadata);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    check_coverage(entries);
  }

 private:
  template <class... Parts>
  void check(bool holds, const Parts&... rule) const {
    require(holds, ErrorCode::io, where_, "safetensors file \"", file_.path(), "\": ", rule...);
  }

  Json parse(const std::string& text) const {
    try {
      return Json::parse(text, "the header", where_);
    } catch (const Error& error) {
      check(false, error.message());
      throw;
    }
  }

  void read_metadata(const Json& json, Metadata& metadata) const {
    check(json.is_object(), "__metadata__ is ", json, ", not an object of strings");
    for (const auto& [key, value] : json.members()) {
      check(value.is_string(), "__metadata__ holds ", value, " under \"", key,
            "\", but may hold strings only");
      metadata[key] = value.as_string();
    }
  }

  int64_t natural(const std::string& name, const char* field, const Json& json) const {
    check(json.is_int() && json.as_int() >= 0, "tensor \"", name, "\": ", field, " holds ", json,
          ", not an integer from 0");
    return json.as_int();
  }

  SafetensorsFile::Entry read_entry(const std::string& name, const Json& json) const {
    const Json* dtype = json.find("dtype");
    const Json* shape = json.find("shape");
    const Json* offsets = json.find("data_offsets");
    check(dtype && dtype->is_string() && shape && shape->is_list() && offsets && offsets->is_list() &&
              offsets->items().size() == 2,
          "tensor \"", name, "\" needs a dtype, a shape and two data_offsets, but has ", json);
    const std::optional<DType> known = dtype_named(dtype->as_string());
    if (!known) {
      fail(ErrorCode::unsupported, where_, "safetensors file \"", file_.path(), "\": tensor \"", name,
           "\" has dtype ", dtype->as_string(), "; readable are F32, F64, BF16, F16, I32, I64, U8 and BOOL");
    }
    SafetensorsFile::Entry entry{name, {*known, {}}, 0};
    check(shape->items().size() <= kMaxRank, "tensor \"", name, "\" has ", shape->items().size(),
          " dimensions; at most ", kMaxRank, " are supported");
    auto bytes = static_cast<int64_t>(size_of(*known));
    for (const Json& dimension : shape->items()) {
      const int64_t size = natural(name, "shape", dimension);
      entry.spec.shape.push_back(size);
      check(!__builtin_mul_overflow(bytes, size, &bytes), "tensor \"", name, "\": the shape ", *shape,
            " has more elements than can be counted");
    }
    const int64_t begin = natural(name, "data_offsets", offsets->items()[0]);
    const int64_t end = natural(name, "data_offsets", offsets->items()[1]);
    check(begin <= end && static_cast<uint64_t>(end) <= file_.size() - data_, "tensor \"", name,
          "\": data_offsets ", *offsets, " lie outside of the ", file_.size() - data_,
          " bytes of data; the file is truncated or damaged");
    check(end - begin == bytes, "tensor \"", name, "\": ", entry.spec, " takes ", bytes,
          " bytes, but data_offsets ", *offsets, " give it ", end - begin);
    entry.offset = data_ + static_cast<uint64_t>(begin);
    return entry;
  }

  void check_coverage(const std::vector<SafetensorsFile::Entry>& entries) const {
    std::vector<const SafetensorsFile::Entry*> by_offset;
    for (const auto& entry : entries) by_offset.push_back(&entry);
    std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
      return std::pair(a->offset, a->spec.bytes()) < std::pair(b->offset, b->spec.bytes());
    });
    uint64_t end = data_;
    for (const auto* entry : by_offset) {
      check(entry->offset == end, "tensor \"", entry->name, "\" starts at byte ", entry->offset - data_,
            " of the data, but the one before it ends at ", end - data_,
            "; tensors must follow each other without overlap or holes");
      end += entry->spec.bytes();
    }
    check(end == file_.size(), file_.size() - end, " bytes at the end belong to no tensor");
  }

  const InputFile& file_;
  std::source_location where_;
  uint64_t data_ = 0;  // where the tensors' bytes start
};

std::string header_text(const NamedTensors& tensors, const std::vector<uint64_t>& offsets,
                        const Metadata& metadata) {
  Json::Members members;
  if (!metadata.empty()) {
    Json::Members strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, value);
    members.emplace_back(kMetadata, Json::object(std::move(strings)));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    Json::List shape(tensor.shape().begin(), tensor.shape().end());
    members.emplace_back(
        name, Json::object({{"dtype", name_of(tensor.dtype())},
                            {"shape", std::move(shape)},
                            {"data_offsets", Json::List{offsets[i], offsets[i] + tensor.spec().bytes()}}}));
  }
  std::string text = Json::object(std::move(members)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void check_text(const std::string& path, const char* what, const std::string& text,
                std::source_location where) {
  // Json writes a replacement for what is no UTF-8.
  require(Json::parse(Json(text).dump()).as_string() == text, ErrorCode::invalid_argument, where,
          "save_safetensors(\"", path, "\"): ", what, " ", Json(text), " is not UTF-8");
}

void write_elements(AtomicFile& file, const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  const size_t bytes = tensor.spec().bytes();
  if (tensor.device().kind() == DeviceKind::cpu && is_contiguous(tensor.shape(), impl.strides)) {
    file.write(impl.data(), bytes);
    return;
  }
  dispatch(tensor.dtype(), [&]<class T>() {
    const std::vector<T> elements = tensor.to_vector<T>();
    if constexpr (std::is_same_v<T, bool>) {
      const std::vector<uint8_t> flags(elements.begin(), elements.end());
      file.write(flags.data(), bytes);
    } else {
      file.write(elements.data(), bytes);
    }
  });
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(InputFile opened) : file(std::move(opened)) {}
  InputFile file;
  Metadata metadata;
  std::vector<Entry> entries;
  std::unordered_map<std::string_view, size_t> by_name;  // views of the entries' names
};

void save_safetensors(const std::string& path, const NamedTensors& tensors, const SafetensorsOptions& options,
                      std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "save_safetensors(\"", path, "\"): ", rule...);
  };
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    check(name != kMetadata, "\"__metadata__\" is no name for a tensor: the format uses it itself");
    check(names.insert(name).second, "two tensors are called \"", name, "\"; give each a name of its own");
    check_text(path, "the tensor's name", name, where);
    check(tensor.defined() && !tensor.symbolic(), "tensor \"", name,
          tensor.defined() ? "\" belongs to a traced function and has no elements; save outside of it"
                           : "\" is none");
    check(backend_of(tensor.device()).has_memory(), "tensor \"", name, "\" is on ", tensor.device(),
          ", which holds no elements");
  }
  for (const auto& [key, value] : options.metadata) {
    check_text(path, "the metadata's key", key, where);
    check_text(path, "the metadata's value", value, where);
  }

  // Wide elements first: every tensor is then aligned in a file that is mapped into memory.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });
  std::vector<uint64_t> offsets(tensors.size());
  uint64_t end = 0;
  for (const size_t i : order) {
    offsets[i] = end;
    end += tensors[i].second.spec().bytes();
  }

  const std::string header = header_text(tensors, offsets, options.metadata);
  check(header.size() <= kMaxHeaderBytes, "the names and shapes take ", header.size(),
        " bytes; the format allows ", kMaxHeaderBytes);
  AtomicFile file(path, where);
  const uint64_t length = header.size();
  file.write(&length, sizeof(length));
  file.write(header);
  for (const size_t i : order) write_elements(file, tensors[i].second);
  file.commit();
}

NamedTensors load_safetensors(const std::string& path, std::source_location where) {
  const SafetensorsFile file(path, where);
  NamedTensors tensors;
  for (const auto& entry : file.entries()) tensors.emplace_back(entry.name, file.read(entry.name, where));
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::string& path, std::source_location where) {
  auto impl = std::make_shared<Impl>(InputFile(path, where));
  HeaderReader(impl->file, where).read(impl->metadata, impl->entries);
  for (size_t i = 0; i < impl->entries.size(); ++i) impl->by_name.emplace(impl->entries[i].name, i);
  impl_ = std::move(impl);
}

const std::string& SafetensorsFile::path() const { return impl_->file.path(); }
const Metadata& SafetensorsFile::metadata() const { return impl_->metadata; }
std::span<const SafetensorsFile::Entry> SafetensorsFile::entries() const { return impl_->entries; }

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : &impl_->entries[found->second];
}

const SafetensorsFile::Entry& SafetensorsFile::entry(std::string_view name,
                                                     std::source_location where) const {
  if (const Entry* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const Entry& e : entries()) names.push_back(e.name);
  const std::string nearest = nearest_spelling(name, names);
  fail(ErrorCode::not_found, where, "safetensors file \"", path(), "\" has no tensor \"", name,
       "\" among its ", names.size(), nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
}

Tensor SafetensorsFile::read(std::string_view name, std::source_location where) const {
  const auto& [_, spec, offset] = entry(name, where);
  const size_t bytes = spec.bytes();
  Tensor tensor = Tensor::empty(spec.dtype, spec.shape, current_device(), where);
  std::vector<uint8_t> buffer;
  void* target = tensor.impl()->data();
  if (tensor.device().kind() != DeviceKind::cpu) {
    buffer.resize(bytes);
    target = buffer.data();
  }
  impl_->file.read_at(offset, target, bytes, where);
  if (spec.dtype == DType::boolean) {
    const std::span flags(static_cast<const uint8_t*>(target), bytes);
    require(std::all_of(flags.begin(), flags.end(), [](uint8_t flag) { return flag <= 1; }), ErrorCode::io,
            where, "safetensors file \"", path(), "\": tensor \"", name,
            "\" is BOOL but has bytes that are neither 0 nor 1");
  }
  if (!buffer.empty())
    backend_of(tensor.device()).copy_from_host(tensor.impl()->data(), buffer.data(), bytes);
  return tensor;
}

NamedTensors SafetensorsFile::read(std::span<const std::string> names, std::source_location where) const {
  NamedTensors tensors;
  for (const std::string& name : names) tensors.emplace_back(name, read(name, where));
  return tensors;
}

}  // namespace lockstep::train
