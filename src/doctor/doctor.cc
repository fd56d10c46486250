#include "lockstep/doctor/doctor.h"

#include "doctor/checks.h"
#include "doctor/report.h"
#include "doctor/surroundings.h"
#include "doctor/trials.h"
#include "lockstep/base/error.h"

namespace lockstep::doctor {

Report examine(const Options& options) {
  const Surroundings seen = look_around();
  Report report = report_on(seen);
  if (options.quick || !seen.devices_fault.empty()) return report;
  try {
    for (Device* device : logical_devices()) {
      std::vector<Trial> trials = try_out(*device, effort_for(*device), seen.nvidia.gpus);
      report.trials.insert(report.trials.end(), trials.begin(), trials.end());
    }
  } catch (const Error& error) {
    report.findings.push_back(
        {"devices_failed", Severity::problem, "The devices cannot be made.", {error.message()}, ""});
  }
  for (Finding& finding : diagnose(report.trials)) report.findings.push_back(std::move(finding));
  put_problems_first(report.findings);
  return report;
}

Ceilings ceilings(const Device& device) {
  // Asking the driver takes a child process.
  return ceilings(device,
                  device.kind() == DeviceKind::gpu ? nvidia::discover().gpus : std::vector<nvidia::Gpu>());
}

}  // namespace lockstep::doctor
