// Any bytes as an ONNX file: a model, or refused by an Error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "keras/onnx/import.h"
#include "lockstep/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    keras::onnx::model_of(keras::onnx::read_graph(bytes, std::nullopt));
  } catch (const Error& error) {
    if (error.message().empty()) std::abort();
  }
  return 0;
}
