// The works that run on a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

// Splits the first GPU into two logical ones. Before a device is used.
void configure_gpus();
// Why there is no GPU; empty: there is one.
std::string why_no_gpu();

// Training steps of Dense 784-128-10 with Adam on the first GPU: compiled, on the same batch every time, from the GPU's
// memory and from the host's; and Model::fit, an epoch over 60,000 examples on the GPU.
std::vector<Candidate> gpu_mlp_candidates(int64_t batch);
// ResNet-50 and GPT-2 124M (networks.h) on one logical GPU; ResNet-50 also on two of one GPU, of the same batch together.
std::vector<Candidate> gpu_resnet50_candidates(int64_t batch);
std::vector<Candidate> gpu_gpt2_candidates(int64_t batch);

// Which kernels a step of a network ("resnet50", "gpt2") spends its time in.
std::string gpu_profile(const std::string& network);

}  // namespace lockstep::bench
