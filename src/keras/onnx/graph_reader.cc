#include "keras/onnx/graph_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/protobuf.h"
#include "graph/tensor_bytes.h"
#include "lockstep/base/error.h"

namespace lockstep::keras::onnx {
namespace {

using protobuf::Reader;
using protobuf::WireType;

int64_t signed_of(uint64_t number) { return static_cast<int64_t>(number); }

// A list of integers, one field each or all in one.
void add_integers(const Reader& reader, std::vector<int64_t>& list) {
  if (reader.type() == WireType::varint) return list.push_back(signed_of(reader.integer()));
  for (std::string_view rest = reader.bytes(); !rest.empty();)
    list.push_back(signed_of(protobuf::take_varint(rest)));
}

template <class T>
T number_at(std::string_view bytes, size_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

// Fields are known by the numbers that onnx.proto has for them.
class FileReader {
 public:
  FileReader(const std::optional<std::string>& beside, std::source_location where)
      : beside_(beside), where_(where) {}

  GraphFile read(std::string_view bytes) {
    std::optional<std::string_view> graph;
    for (Reader model(bytes, where_); model.next();) {
      if (model.field() == 7) graph = model.bytes();
      if (model.field() == 8) read_opset(model.bytes());
      require(model.field() != 25, ErrorCode::unsupported, where_,
              "functions of the file's own are not read; inline them (onnx.inliner) before");
    }
    require(graph.has_value(), ErrorCode::io, where_, "there is no graph in it: it is no ONNX model");
    require(file_.opset >= 7, ErrorCode::unsupported, where_, "operators of version ", file_.opset,
            " are not read, those from 7 on are; onnx.version_converter converts a file");
    read_graph(*graph);
    return std::move(file_);
  }

 private:
  void read_opset(std::string_view bytes) {
    std::string domain;
    int64_t version = 0;
    for (Reader reader(bytes, where_); reader.next();) {
      if (reader.field() == 1) domain = reader.bytes();
      if (reader.field() == 2) version = signed_of(reader.integer());
    }
    if (domain.empty() || domain == "ai.onnx") file_.opset = version;
  }

  void read_graph(std::string_view bytes) {
    std::set<std::string> constants;
    for (Reader reader(bytes, where_); reader.next();) {
      switch (reader.field()) {
        case 1: file_.nodes.push_back(read_node(reader.bytes())); break;
        case 2: file_.name = reader.bytes(); break;
        case 5: {
          auto [name, tensor] = read_tensor(reader.bytes());
          require(constants.insert(name).second, ErrorCode::io, where_, "there are two constants \"", name,
                  "\"");
          file_.constants.emplace_back(std::move(name), std::move(tensor));
          break;
        }
        case 11: file_.inputs.push_back(read_value(reader.bytes())); break;
        case 12: file_.outputs.push_back(read_value(reader.bytes(), false).name); break;
        case 15: fail(ErrorCode::unsupported, where_, "sparse constants are not read");
        default: break;
      }
    }
    // Old files list constants among the inputs.
    std::erase_if(file_.inputs, [&](const GraphValue& input) { return constants.contains(input.name); });
    require(!file_.outputs.empty(), ErrorCode::io, where_, "the graph has no outputs");
  }

  Node read_node(std::string_view bytes) {
    Node node;
    std::string domain;
    for (Reader reader(bytes, where_); reader.next();) {
      switch (reader.field()) {
        case 1: node.inputs.emplace_back(reader.bytes()); break;
        case 2: node.outputs.emplace_back(reader.bytes()); break;
        case 3: node.name = reader.bytes(); break;
        case 4: node.op = reader.bytes(); break;
        case 5: node.attributes.insert(read_attribute(reader.bytes())); break;
        case 7: domain = reader.bytes(); break;
        default: break;
      }
    }
    if (!domain.empty() && domain != "ai.onnx") node.op = domain + "." + node.op;
    return node;
  }

  std::pair<std::string, NodeAttribute> read_attribute(std::string_view bytes) {
    std::string name;
    NodeAttribute attribute;
    for (Reader reader(bytes, where_); reader.next();) {
      switch (reader.field()) {
        case 1: name = reader.bytes(); break;
        case 2: attribute.real = reader.real32(); break;
        case 3: attribute.integer = signed_of(reader.integer()); break;
        case 4: attribute.text = reader.bytes(); break;
        case 5: attribute.tensor = read_tensor(reader.bytes()).second; break;
        case 7:
          if (reader.type() == WireType::fixed32) {
            attribute.reals.push_back(reader.real32());
          } else {
            const std::string_view packed = reader.bytes();
            for (size_t i = 0; i < packed.size() / sizeof(float); ++i)
              attribute.reals.push_back(number_at<float>(packed, i));
          }
          break;
        case 8: add_integers(reader, attribute.integers); break;
        default: break;
      }
    }
    return {std::move(name), std::move(attribute)};
  }

  // `typed`: what it is must be known.
  GraphValue read_value(std::string_view bytes, bool typed = true) {
    GraphValue value;
    int64_t dtype = 0;
    std::optional<std::string_view> shape;
    for (Reader reader(bytes, where_); reader.next();) {
      if (reader.field() == 1) value.name = reader.bytes();
      if (reader.field() != 2) continue;
      for (Reader type(reader.bytes(), where_); type.next();) {
        if (type.field() != 1) continue;
        for (Reader tensor(type.bytes(), where_); tensor.next();) {
          if (tensor.field() == 1) dtype = signed_of(tensor.integer());
          if (tensor.field() == 2) shape = tensor.bytes();
        }
      }
    }
    if (!typed) return value;
    const std::optional<DType> known = dtype_of(dtype);
    require(known && shape, ErrorCode::unsupported, where_, "input \"", value.name,
            known ? "\" has no shape" : "\" is no tensor of a type that there is here");
    value.spec.dtype = *known;
    for (Reader reader(*shape, where_); reader.next();) {
      if (reader.field() != 1) continue;
      int64_t size = -1;
      for (Reader dimension(reader.bytes(), where_); dimension.next();)
        if (dimension.field() == 1) size = std::max<int64_t>(-1, signed_of(dimension.integer()));
      require(value.spec.shape.rank() < kMaxRank, ErrorCode::unsupported, where_, "input \"", value.name,
              "\" has more than ", kMaxRank, " dimensions");
      value.spec.shape.push_back(size);
    }
    return value;
  }

  std::pair<std::string, Tensor> read_tensor(std::string_view bytes) {
    std::string name;
    std::vector<int64_t> sizes, integers;
    int64_t number = 0;
    bool outside = false;
    std::string elements;  // as they lie in memory
    std::map<std::string, std::string> place;
    for (Reader reader(bytes, where_); reader.next();) {
      switch (reader.field()) {
        case 1: add_integers(reader, sizes); break;
        case 2: number = signed_of(reader.integer()); break;
        case 4:  // float_data, double_data: packed, or one by one
        case 10:
          if (reader.type() == WireType::fixed32) {
            const float value = reader.real32();
            elements.append(reinterpret_cast<const char*>(&value), sizeof value);
          } else if (reader.type() == WireType::fixed64) {
            const double value = reader.real64();
            elements.append(reinterpret_cast<const char*>(&value), sizeof value);
          } else {
            elements += reader.bytes();
          }
          break;
        case 5:  // int32_data: also of smaller types, and of the bits of 16-bit floats
        case 7: add_integers(reader, integers); break;
        case 8: name = reader.bytes(); break;
        case 9: elements = reader.bytes(); break;
        case 13: place.insert(read_entry(reader.bytes())); break;
        case 14: outside = reader.integer() == 1; break;
        default: break;
      }
    }
    const std::optional<DType> dtype = dtype_of(number);
    require(dtype.has_value(), ErrorCode::unsupported, where_, "constant \"", name,
            "\" has elements of type ", number, " of onnx.proto, which there is not here");
    require(sizes.size() <= static_cast<size_t>(kMaxRank) &&
                std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; }),
            ErrorCode::unsupported, where_, "constant \"", name, "\" has more than ", kMaxRank,
            " dimensions, or negative ones");
    const TensorSpec spec{*dtype, Shape(std::span<const int64_t>(sizes))};
    const auto width = static_cast<int64_t>(size_of(*dtype));
    // What the file has is compared with the shape before memory is taken for that.
    const auto check_size = [&](uint64_t there) {
      require(
          spec.shape.size() <= INT64_MAX / width && static_cast<uint64_t>(spec.shape.size() * width) == there,
          ErrorCode::io, where_, "constant \"", name, "\" should be ", spec, ", and has ", there,
          " bytes; the file is damaged");
    };
    if (outside) return {name, read_outside(name, spec, place, check_size)};
    if (elements.empty() && !integers.empty()) {
      check_size(integers.size() * static_cast<uint64_t>(width));
      for (const int64_t value : integers)  // little-endian, as everywhere here
        elements.append(reinterpret_cast<const char*>(&value), static_cast<size_t>(width));
    }
    check_size(elements.size());
    return {name, tensor_of(spec, elements)};
  }

  std::pair<std::string, std::string> read_entry(std::string_view bytes) {
    std::pair<std::string, std::string> entry;
    for (Reader reader(bytes, where_); reader.next();) {
      if (reader.field() == 1) entry.first = reader.bytes();
      if (reader.field() == 2) entry.second = reader.bytes();
    }
    return entry;
  }

  // In a file beside this one, which it names.
  template <class CheckSize>
  Tensor read_outside(const std::string& name, const TensorSpec& spec,
                      std::map<std::string, std::string>& place, const CheckSize& check_size) {
    const std::filesystem::path location = place["location"];
    const bool inside =
        location.is_relative() && !location.empty() &&
        std::none_of(location.begin(), location.end(), [](const auto& part) { return part == ".."; });
    require(inside && beside_, ErrorCode::io, where_, "constant \"", name, "\" is kept in \"",
            location.string(), "\", which is no file beside this one");
    const InputFile file((std::filesystem::path(*beside_) / location).string(), where_);
    const auto number = [&](const char* key, uint64_t otherwise) {
      const std::string& text = place[key];
      return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
    };
    const uint64_t offset = number("offset", 0);
    require(offset <= file.size(), ErrorCode::io, where_, "\"", file.path(), "\" ends before constant \"",
            name, "\"");
    const uint64_t length = number("length", file.size() - offset);
    check_size(length);
    require(length <= file.size() - offset, ErrorCode::io, where_, "\"", file.path(),
            "\" ends in constant \"", name, "\"");
    std::string elements(length, '\0');
    file.read_at(offset, elements.data(), length, where_);
    return tensor_of(spec, elements);
  }

  const std::optional<std::string>& beside_;
  std::source_location where_;
  GraphFile file_;
};

}  // namespace

std::optional<DType> dtype_of(int64_t number) {
  switch (number) {
    case 1: return DType::float32;
    case 2: return DType::uint8;
    case 6: return DType::int32;
    case 7: return DType::int64;
    case 9: return DType::boolean;
    case 10: return DType::float16;
    case 11: return DType::float64;
    case 16: return DType::bfloat16;
    default: return std::nullopt;
  }
}

GraphFile read_graph(std::string_view bytes, const std::optional<std::string>& beside,
                     std::source_location where) {
  return FileReader(beside, where).read(bytes);
}

}  // namespace lockstep::keras::onnx
