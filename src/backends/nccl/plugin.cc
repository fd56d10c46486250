// The plugin's entry: communicators of NCCL.
#include "device/plugin.h"

#include <algorithm>
#include <cstring>

#include "backends/nccl/nccl_communicator.h"
#include "lockstep/base/error.h"

namespace lockstep::nccl {
namespace {

class Backend final : public comm::CommunicatorBackend {
 public:
  std::string description() const override {
    const Library& nccl = library();
    return detail::concat("NCCL ", nccl.version / 10000, ".", nccl.version % 10000 / 100, ".",
                          nccl.version % 100, " of ", nccl.path);
  }

  std::string make_id() const override {
    ncclUniqueId id;
    const ncclResult_t result = library().get_unique_id(&id);
    require(result == ncclSuccess, ErrorCode::io, std::source_location::current(),
            "NCCL finds no network to connect ranks through: ", library().get_error_string(result), " (",
            library().get_last_error(nullptr), "); NCCL_SOCKET_IFNAME names the interface to use");
    return {id.internal, sizeof id.internal};
  }

  std::unique_ptr<comm::Communicator> join(Device& device, const std::string& id, int rank, int size,
                                           const comm::CommunicatorOptions& options) const override {
    auto communicator = begin(device, id, rank, size, options);
    communicator->connect();
    communicator->check();
    return communicator;
  }

  std::vector<std::unique_ptr<comm::Communicator>> join_all(
      std::span<Device* const> devices, const Place& place,
      const comm::CommunicatorOptions& options) const override {
    std::vector<std::unique_ptr<NcclCommunicator>> begun;
    for (Device* device : devices)
      begun.push_back(
          begin(*device, place.id, place.first + static_cast<int>(begun.size()), place.size, options));
    std::vector<std::unique_ptr<comm::Communicator>> all;
    for (auto& communicator : begun) {
      communicator->connect();
      communicator->check();
      all.push_back(std::move(communicator));
    }
    return all;
  }

 private:
  static std::unique_ptr<NcclCommunicator> begin(Device& device, const std::string& id, int rank, int size,
                                                 const comm::CommunicatorOptions& options) {
    require(device.kind() == DeviceKind::gpu, ErrorCode::device_mismatch, std::source_location::current(),
            "NCCL joins GPUs; ", device.name(), " is none");
    ncclUniqueId unique;
    require(id.size() == sizeof unique.internal, ErrorCode::invalid_argument, std::source_location::current(),
            "an id of NCCL has ", sizeof unique.internal, " bytes, received ", id.size());
    std::memcpy(unique.internal, id.data(), id.size());
    return std::make_unique<NcclCommunicator>(device, unique, rank, size, options);
  }
};

}  // namespace
}  // namespace lockstep::nccl

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static const lockstep::nccl::Backend backend;
  static const lockstep::Plugin plugin{lockstep::kPluginAbiTag, "nccl", lockstep::PluginKind::communicator,
                                       static_cast<const lockstep::comm::CommunicatorBackend*>(&backend)};
  return &plugin;
}
