// Tests of several processes on the one GPU: the test program starts itself as each of the ranks.
#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

// What a rank does; throws where something is wrong. By name: what is started finds it there.
using Scenario = void (*)(int rank, int size, const std::string& address);
class RegisterScenario {
 public:
  RegisterScenario(const char* name, Scenario scenario);
};

// Where the program was started as a rank: runs it and returns its exit status; else -1.
int run_as_rank(int argc, char** argv);

struct RankResult {
  int status = -1;  // 0: all was well; negative: the signal that ended it
  std::string output;
};
// One process for each rank, all on the same GPU; those that take longer than `seconds` are killed.
std::vector<RankResult> run_ranks(const char* scenario, int size, double seconds);

}  // namespace lockstep::testing
