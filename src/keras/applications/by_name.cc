#include <functional>

#include "keras/fields.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/applications.h"

namespace lockstep::keras::applications {
namespace {

template <class Visitor, class Options>
void visit_options(Visitor& v, Options& o) {
  if constexpr (requires { o.input_shape; }) v("input_shape", o.input_shape);
  if constexpr (requires { o.classes; }) v("classes", o.classes, kPositive);
  if constexpr (requires { o.hidden; }) v("hidden", o.hidden, kPositive);
  if constexpr (requires { o.width; }) v("width", o.width, kPositive);
  if constexpr (requires { o.stem; }) v("stem", o.stem);
  if constexpr (requires { o.version; }) v("version", o.version);
  if constexpr (requires { o.include_top; }) v("include_top", o.include_top);
  if constexpr (requires { o.patch_size; }) v("patch_size", o.patch_size, kPositive);
  if constexpr (requires { o.vocabulary; }) v("vocabulary", o.vocabulary, kPositive);
  if constexpr (requires { o.context; }) v("context", o.context, kPositive);
  if constexpr (requires { o.dim; }) v("dim", o.dim, kPositive);
  if constexpr (requires { o.depth; }) v("depth", o.depth, kNotNegative);
  if constexpr (requires { o.heads; }) v("heads", o.heads, kPositive);
  if constexpr (requires { o.mlp_dim; }) v("mlp_dim", o.mlp_dim, kPositive);
  if constexpr (requires { o.dropout; }) v("dropout", o.dropout, kBelowOne);
  if constexpr (requires { o.pooling; }) v("pooling", o.pooling);
  if constexpr (requires { o.epsilon; }) v("epsilon", o.epsilon, kPositive);
  if constexpr (requires { o.approximate_gelu; }) v("approximate_gelu", o.approximate_gelu);
  if constexpr (requires { o.activation; }) v("activation", o.activation);
  if constexpr (requires { o.classifier_activation; }) v("classifier_activation", o.classifier_activation);
  v("name", o.name);
}

struct Entry {
  const char* name;
  std::function<Json()> defaults;
  std::function<Model(const Json&, std::source_location)> make;
};

template <class Options>
struct Settings {
  Options options;
  void visit(auto& v) { visit_options(v, options); }
};

template <class Options>
Entry entry(const char* name, Model (*make)(const Options&, std::source_location)) {
  return {name, [] { return write_fields(Settings<Options>{}); },
          [make](const Json& json, std::source_location where) {
            return make(read_fields<Settings<Options>>(json).options, where);
          }};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{
      entry("mlp", mlp),
      entry("lenet", lenet),
      entry("resnet18", resnet18),
      entry("resnet50", resnet50),
      entry("resnet101", resnet101),
      entry("resnet152", resnet152),
      entry("vgg16", vgg16),
      entry("vgg19", vgg19),
      entry("resnet50_v2", resnet50_v2),
      entry("resnet101_v2", resnet101_v2),
      entry("resnet152_v2", resnet152_v2),
      entry("densenet121", densenet121),
      entry("mobilenet_v2", mobilenet_v2),
      entry("efficientnet_b0", efficientnet_b0),
      entry("inception_v3", inception_v3),
      entry("xception", xception),
      entry("vit_tiny", vit_tiny),
      entry("gpt_tiny", gpt_tiny),
      entry("gpt2", gpt2),
  };
  return all;
}

const Entry& find(const std::string& name, std::source_location where) {
  for (const Entry& candidate : entries())
    if (name == candidate.name) return candidate;
  const std::string near = nearest_spelling(name, names());
  std::string known;
  for (const std::string& other : names()) known += (known.empty() ? "" : ", ") + other;
  fail(ErrorCode::not_found, where, "there is no application \"", name, "\"",
       near.empty() ? "" : "; did you mean \"" + near + "\"?", " There are ", known);
}

}  // namespace

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const Entry& known : entries()) list.emplace_back(known.name);
  return list;
}

Json default_options(const std::string& name, std::source_location where) {
  return find(name, where).defaults();
}

Model make(const std::string& name, const Json& options, std::source_location where) {
  const Entry& application = find(name, where);
  try {
    return application.make(options, where);
  } catch (Error& error) {
    error.note("in the options of \"" + name + "\"");
    throw;
  }
}

}  // namespace lockstep::keras::applications
