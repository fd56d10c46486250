#include "backends/cpu/dnnl_sequence.h"
#include "device/backend_facts.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

const char* isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41: return "SSE 4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 with bfloat16";
    case dnnl::cpu_isa::avx512_core_amx: return "AVX-512 with AMX";
    default: return "another";
  }
}

BackendFacts describe() {
  dnnl_engine();
  const dnnl_version_t& version = *dnnl_version();
  return {
      "cpu",
      {{"oneDNN", detail::concat(version.major, ".", version.minor, ".", version.patch)},
       {"oneDNN instruction set", isa_name(dnnl::get_effective_cpu_isa())},
       {"cap on it", "AVX-512 with bfloat16 (oneDNN 2.6 executes illegal instructions where it picks AMX)"}}};
}

const RegisterBackendFacts registered(describe);

}  // namespace
}  // namespace lockstep::cpu
