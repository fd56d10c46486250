// The networks that `lockstep train` knows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/graph/variable.h"

namespace lockstep::cli {

class Network {
 public:
  virtual ~Network() = default;
  // Images (n, 28, 28) with values in [0, 1] to logits (n, 10).
  virtual Tensor logits(const Tensor& images) const = 0;
  const std::vector<Variable>& variables() const { return variables_; }

 protected:
  Variable glorot(const std::string& name, const Shape& shape, int64_t fan_in, int64_t fan_out);
  Variable zeros(const std::string& name, const Shape& shape);
  uint64_t seed_ = 0;

 private:
  std::vector<Variable> variables_;
};

// "linear", "mlp" (784-128-10) or "convnet" (two convolutions and poolings, two dense layers).
std::unique_ptr<Network> make_network(const std::string& name, uint64_t seed);

}  // namespace lockstep::cli
