#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/keras/callbacks.h"

namespace lockstep::keras {
namespace {

// Takes the value of this name out of what was saved.
Tensor take_saved(CallbackState::Tensors& saved, const std::string& name, std::optional<DType> dtype = {}) {
  const auto found =
      std::find_if(saved.begin(), saved.end(), [&](const auto& entry) { return entry.first == name; });
  require(found != saved.end(), ErrorCode::invalid_argument, std::source_location::current(),
          "the saved state has no \"", name, "\"");
  require(!dtype || found->second.dtype() == *dtype, ErrorCode::invalid_argument,
          std::source_location::current(), "\"", name, "\" of the saved state is ", found->second.spec());
  Tensor value = found->second;
  saved.erase(found);
  return value;
}

template <class T>
T one_of(CallbackState::Tensors& saved, const std::string& name) {
  const Tensor value = take_saved(saved, name, dtype_of<T>);
  require(value.size() == 1, ErrorCode::invalid_argument, std::source_location::current(), "\"", name,
          "\" of the saved state is ", value.spec(), ", not one number");
  return value.to_vector<T>()[0];
}

}  // namespace

void CallbackState::operator()(const std::string& name, int64_t& value) {
  if (restores_)
    value = one_of<int64_t>(tensors_, name);
  else
    tensors_.emplace_back(name, Tensor::scalar(value));
}
void CallbackState::operator()(const std::string& name, double& value) {
  if (restores_)
    value = one_of<double>(tensors_, name);
  else
    tensors_.emplace_back(name, Tensor::scalar(value));
}
void CallbackState::operator()(const std::string& name, bool& value) {
  int64_t number = value ? 1 : 0;
  (*this)(name, number);
  value = number != 0;
}
void CallbackState::operator()(const std::string& name, int& value) {
  int64_t number = value;
  (*this)(name, number);
  value = static_cast<int>(number);
}
void CallbackState::operator()(const std::string& name, std::optional<double>& value) {
  TensorList values;
  if (value) values.push_back(Tensor::scalar(*value));
  (*this)(name, values);
  if (!restores_) return;
  value.reset();
  if (!values.empty()) value = values[0].item<double>();
}
void CallbackState::operator()(const std::string& name, std::string& value) {
  if (restores_) {
    const std::vector<uint8_t> bytes = take_saved(tensors_, name, DType::uint8).to_vector<uint8_t>();
    value.assign(bytes.begin(), bytes.end());
  } else {
    const std::vector<uint8_t> bytes(value.begin(), value.end());
    tensors_.emplace_back(name, Tensor::from(bytes, {static_cast<int64_t>(bytes.size())}));
  }
}
void CallbackState::operator()(const std::string& name, Tensor& value) {
  TensorList values;
  if (value.defined()) values.push_back(value);
  (*this)(name, values);
  if (restores_) value = values.empty() ? Tensor() : values[0];
}
void CallbackState::operator()(const std::string& name, TensorList& values) {
  auto count = static_cast<int64_t>(values.size());
  (*this)(name, count);
  if (restores_)
    values.assign(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(tensors_.size()))),
                  Tensor());
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string own = name + "." + std::to_string(i);
    if (restores_)
      values[i] = take_saved(tensors_, own);
    else
      tensors_.emplace_back(own, values[i]);
  }
}

}  // namespace lockstep::keras
