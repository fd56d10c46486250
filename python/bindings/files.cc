// Files, images, event files, and texts that become numbers.
#include <sstream>

#include "lockstep/data/example.h"
#include "lockstep/data/files.h"
#include "lockstep/keras/layers/lookup.h"
#include "lockstep/tf/io.h"
#include "lockstep/tf/summary.h"
#include "python.h"

namespace lockstep::python {
namespace {

using keras::layers::HashedCrossing;
using keras::layers::Hashing;
using keras::layers::StringLookup;
using keras::layers::TextVectorization;

using Texts = std::vector<std::string>;

// Bytes of Python, or a byte string of a dataset.
std::string bytes_of(Any value) {
  if (nb::isinstance<nb::bytes>(value)) {
    const auto bytes = nb::borrow<nb::bytes>(value);
    return {bytes.c_str(), bytes.size()};
  }
  return data::text(tensor(value), here());
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// `with writer.as_default():`
class WriterContext {
 public:
  explicit WriterContext(const summary::EventWriter& writer) : writer_(writer) {}
  WriterContext(const WriterContext&) = delete;
  void enter() { scopes_.push_back(std::make_unique<summary::EventWriter::Scope>(writer_)); }
  void exit() { scopes_.pop_back(); }

 private:
  summary::EventWriter writer_;
  std::vector<std::unique_ptr<summary::EventWriter::Scope>> scopes_;
};

// {"name": ("bytes", [b"..."])}, with "floats" and "ints" beside them: what an Example has.
nb::dict features_of(const data::Example& example) {
  nb::dict features;
  for (const auto& [name, feature] : example.features()) {
    nb::list values;
    const char* kind = "bytes";
    if (const auto* bytes = std::get_if<data::Example::BytesList>(&feature)) {
      for (const std::string& value : *bytes) values.append(to_bytes(value));
    } else if (const auto* floats = std::get_if<data::Example::FloatList>(&feature)) {
      kind = "floats";
      for (const float value : *floats) values.append(nb::float_(value));
    } else {
      kind = "ints";
      for (const int64_t value : std::get<data::Example::IntList>(feature)) values.append(nb::int_(value));
    }
    features[name.c_str()] = nb::make_tuple(kind, values);
  }
  return features;
}

data::Example example_of(const nb::dict& features) {
  data::Example example;
  for (const auto& [key, feature] : features) {
    const auto name = nb::cast<std::string>(key);
    const auto kind = nb::cast<std::string>(feature[0]);
    if (kind == "bytes") {
      data::Example::BytesList values;
      for (const nb::handle value : nb::borrow<nb::sequence>(feature[1])) values.push_back(bytes_of(value));
      example.bytes_list(name, std::move(values));
    } else if (kind == "floats") {
      example.floats(name, nb::cast<std::vector<float>>(feature[1]));
    } else {
      example.ints(name, nb::cast<std::vector<int64_t>>(feature[1]));
    }
  }
  return example;
}

void bind_io(nb::module_& m) {
  nb::module_ io = m.def_submodule("io");
  io.def("read_file", [](const std::string& path) { return to_bytes(io::read_file(path, here())); });
  io.def("write_file",
         [](const std::string& path, Any contents) { io::write_file(path, bytes_of(contents), here()); });
  io.def("decode_image", [](Any contents, int channels) {
    return io::decode_image(bytes_of(contents), channels, "image", here());
  });
  io.def("encode_png", [](Any image) { return to_bytes(io::encode_png(tensor(image), here())); });
  io.def("encode_jpeg",
         [](Any image, int quality) { return to_bytes(io::encode_jpeg(tensor(image), quality, here())); });
  io.def("text", [](Any value) { return to_bytes(bytes_of(value)); });
  io.def("bytes", [](Any value) { return data::bytes(bytes_of(value)); });
  io.def("serialize_example",
         [](const nb::dict& features) { return to_bytes(example_of(features).serialize()); });
  io.def("parse_example",
         [](Any record) { return features_of(data::Example::parse(bytes_of(record), here())); });
  nb::class_<data::TFRecordWriter>(io, "TFRecordWriter")
      .def("__init__", [](data::TFRecordWriter* self,
                          const std::string& path) { new (self) data::TFRecordWriter(path, {}, here()); })
      .def("write", [](data::TFRecordWriter& writer, Any record) { writer.write(bytes_of(record)); })
      .def("close", &data::TFRecordWriter::close);
  io.def("TFRecordDataset", [](const Texts& files, int64_t reads) {
    return data::TFRecordDataset(files, {.num_parallel_reads = reads}, here());
  });
  io.def("TextLineDataset", [](const Texts& files) { return data::TextLineDataset(files, {}, here()); });
}

void bind_summary(nb::module_& m) {
  nb::module_ s = m.def_submodule("summary");
  nb::class_<WriterContext>(s, "WriterContext")
      .def("enter", &WriterContext::enter)
      .def("exit", &WriterContext::exit);
  nb::class_<summary::EventWriter>(s, "EventWriter")
      .def("__init__", [](summary::EventWriter* self,
                          const std::string& folder) { new (self) summary::EventWriter(folder, {}, here()); })
      .def(
          "as_default", [](const summary::EventWriter& writer) { return new WriterContext(writer); },
          nb::rv_policy::take_ownership)
      .def("flush", &summary::EventWriter::flush);
  s.def("scalar",
        [](const std::string& tag, Any value, int64_t step) { summary::scalar(tag, tensor(value), step); });
  s.def("histogram", [](const std::string& tag, Any values, int64_t step, int buckets) {
    summary::histogram(tag, tensor(values), step, {.buckets = buckets});
  });
  s.def("texts", [](const std::string& tag, const std::string& plugin, Any sizes,
                    const std::vector<nb::bytes>& elements, int64_t step) {
    Texts texts;
    for (const nb::bytes& element : elements) texts.emplace_back(element.c_str(), element.size());
    if (const summary::EventWriter* writer = summary::EventWriter::current())
      writer->texts(tag, plugin, shape(sizes), texts, step, here());
  });
  s.def("flush", &summary::flush);
}

// Settings come as Keras' configuration.
template <class Lookup>
nb::class_<Lookup> bind_lookup(nb::module_& m, const char* name) {
  return nb::class_<Lookup>(m, name)
      .def_static("deserialize", [](Any config) { return Lookup::deserialize(json(config), here()); })
      .def("serialize", [](const Lookup& lookup) { return to_python(lookup.serialize()); })
      .def("adapt", [](Lookup& lookup,
                       const Texts& texts) { lookup.adapt(std::span<const std::string>(texts), here()); })
      .def("set_vocabulary",
           [](Lookup& lookup, const Texts& tokens, const std::vector<double>& idf_weights) {
             lookup.set_vocabulary(tokens, idf_weights, here());
           })
      .def("get_vocabulary",
           [](const Lookup& lookup, bool special) { return lookup.get_vocabulary(special); })
      .def("vocabulary_size", &Lookup::vocabulary_size)
      .def("__call__", [](const Lookup& lookup,
                          const Texts& texts) { return lookup(std::span<const std::string>(texts), here()); })
      .def("rows", [](const Lookup& lookup, const std::vector<Texts>& rows) { return lookup(rows, here()); })
      .def("adapt_rows", [](Lookup& lookup, const std::vector<Texts>& rows) { lookup.adapt(rows, here()); });
}

}  // namespace

void bind_files(nb::module_& m) {
  bind_io(m);
  bind_summary(m);
  bind_lookup<TextVectorization>(m, "TextVectorization");
  bind_lookup<StringLookup>(m, "StringLookup").def("tokens", [](const StringLookup& lookup, Any numbers) {
    return lookup.tokens(tensor(numbers), here());
  });
  m.def("integer_vocabulary",
        [](const keras::Layer& lookup) { return keras::layers::get_vocabulary(lookup, here()); });
  m.def("set_integer_vocabulary", [](const keras::Layer& lookup, const std::vector<int64_t>& tokens,
                                     const std::vector<double>& idf_weights) {
    keras::layers::set_vocabulary(lookup, tokens, idf_weights, here());
  });
  nb::class_<Hashing>(m, "Hashing")
      .def_static("deserialize", [](Any config) { return Hashing::deserialize(json(config), here()); })
      .def("serialize", [](const Hashing& hashing) { return to_python(hashing.serialize()); })
      .def("__call__", [](const Hashing& hashing, Any values) {
        if (!nb::isinstance<nb::list>(values)) return hashing(tensor(values), here());
        const auto texts = nb::cast<Texts>(values);
        return hashing(std::span<const std::string>(texts), here());
      });
  nb::class_<HashedCrossing>(m, "HashedCrossing")
      .def_static("deserialize", [](Any config) { return HashedCrossing::deserialize(json(config), here()); })
      .def("serialize", [](const HashedCrossing& crossing) { return to_python(crossing.serialize()); })
      .def("__call__", [](const HashedCrossing& crossing, Any columns) {
        std::vector<keras::layers::Column> all;
        for (const nb::handle column : nb::borrow<nb::sequence>(columns))
          if (nb::isinstance<nb::list>(column))
            all.emplace_back(nb::cast<Texts>(column));
          else
            all.emplace_back(tensor(column));
        return crossing(all, here());
      });
}

}  // namespace lockstep::python
