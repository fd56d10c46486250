#include "execute/trace_function.h"

namespace lockstep::execute {

Graph trace_function(const std::function<TensorList(std::span<const Tensor>)>& body,
                     const TraceRequest& request) {
  Trace trace(request.replica);
  TensorList parameters;
  for (size_t i = 0; i < request.parameters.size(); ++i)
    parameters.push_back(trace.parameter(static_cast<int>(i), request.parameters[i], request.called,
                                         request.devices.empty() ? nullptr : request.devices[i]));
  try {
    for (const Tensor& result : body(parameters)) {
      require(result.defined(), ErrorCode::invalid_argument, request.made,
              "the function returned an undefined tensor");
      trace.graph().outputs.push_back(trace.value_of(result, request.made));
    }
    trace.finish();
  } catch (Error& error) {
    error.note(request.note);
    throw;
  }
  return std::move(trace.graph());
}

}  // namespace lockstep::execute
