#include "lockstep/data/example.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "base/protobuf.h"
#include "data/host.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

using protobuf::Reader;
using protobuf::WireType;
using protobuf::Writer;

// TensorFlow's numbers of fields, message by message.
constexpr int kFeatures = 1;                                   // of an Example
constexpr int kFeature = 1;                                    // of Features, a map
constexpr int kKey = 1, kValue = 2;                            // of its entries
constexpr int kBytesList = 1, kFloatList = 2, kInt64List = 3;  // of a Feature, one of them
constexpr int kListValue = 1;                                  // of a list

const char* kind_name(int kind) {
  return kind == kBytesList ? "byte strings" : kind == kFloatList ? "float32" : "int64";
}
int kind_of(DType dtype) {
  return dtype == DType::uint8 ? kBytesList : dtype == DType::float32 ? kFloatList : kInt64List;
}

// f(name, feature) for every feature, in order. The last one of a name counts, as in every map.
template <class F>
void for_each_feature(std::string_view example, std::source_location where, F f) {
  for (Reader message(example, where); message.next();) {
    if (message.field() != kFeatures) continue;
    for (Reader features(message.bytes(), where); features.next();) {
      if (features.field() != kFeature) continue;
      std::string_view name, feature;
      for (Reader entry(features.bytes(), where); entry.next();) {
        if (entry.field() == kKey) name = entry.bytes();
        if (entry.field() == kValue) feature = entry.bytes();
      }
      f(name, feature);
    }
  }
}

// One of the lists: what kind, and the message that holds it. 0 where the feature is empty.
struct List {
  int kind = 0;
  std::string_view text;
};

List list_of(std::string_view feature, std::source_location where) {
  List list;
  for (Reader reader(feature, where); reader.next();)
    if (reader.field() >= kBytesList && reader.field() <= kInt64List) list = {reader.field(), reader.bytes()};
  return list;
}

template <class F>
void for_each_string(const List& list, std::source_location where, F f) {
  for (Reader reader(list.text, where); reader.next();)
    if (reader.field() == kListValue) f(reader.bytes());
}

// How many elements a list of numbers has, or bytes one of byte strings.
int64_t count_values(const List& list, std::source_location where) {
  int64_t count = 0;
  for (Reader reader(list.text, where); reader.next();) {
    if (reader.field() != kListValue) continue;
    if (list.kind == kBytesList) {
      count += std::ssize(reader.bytes());
    } else if (reader.type() != WireType::bytes) {
      ++count;
    } else if (list.kind == kFloatList) {
      require(reader.bytes().size() % sizeof(float) == 0, ErrorCode::io, where,
              "protocol buffer: ", reader.bytes().size(), " bytes of packed float32s");
      count += std::ssize(reader.bytes()) / static_cast<int64_t>(sizeof(float));
    } else {
      // Every number has one byte that says that it is its last.
      count += std::count_if(reader.bytes().begin(), reader.bytes().end(),
                             [](char byte) { return static_cast<uint8_t>(byte) < 0x80; });
    }
  }
  return count;
}

// The elements, in order; `target` has room for count_values() of them. Packed or not: writers may choose.
void write_values(const List& list, std::source_location where, char* target) {
  const auto put = [&](const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(target, from, bytes);
    target += bytes;
  };
  for (Reader reader(list.text, where); reader.next();) {
    if (reader.field() != kListValue) continue;
    if (list.kind != kInt64List && reader.type() == WireType::bytes) {
      put(reader.bytes().data(), reader.bytes().size());
    } else if (list.kind == kFloatList) {
      const float value = reader.real32();
      put(&value, sizeof(value));
    } else if (reader.type() == WireType::bytes) {
      for (std::string_view packed = reader.bytes(); !packed.empty();) {
        const uint64_t value = protobuf::take_varint(packed, where);
        put(&value, sizeof(value));
      }
    } else {
      const uint64_t value = reader.integer();
      put(&value, sizeof(value));
    }
  }
}

template <class T>
std::vector<T> numbers_of(const List& list, std::source_location where) {
  std::vector<T> values(static_cast<size_t>(count_values(list, where)));
  write_values(list, where, reinterpret_cast<char*>(values.data()));
  return values;
}

char* data_of(const Tensor& tensor) { return static_cast<char*>(tensor.impl()->data()); }

const Structure& ragged() {
  static const Structure structure = Structure::dict({{"values", {}}, {"lengths", {}}});
  return structure;
}

}  // namespace

// --- Example ---

Example& Example::set(const std::string& name, Feature feature) {
  features_.insert_or_assign(name, std::move(feature));
  return *this;
}

Example& Example::tensor(const std::string& name, const Tensor& value, std::source_location where) {
  switch (value.dtype()) {
    case DType::float32: return floats(name, value.to_vector<float>(where));
    case DType::int64: return ints(name, value.to_vector<int64_t>(where));
    case DType::uint8: {
      const std::vector<uint8_t> elements = value.to_vector<uint8_t>(where);
      return set(name, BytesList{std::string(elements.begin(), elements.end())});
    }
    default:
      fail(ErrorCode::dtype_mismatch, where, "Example: feature \"", name, "\" is ", value.spec(),
           "; an Example holds float32, int64 and bytes (uint8): cast it first");
  }
}

std::string Example::serialize() const {
  Writer features;
  for (const auto& [name, feature] : features_) {
    Writer list;
    int kind = 0;
    if (const auto* strings = std::get_if<BytesList>(&feature)) {
      kind = kBytesList;
      for (const std::string& value : *strings) list.bytes(kListValue, value);
    } else if (const auto* floats = std::get_if<FloatList>(&feature)) {
      kind = kFloatList;
      if (!floats->empty())
        list.bytes(kListValue,
                   {reinterpret_cast<const char*>(floats->data()), floats->size() * sizeof(float)});
    } else {
      kind = kInt64List;
      std::string packed;
      for (const int64_t value : std::get<IntList>(feature))
        protobuf::append_varint(packed, static_cast<uint64_t>(value));
      if (!packed.empty()) list.bytes(kListValue, packed);
    }
    features.message(kFeature, Writer().bytes(kKey, name).message(kValue, Writer().message(kind, list)));
  }
  return Writer().message(kFeatures, features).text();
}

Example Example::parse(std::string_view text, std::source_location where) {
  Example example;
  for_each_feature(text, where, [&](std::string_view name, std::string_view feature) {
    const List list = list_of(feature, where);
    Feature values;
    if (list.kind == kBytesList) {
      BytesList strings;
      for_each_string(list, where, [&](std::string_view value) { strings.emplace_back(value); });
      values = std::move(strings);
    } else if (list.kind == kFloatList) {
      values = numbers_of<float>(list, where);
    } else if (list.kind == kInt64List) {
      values = numbers_of<int64_t>(list, where);
    } else {
      return;
    }
    example.set(std::string(name), std::move(values));
  });
  return example;
}

// --- ExampleParser ---

struct ExampleParser::Impl {
  struct Wanted {
    std::string name;
    FeatureSpec spec;
    int64_t size;               // of elements, where they are fixed
    std::vector<char> missing;  // the default's elements

    bool string_list() const { return spec.variable_length && spec.dtype == DType::uint8; }
    bool any_length() const { return spec.variable_length || byte_string(); }
    // One byte string of any length.
    bool byte_string() const {
      return !spec.variable_length && spec.dtype == DType::uint8 && spec.shape.rank() == 0;
    }
  };

  std::source_location where;
  std::vector<Wanted> wanted;
  std::unordered_map<std::string_view, size_t> by_name;  // views of the names in `wanted`
  std::shared_ptr<const Structure> structure, batch_structure;

  // A feature of a record, checked.
  struct Found {
    List list;
    int64_t count = 0;  // of elements
  };

  std::vector<Found> find(std::string_view record) const {
    std::vector<Found> found(wanted.size());
    for_each_feature(record, where, [&](std::string_view name, std::string_view feature) {
      const auto position = by_name.find(name);
      if (position != by_name.end()) found[position->second].list = list_of(feature, where);
    });
    for (size_t i = 0; i < wanted.size(); ++i) {
      try {
        check(wanted[i], found[i]);
      } catch (Error& error) {
        error.note(detail::concat("in feature \"", wanted[i].name, "\" of an Example"));
        throw;
      }
    }
    return found;
  }

  void check(const Wanted& feature, Found& found) const {
    const FeatureSpec& spec = feature.spec;
    if (found.list.kind == 0) {
      require(spec.variable_length || spec.default_value, ErrorCode::not_found, where,
              "parse_example: feature \"", feature.name, "\" is missing, and has no default_value");
      found.count = static_cast<int64_t>(feature.missing.size() / size_of(spec.dtype));
      return;
    }
    const bool strings = found.list.kind == kBytesList;
    require(found.list.kind == kind_of(spec.dtype), ErrorCode::dtype_mismatch, where,
            "parse_example: feature \"", feature.name, "\" holds ", kind_name(found.list.kind), ", where ",
            kind_name(kind_of(spec.dtype)), " (", spec.dtype, ") is expected");
    found.count = count_values(found.list, where);
    if (spec.variable_length) return;
    int64_t many = 0;
    if (strings) for_each_string(found.list, where, [&](std::string_view) { ++many; });
    require(!strings || many == 1, ErrorCode::shape_mismatch, where, "parse_example: feature \"",
            feature.name, "\" holds ", many,
            " byte strings, where one is expected; variable_length takes any number");
    require(feature.byte_string() || found.count == feature.size, ErrorCode::shape_mismatch, where,
            "parse_example: feature \"", feature.name, "\" holds ", found.count,
            strings ? " bytes" : " values", ", where the shape ", spec.shape, " takes ", feature.size,
            "; variable_length takes any number");
  }

  void write(const Wanted& feature, const Found& found, char* target) const {
    if (found.list.kind != 0)
      write_values(found.list, where, target);
    else if (!feature.missing.empty())
      std::memcpy(target, feature.missing.data(), feature.missing.size());
  }
};

ExampleParser::ExampleParser(const FeatureSpecs& features, std::source_location where) {
  auto impl = std::make_shared<Impl>();
  impl->where = where;
  std::vector<std::pair<std::string, Structure>> parts, batch_parts;
  for (const auto& [name, spec] : features) {
    const auto check = [&](bool holds, const auto&... rule) {
      require(holds, ErrorCode::invalid_argument, where, "ExampleParser: feature \"", name, "\" ", rule...);
    };
    check(spec.dtype == DType::float32 || spec.dtype == DType::int64 || spec.dtype == DType::uint8, "is ",
          spec.dtype, "; an Example holds float32, int64 and bytes (uint8): cast them afterwards");
    check(!spec.variable_length || (spec.shape.rank() == 0 && !spec.default_value),
          "is of variable length, and then has no shape and no default_value");
    for (const int64_t size : spec.shape)
      check(size >= 0, "has the shape ", spec.shape, ", which is not fixed");
    Impl::Wanted wanted{name, spec, spec.shape.size(), {}};
    if (spec.default_value) {
      const Tensor& value = *spec.default_value;
      const bool fits =
          value.dtype() == spec.dtype &&
          (wanted.byte_string() ? value.rank() <= 1 : value.size() == 1 || value.shape() == spec.shape);
      check(fits, "is ", TensorSpec{spec.dtype, spec.shape}, ", but its default_value ", value.spec());
      dispatch(spec.dtype, [&]<class T>() {
        if constexpr (std::is_same_v<T, bool>)
          return;
        else {
          std::vector<T> elements = value.to_vector<T>(where);
          if (!wanted.byte_string() && elements.size() == 1)
            elements.resize(static_cast<size_t>(wanted.size), elements[0]);
          const auto* first = reinterpret_cast<const char*>(elements.data());
          wanted.missing.assign(first, first + elements.size() * sizeof(T));
        }
      });
    }
    parts.emplace_back(name, wanted.string_list() ? ragged() : Structure());
    batch_parts.emplace_back(name, wanted.any_length() ? ragged() : Structure());
    impl->wanted.push_back(std::move(wanted));
  }
  for (size_t i = 0; i < impl->wanted.size(); ++i)
    require(impl->by_name.emplace(impl->wanted[i].name, i).second, ErrorCode::invalid_argument, where,
            "ExampleParser: feature \"", impl->wanted[i].name, "\" is given twice");
  impl->structure = std::make_shared<const Structure>(Structure::dict(std::move(parts)));
  impl->batch_structure = std::make_shared<const Structure>(Structure::dict(std::move(batch_parts)));
  impl_ = std::move(impl);
}

Element ExampleParser::operator()(const Tensor& record) const {
  require(record.dtype() == DType::uint8 && record.rank() == 1, ErrorCode::invalid_argument, impl_->where,
          "parse_example: a record is a byte string, received ", record.spec());
  const auto view = record.data<uint8_t>(impl_->where);
  return parse({reinterpret_cast<const char*>(view.data()), view.size()});
}

Element ExampleParser::parse(std::string_view record) const {
  const std::vector<Impl::Found> found = impl_->find(record);
  TensorList tensors;
  for (size_t i = 0; i < found.size(); ++i) {
    const Impl::Wanted& wanted = impl_->wanted[i];
    tensors.push_back(Tensor::empty(
        wanted.spec.dtype, wanted.any_length() ? Shape{found[i].count} : wanted.spec.shape, host_device()));
    impl_->write(wanted, found[i], data_of(tensors.back()));
    if (!wanted.string_list()) continue;
    std::vector<int64_t> lengths;
    for_each_string(found[i].list, impl_->where,
                    [&](std::string_view text) { lengths.push_back(std::ssize(text)); });
    tensors.push_back(Tensor::from(lengths, {std::ssize(lengths)}));
  }
  return {impl_->structure, std::move(tensors)};
}

Element ExampleParser::parse_batch(std::span<const std::string_view> records) const {
  for (const Impl::Wanted& wanted : impl_->wanted)
    require(!wanted.string_list(), ErrorCode::unsupported, impl_->where, "parse_examples: feature \"",
            wanted.name,
            "\" is a list of byte strings, of which no batch can be made; parse single examples");
  std::vector<std::vector<Impl::Found>> found;
  found.reserve(records.size());
  for (const std::string_view record : records) {
    try {
      found.push_back(impl_->find(record));
    } catch (Error& error) {
      error.note("in record " + std::to_string(found.size()) + " of the batch");
      throw;
    }
  }
  TensorList tensors;
  for (size_t i = 0; i < impl_->wanted.size(); ++i) {
    const Impl::Wanted& wanted = impl_->wanted[i];
    std::vector<int64_t> lengths;
    for (const auto& of_record : found) lengths.push_back(of_record[i].count);
    Shape shape = wanted.spec.shape;
    shape.insert(0, std::ssize(records));
    if (wanted.any_length()) shape = {std::accumulate(lengths.begin(), lengths.end(), int64_t{0})};
    tensors.push_back(Tensor::empty(wanted.spec.dtype, shape, host_device()));
    char* target = data_of(tensors.back());
    for (const auto& of_record : found) {
      impl_->write(wanted, of_record[i], target);
      target += static_cast<size_t>(of_record[i].count) * size_of(wanted.spec.dtype);
    }
    if (wanted.any_length()) tensors.push_back(Tensor::from(lengths, {std::ssize(lengths)}));
  }
  return {impl_->batch_structure, std::move(tensors)};
}

ElementSpec ExampleParser::spec() const {
  ElementSpec spec{*impl_->structure, {}};
  for (const Impl::Wanted& wanted : impl_->wanted) {
    spec.tensors.push_back({wanted.spec.dtype, wanted.any_length() ? Shape{-1} : wanted.spec.shape});
    if (wanted.string_list()) spec.tensors.push_back({DType::int64, {-1}});
  }
  return spec;
}

Element parse_example(std::string_view record, const FeatureSpecs& features, std::source_location where) {
  return ExampleParser(features, where).parse(record);
}

Element parse_examples(std::span<const std::string_view> records, const FeatureSpecs& features,
                       std::source_location where) {
  return ExampleParser(features, where).parse_batch(records);
}

}  // namespace lockstep::data
