// A machine with NVIDIA GPUs for tests: a folder that holds stand-ins for the vendor's libraries, the script
// of what they answer, and files of /dev, /proc and /sys.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/nvidia_driver.h"

namespace lockstep::nvidia {

inline std::string test_uuid(int gpu) {
  const std::string digit = std::to_string(gpu);
  return "GPU-1234567" + digit + "-0000-1111-2222-33333333333" + digit;
}

class FakeMachine {
 public:
  nlohmann::json script = nlohmann::json::object();

  FakeMachine() {
    static int count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              ("lockstep_nvidia_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(folder_ / "lib");
    std::filesystem::create_directories(folder_ / "root");
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  ~FakeMachine() {
    unsetenv("FAKE_NVIDIA");
    unsetenv("CUDA_VISIBLE_DEVICES");
    std::filesystem::remove_all(folder_);
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  // Driver, NVML, device nodes, module and bus, and so many GPUs of one kind.
  FakeMachine& with_gpus(int count) {
    with_driver();
    script["gpus"] = nlohmann::json::array();
    for (int i = 0; i < count; ++i) {
      const std::string bus = "0" + std::to_string(i + 1) + ":00.0";
      script["gpus"].push_back({{"name", "NVIDIA H200"},
                                {"uuid", test_uuid(i)},
                                {"pci", "00000000:" + bus},
                                {"memory", int64_t{141} << 30},
                                {"used", int64_t{600} << 20},
                                {"capability", 90},
                                {"values", {{"nvmlDeviceGetPersistenceMode", 1}}}});
      file("/dev/nvidia" + std::to_string(i));
      on_bus("0000:" + bus);
    }
    return *this;
  }
  FakeMachine& with_driver() { return library("libcuda.so.1").library("libnvidia-ml.so.1"); }
  FakeMachine& with_libraries() {
    for (const char* name :
         {"libcudart.so.13", "libcublasLt.so.13", "libnvrtc.so.13", "libcudnn.so.9", "libnccl.so.2"})
      library(name);
    return *this;
  }
  FakeMachine& library(const std::string& name) { return place(folder_ / "lib" / name); }
  FakeMachine& place(const std::filesystem::path& path) {
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::copy_file(LOCKSTEP_FAKE_NVIDIA, path, std::filesystem::copy_options::overwrite_existing);
    return *this;
  }
  FakeMachine& without(const std::string& name) {
    std::filesystem::remove(folder_ / "lib" / name);
    return *this;
  }
  FakeMachine& file(const std::string& path, const std::string& text = {}) {
    const std::filesystem::path whole = folder_ / "root" / path.substr(1);
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
    return *this;
  }
  FakeMachine& on_bus(const std::string& id) {
    return file("/sys/bus/pci/devices/" + id + "/vendor", "0x10de\n")
        .file("/sys/bus/pci/devices/" + id + "/class", "0x030200\n");
  }

  std::string libraries() const { return (folder_ / "lib").string(); }
  std::string folder() const { return folder_.string(); }

  Search search() const {
    std::ofstream(folder_ / "script.json") << script;
    setenv("FAKE_NVIDIA", (folder_ / "script.json").c_str(), 1);
    return {.folders = {libraries()},
            .system = false,
            .elsewhere = {folder_.string() + "/cuda*/lib"},
            .root = (folder_ / "root").string()};
  }
  Machine discovered() const { return discover(search()); }

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep::nvidia
