#include "lockstep/plan/machines.h"

#include <cmath>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::plan {
namespace {

// What an all-reduce is taken to reach of a link's nominal rate. NCCL's authors expect 370 of 450 GB/s of
// NVLink 4 and 46 to 48 of 50 GB/s of InfiniBand NDR (github.com/NVIDIA/nccl-tests, issues 212 and 290).
constexpr double kReached = 0.8;

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

Link preset(const char* name, double nominal_gb_per_s, double latency_us, const char* source) {
  return {name, kReached * nominal_gb_per_s * kGiga, latency_us * kMicro, source,
          detail::concat("that ", 100 * kReached, "% of the nominal ", nominal_gb_per_s,
                         " GB/s are reached, and the latency")};
}

template <class T>
std::string names_of(const std::vector<T>& all) {
  std::string text;
  for (const T& each : all) text += (text.empty() ? "" : ", ") + each.name;
  return text;
}

template <class T>
const T* find(const std::vector<T>& all, std::string_view name) {
  for (const T& each : all)
    if (each.name == name) return &each;
  return nullptr;
}

template <class T>
std::string nearest(const std::vector<T>& all, std::string_view name) {
  std::vector<std::string> names;
  for (const T& each : all) names.push_back(each.name);
  const std::string near = nearest_spelling(name, names);
  return near.empty() ? "" : "; did you mean \"" + near + "\"?";
}

// The number that the text begins with, which must be followed by `end`; the rest of the text stays.
bool take_number(std::string& text, char end, double& value) {
  char* rest = nullptr;
  value = std::strtod(text.c_str(), &rest);
  if (rest == text.c_str() || *rest != end || !std::isfinite(value)) return false;
  text = *rest == '\0' ? "" : std::string(rest + 1);
  return true;
}

}  // namespace

const std::vector<Link>& links() {
  static const std::vector<Link> all{
      preset("nvlink2", 150, 3, "NVIDIA V100 data sheet: 300 GB/s in both directions"),
      preset("nvlink3", 300, 3, "NVIDIA A100 data sheet: 600 GB/s in both directions"),
      preset("nvlink4", 450, 3, "NVIDIA H100 data sheet: 900 GB/s in both directions"),
      preset("nvlink5", 900, 3, "NVIDIA B200 data sheet: 1.8 TB/s in both directions"),
      preset("pcie3", 15.75, 6, "PCI Express 3.0, 16 lanes: 8 GT/s, 128b/130b"),
      preset("pcie4", 31.5, 6, "PCI Express 4.0, 16 lanes: 16 GT/s, 128b/130b"),
      preset("pcie5", 63, 6, "PCI Express 5.0, 16 lanes: 32 GT/s, 128b/130b"),
      preset("eth10", 1.25, 30, "10 Gbit/s Ethernet with TCP"),
      preset("eth25", 3.125, 30, "25 Gbit/s Ethernet with TCP"),
      preset("eth50", 6.25, 30, "50 Gbit/s Ethernet with TCP"),
      preset("eth100", 12.5, 30, "100 Gbit/s Ethernet with TCP"),
      preset("ib100", 12.5, 5, "InfiniBand EDR, 100 Gbit/s"),
      preset("ib200", 25, 5, "InfiniBand HDR, 200 Gbit/s"),
      preset("ib400", 50, 5, "InfiniBand NDR, 400 Gbit/s"),
      preset("ib800", 100, 5, "InfiniBand XDR, 800 Gbit/s"),
  };
  return all;
}

Link find_link(std::string_view text) {
  if (const Link* link = find(links(), text)) return *link;
  if (text == "nvlink") return find_link("nvlink4");
  const size_t equals = text.find('=');
  require(equals != std::string_view::npos, ErrorCode::invalid_argument, std::source_location::current(),
          "there is no link \"", text, "\"", nearest(links(), text), " Links are ", names_of(links()),
          "; write another as name=GBps:latency_us, mylink=12.5:20 say");
  Link link{.name = std::string(text.substr(0, equals)), .source = "given"};
  std::string rest(text.substr(equals + 1));
  double rate = 0, latency = 0;
  const bool good = !link.name.empty() && take_number(rest, ':', rate) && take_number(rest, '\0', latency) &&
                    rate > 0 && latency >= 0;
  require(good, ErrorCode::invalid_argument, std::source_location::current(), "the link \"", text,
          "\" is not written as name=GBps:latency_us, mylink=12.5:20 say: gigabytes per second above 0, "
          "microseconds of at least 0");
  link.bytes_per_s = rate * kGiga;
  link.latency_s = latency * kMicro;
  return link;
}

double Gpu::flops(DType dtype) const {
  return dtype == DType::bfloat16 || dtype == DType::float16 ? bfloat16_flops : float32_flops;
}

const std::vector<Gpu>& gpus() {
  static const std::vector<Gpu> all{
      {"v100", 15.7 * kTera, 125 * kTera, 0.9 * kTera, 32e9, "nvlink2", "NVIDIA V100 SXM2 data sheet"},
      {"a100", 19.5 * kTera, 312 * kTera, 2.039 * kTera, 80e9, "nvlink3", "NVIDIA A100 SXM 80 GB data sheet"},
      {"h100", 67 * kTera, 989 * kTera, 3.35 * kTera, 80e9, "nvlink4", "NVIDIA H100 SXM data sheet"},
      {"h200", 67 * kTera, 989 * kTera, 4.8 * kTera, 141e9, "nvlink4", "NVIDIA H200 SXM data sheet"},
      {"b200", 75 * kTera, 2250 * kTera, 8 * kTera, 180e9, "nvlink5", "NVIDIA HGX B200 data sheet"},
  };
  return all;
}

Gpu find_gpu(std::string_view name) {
  const Gpu* gpu = find(gpus(), name);
  require(gpu != nullptr, ErrorCode::invalid_argument, std::source_location::current(),
          "there is no device \"", name, "\"", nearest(gpus(), name), " Devices are ", names_of(gpus()),
          ", and \"this\": measured on this machine");
  return *gpu;
}

}  // namespace lockstep::plan
