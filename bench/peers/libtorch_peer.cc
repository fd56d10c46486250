// The training steps of bench/floors in LibTorch, the C++ side of PyTorch: answers requests for readings
// as peers.py does with --serve. The thread count is its argument, and OMP_NUM_THREADS and
// OPENBLAS_NUM_THREADS must say the same: the BLAS behind it reads them before main.
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "../waiting.h"

namespace {

using nlohmann::json;
using Step = std::function<void()>;

Step build(const std::string& work, int64_t batch) {
  torch::manual_seed(1);
  torch::nn::Sequential model;
  torch::Tensor x;
  if (work == "mlp") {
    x = torch::randn({batch, 784});
    model = torch::nn::Sequential(torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10));
  } else if (work == "convnet") {
    x = torch::randn({batch, 1, 28, 28});
    model = torch::nn::Sequential(torch::nn::Conv2d(1, 32, 3), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                  torch::nn::Conv2d(32, 64, 3), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                                  torch::nn::Flatten(), torch::nn::Linear(1600, 128), torch::nn::ReLU(),
                                  torch::nn::Linear(128, 10));
  } else {
    throw std::invalid_argument("no work " + work);
  }
  const torch::Tensor y = torch::randint(0, 10, {batch});
  const auto options = torch::optim::AdamOptions(1e-3).betas({0.9, 0.999}).eps(1e-7);
  const auto optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), options);
  return [=]() mutable {
    optimizer->zero_grad();
    torch::nn::functional::cross_entropy(model->forward(x), y).backward();
    optimizer->step();
  };
}

json answer(const json& request, int threads) {
  static std::map<std::tuple<std::string, int64_t>, Step> steps;
  json result = {{"peer", request.at("peer")},
                 {"work", request.at("work")},
                 {"batch", request.at("batch")},
                 {"threads", threads}};
  try {
    const auto work = request.at("work").get<std::string>();
    const auto batch = request.at("batch").get<int64_t>();
    const int iterations = request.at("iterations").get<int>();
    Step& step = steps[{work, batch}];
    if (!step) {
      step = build(work, batch);
      for (int i = 0; i < 3; ++i) step();
    }
    step();
    const int64_t before = lockstep::bench::waited_ns();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < iterations; ++i) step();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    result["us"] = elapsed.count() / iterations;
    const double waited_us = static_cast<double>(lockstep::bench::waited_ns() - before) * 1e-3;
    result["disturbed"] = waited_us > lockstep::bench::kDisturbed * elapsed.count();
  } catch (const std::exception& e) {
    result["error"] = std::string(e.what()).substr(0, std::string(e.what()).find('\n'));
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::stoi(argv[1]) : 1;
  torch::set_num_threads(threads);
  torch::set_num_interop_threads(1);
  std::cout << json{{"framework", "libtorch"},
                    {"version", TORCH_VERSION},
                    {"peers", {{"LibTorch", {"mlp", "convnet"}}}}}
            << std::endl;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(json::parse(line), threads) << std::endl;
}
