#include "comm/communicator.h"

#include "device/plugin.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

const CommunicatorBackend* find_backend(std::string_view name, std::string& reason) {
  for (const PluginStatus& status : plugin_statuses()) {
    if (status.name != name || status.kind != PluginKind::communicator) continue;
    if (status.loaded && status.plugin->interface)
      return static_cast<const CommunicatorBackend*>(status.plugin->interface);
    reason = detail::concat("plugin ", name, " is not loaded: ", status.reason);
  }
  return nullptr;
}

}  // namespace

const CommunicatorBackend& communicator_backend(std::string_view name, std::source_location where) {
  std::string reason;
  const CommunicatorBackend* backend = find_backend(name, reason);
  require(backend != nullptr, ErrorCode::unsupported, where, reason);
  return *backend;
}

std::string missing_backend(std::string_view name) {
  std::string reason;
  const CommunicatorBackend* backend = find_backend(name, reason);
  if (!backend) return reason;
  try {
    backend->description();
    return {};
  } catch (const Error& error) {
    return error.message();
  }
}

std::unique_ptr<Communicator> join(Group& group, Device& device, CommunicatorOptions options,
                                   std::string_view backend, std::source_location where) {
  const CommunicatorBackend& library = communicator_backend(backend, where);
  options.group = &group;
  const std::string id = group.share(group.rank() == 0 ? library.make_id() : std::string(), where);
  return library.join(device, id, group.rank(), group.size(), options);
}

}  // namespace lockstep::comm
