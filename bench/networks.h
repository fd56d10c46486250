// Networks of everyday size, trained in mixed precision on synthetic data that lies on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/execute/function.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::bench {

// A network with its compiled training step and a batch, on the device of the scope around it.
struct Training {
  std::function<Tensor(const Tensor& x, const Tensor& y)> step;  // gives the loss
  std::function<std::string()> explain;                          // the launches of the step, for people
  Tensor x, y;

  Tensor operator()() const { return step(x, y); }
};

struct NetworkOptions {
  std::string policy = "mixed_bfloat16";
  ReplicaOptions replicas = {};
};

// ResNet-50 on images of 224 x 224 in 1000 classes, SGD with momentum.
Training resnet50_training(int64_t batch, const NetworkOptions& options = {});
// GPT-2 of 124 million parameters on `batch` sequences of 1024 tokens, AdamW. The vocabulary is padded to 50304.
inline constexpr int64_t kGptContext = 1024, kGptVocabulary = 50304;
Training gpt2_training(int64_t batch, const NetworkOptions& options = {});

}  // namespace lockstep::bench
