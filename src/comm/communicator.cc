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

std::vector<std::unique_ptr<Communicator>> CommunicatorBackend::join_all(
    std::span<Device* const> devices, const Place& place, const CommunicatorOptions& options) const {
  std::vector<std::unique_ptr<Communicator>> all;
  for (Device* device : devices)
    all.push_back(join(*device, place.id, place.first + static_cast<int>(all.size()), place.size, options));
  return all;
}

std::string CommunicatorBackend::share_at_launch(const std::string&, int, int) const {
  fail(ErrorCode::unsupported, std::source_location::current(), description(),
       " has no launcher of its own that would bring processes together");
}

std::vector<std::unique_ptr<Communicator>> join_all(std::span<Device* const> devices,
                                                    std::string_view backend,
                                                    const CommunicatorOptions& options) {
  const CommunicatorBackend& library = communicator_backend(backend);
  return library.join_all(devices, {library.make_id(), 0, static_cast<int>(devices.size())}, options);
}

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
