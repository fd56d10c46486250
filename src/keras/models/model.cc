#include "lockstep/keras/model.h"

#include "base/as_error.h"
#include "keras/models/functional_model.h"
#include "keras/models/sequential_model.h"
#include "keras/training/trainer.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {

// --- ModelBase ---------------------------------------------------------------------------------------------

ModelBase::ModelBase(std::string class_name, LayerBaseOptions options, std::source_location where)
    : LayerBase(std::move(class_name), std::move(options), where),
      trainer_(std::make_unique<Trainer>(*this)) {}
ModelBase::~ModelBase() = default;

std::vector<std::string> ModelBase::output_names(size_t count) const {
  if (count == 1 && !layers().empty()) return {layers().back().name()};
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("output_" + std::to_string(i + 1));
  return names;
}

std::vector<std::string> ModelBase::input_names() const {
  std::vector<std::string> names;
  for (const KerasTensor& input : inputs()) names.push_back(input.name());
  return names;
}

namespace {

// Runs f for a public function of a model. What it sets off happens in layers and steps, whose errors name
// the lines that made those: a note adds the line of the call.
template <class F>
auto in_call(const char* what, std::source_location where, F&& f) -> decltype(f()) {
  try {
    return as_error(what, where, f);
  } catch (Error& error) {
    const std::source_location line = error.where();
    // The command-line tool is part of the library: its users have none of its lines.
    if (!CallSite::in_library(where) &&
        (line.line() != where.line() || std::string_view(line.file_name()) != where.file_name()))
      error.note(detail::concat("in ", what, "() [", file_and_line(where), "]"));
    throw;
  }
}

}  // namespace

// --- Model -------------------------------------------------------------------------------------------------

Model::Model(std::shared_ptr<ModelBase> base) : Layer(std::move(base)) {}
Model::Model(const KerasTensors& inputs, const KerasTensors& outputs, const ModelOptions& options,
             std::source_location where)
    : Layer(std::make_shared<FunctionalModel>(inputs, outputs, options, where)) {}

ModelBase& Model::model_base(std::source_location where) const {
  auto* model = dynamic_cast<ModelBase*>(base().get());
  require(model != nullptr, ErrorCode::failed_precondition, where,
          "this Model was default-constructed: it names no model");
  return *model;
}

void Model::compile(const CompileOptions& options, std::source_location where) const {
  const CallSite site(where);
  model_base(where).trainer().compile(options, where);
}

History Model::fit(const Data& data, const FitOptions& options, std::source_location where) const {
  Model self = *this;
  return in_call("fit", where, [&] { return model_base(where).trainer().fit(self, data, options, where); });
}
History Model::fit(const Tensor& x, const Tensor& y, const FitOptions& options,
                   std::source_location where) const {
  const CallSite site(where);
  return fit(Data(x, y), options, where);
}

Logs Model::evaluate(const Data& data, const EvaluateOptions& options, std::source_location where) const {
  Model self = *this;
  return in_call("evaluate", where,
                 [&] { return model_base(where).trainer().evaluate(self, data, options, where); });
}
Logs Model::evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options,
                     std::source_location where) const {
  const CallSite site(where);
  return evaluate(Data(x, y), options, where);
}

TensorList Model::predict_all(const Data& data, const PredictOptions& options,
                              std::source_location where) const {
  Model self = *this;
  return in_call("predict", where,
                 [&] { return model_base(where).trainer().predict(self, data, options, where); });
}
Tensor Model::predict(const Data& data, const PredictOptions& options, std::source_location where) const {
  TensorList results = predict_all(data, options, where);
  require(results.size() == 1, ErrorCode::invalid_argument, where, "predict: model \"", name(), "\" gives ",
          results.size(), " results; call predict_all()");
  return std::move(results[0]);
}

std::map<std::string, Tensor> Model::predict_named(const Data& data, const PredictOptions& options,
                                                   std::source_location where) const {
  TensorList results = predict_all(data, options, where);
  const std::vector<std::string> names = model_base().output_names(results.size());
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < results.size(); ++i)
    require(named.emplace(names[i], std::move(results[i])).second, ErrorCode::invalid_argument, where,
            "predict_named: two outputs of model \"", name(), "\" are called \"", names[i],
            "\"; make the model with names for its outputs, or call predict_all()");
  return named;
}

namespace {
Batch batch_of(const Tensor& x, const Tensor& y, const Tensor& sample_weight) {
  return {{x}, {y}, sample_weight.defined() ? TensorList{sample_weight} : TensorList{}};
}
}  // namespace

Logs Model::train_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight,
                           const std::map<int64_t, double>& class_weight, std::source_location where) const {
  return train_on_batch(batch_of(x, y, sample_weight), class_weight, where);
}
Logs Model::test_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight,
                          std::source_location where) const {
  return test_on_batch(batch_of(x, y, sample_weight), where);
}
Logs Model::train_on_batch(const Batch& batch, const std::map<int64_t, double>& class_weight,
                           std::source_location where) const {
  return in_call("train_on_batch", where,
                 [&] { return model_base(where).trainer().train_on_batch(batch, class_weight, where); });
}
Logs Model::test_on_batch(const Batch& batch, std::source_location where) const {
  return in_call("test_on_batch", where,
                 [&] { return model_base(where).trainer().test_on_batch(batch, where); });
}
TensorList Model::predict_on_batch(const TensorList& x, std::source_location where) const {
  return in_call("predict_on_batch", where,
                 [&] { return model_base(where).trainer().predict_on_batch(x, where); });
}

const optimizers::Optimizer& Model::optimizer(std::source_location where) const {
  Trainer& trainer = model_base(where).trainer();
  trainer.require_compiled("optimizer", where);
  return trainer.options().optimizer;
}
bool Model::compiled(std::source_location where) const { return model_base(where).trainer().compiled(); }
std::vector<Metric> Model::metrics(std::source_location where) const {
  return model_base(where).trainer().metrics();
}
double Model::last_loss(std::source_location where) const {
  const CallSite site(where);
  return model_base(where).trainer().last_loss();
}
void Model::stop_training(bool stop, std::source_location where) const {
  model_base(where).trainer().stop_training = stop;
}
bool Model::training_stopped(std::source_location where) const {
  return model_base(where).trainer().stop_training;
}

Layer Model::get_layer(const std::string& name, std::source_location where) const {
  std::vector<std::string> names;
  for (const Layer& layer : layers(where)) {
    if (layer.name() == name) return layer;
    names.push_back(layer.name());
  }
  const std::string near = nearest_spelling(name, names);
  std::string known;
  for (const std::string& other : names) known += (known.empty() ? "" : ", ") + other;
  fail(ErrorCode::not_found, where, "model \"", this->name(), "\" has no layer \"", name, "\"",
       near.empty() ? "" : "; did you mean \"" + near + "\"?", " It has ", known);
}
Layer Model::get_layer(size_t index, std::source_location where) const {
  const std::vector<Layer> all = layers(where);
  require(index < all.size(), ErrorCode::not_found, where, "model \"", name(), "\" has ", all.size(),
          " layers, there is no layer ", index);
  return all[index];
}

// --- Sequential --------------------------------------------------------------------------------------------

Sequential::Sequential(const ModelOptions& options, std::source_location where)
    : Model(std::make_shared<SequentialModel>(options, where)) {}
Sequential::Sequential(const std::vector<Layer>& layers, const ModelOptions& options,
                       std::source_location where)
    : Sequential(options, where) {
  for (const Layer& layer : layers) add(layer, where);
}

void Sequential::add(const Layer& layer, std::source_location where) const {
  const CallSite site(where);
  dynamic_cast<SequentialModel&>(model_base(where)).add(layer, where);
}
void Sequential::add(const KerasTensor& input, std::source_location where) const {
  dynamic_cast<SequentialModel&>(model_base(where)).set_input(input, where);
}
void Sequential::pop(std::source_location where) const {
  const CallSite site(where);
  dynamic_cast<SequentialModel&>(model_base(where)).pop(where);
}

// --- History and logs --------------------------------------------------------------------------------------

bool History::contains(const std::string& name) const {
  for (const auto& [known, values] : history)
    if (known == name) return true;
  return false;
}

const std::vector<double>& History::operator[](Located<std::string_view> name) const {
  std::string names;
  for (const auto& [known, values] : history) {
    if (known == name.value) return values;
    names += (names.empty() ? "" : ", ") + known;
  }
  fail(ErrorCode::not_found, name.where, "the history has no \"", name.value, "\"; it has ",
       names.empty() ? "nothing" : names);
}

Json History::to_json() const {
  Json json = Json::object();
  for (const auto& [name, values] : history) {
    Json list = Json::list();
    for (const double value : values) list.push_back(value);
    json.set(name, std::move(list));
  }
  return json;
}

void Logs::set(const std::string& name, double value) {
  for (Entry& entry : entries_)
    if (entry.first == name) {
      entry.second = value;
      return;
    }
  entries_.emplace_back(name, value);
}

std::optional<double> Logs::find(const std::string& name) const {
  for (const Entry& entry : entries_)
    if (entry.first == name) return entry.second;
  return {};
}

double Logs::operator[](Located<std::string_view> name) const {
  std::string names;
  for (const Entry& entry : entries_) {
    if (entry.first == name.value) return entry.second;
    names += (names.empty() ? "" : ", ") + entry.first;
  }
  fail(ErrorCode::not_found, name.where, "the logs have no \"", name.value, "\"; they have ",
       names.empty() ? "nothing" : names);
}

}  // namespace lockstep::keras
