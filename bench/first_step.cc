#include "bench/first_step.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>

#include "bench/child.h"

namespace lockstep::bench {

FirstStep first_step(const std::string& name, const std::vector<std::string>& command) {
  namespace fs = std::filesystem;
  constexpr std::chrono::seconds kPatience{900};  // with frameworks that compile for minutes
  const fs::path folder = fs::temp_directory_path() / ("lockstep_first_step_" + std::to_string(getpid()));
  struct Removed {
    fs::path folder;
    ~Removed() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  } const removed{folder};
  fs::create_directories(folder);
  std::vector<std::string> words{"env", "XDG_CACHE_HOME=" + folder.string(),
                                 "CUDA_CACHE_PATH=" + (folder / "cuda").string()};
  words.insert(words.end(), command.begin(), command.end());
  const auto once = [&] {
    const auto start = std::chrono::steady_clock::now();
    Child child(name, words);
    const nlohmann::json answer = child.receive(kPatience);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    for (const char* wrong : {"error", "missing"})
      if (answer.contains(wrong)) throw std::runtime_error(answer[wrong].get<std::string>());
    return elapsed.count();
  };
  const double cold = once();
  return {.cold_s = cold, .again_s = once()};
}

}  // namespace lockstep::bench
