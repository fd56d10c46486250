// The plugin's entry: communicators of Gloo.
#include "device/plugin.h"

#include <gloo/config.h>

#include <csignal>

#include "backends/gloo/gloo_communicator.h"
#include "lockstep/base/error.h"

namespace lockstep::gloo_engine {
namespace {

class Backend final : public comm::CommunicatorBackend {
 public:
  std::string description() const override {
    return detail::concat("Gloo ", GLOO_VERSION_MAJOR, ".", GLOO_VERSION_MINOR, ".", GLOO_VERSION_PATCH,
                          " over TCP");
  }
  std::string make_id() const override { return "gloo"; }
  std::unique_ptr<comm::Communicator> join(Device&, const std::string&, int rank, int size,
                                           const comm::CommunicatorOptions& options) const override {
    // Gloo writes to sockets without MSG_NOSIGNAL: a peer that has gone would end this process instead of
    // being named.
    struct sigaction now {};
    if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
    return std::make_unique<GlooCommunicator>(rank, size, options);
  }
};

}  // namespace
}  // namespace lockstep::gloo_engine

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static const lockstep::gloo_engine::Backend backend;
  static const lockstep::Plugin plugin{lockstep::kPluginAbiTag, "gloo", lockstep::PluginKind::communicator,
                                       static_cast<const lockstep::comm::CommunicatorBackend*>(&backend)};
  return &plugin;
}
