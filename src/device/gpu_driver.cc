#include "device/gpu_driver.h"

#include "device/plugin.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

const Gpus& machine_gpus() {
  static const auto* found = [] {
    auto* gpus = new Gpus;
    for (const PluginStatus& status : plugin_statuses()) {
      if (status.kind != PluginKind::device || gpus->driver) continue;
      if (!status.loaded || !status.plugin->interface) {
        gpus->reason = detail::concat("plugin ", status.name, " is not loaded: ", status.reason);
        continue;
      }
      const auto* driver = static_cast<const GpuDriver*>(status.plugin->interface);
      try {
        gpus->list = driver->gpus();
        gpus->reason = gpus->list.empty() ? "the driver lists no GPU" : "";
        if (!gpus->list.empty()) gpus->driver = driver;
      } catch (const Error& error) {
        gpus->reason = error.message();
        if (error.code() != ErrorCode::not_found) log(LogLevel::warning, "no GPU is used: ", gpus->reason);
      }
    }
    return gpus;
  }();
  return *found;
}

}  // namespace lockstep
