// The plugin's entry: communicators of MPI.
#include "device/plugin.h"

#include <algorithm>

#include "backends/mpi/mpi_communicator.h"
#include "lockstep/base/error.h"

namespace lockstep::mpi_engine {
namespace {

class Backend final : public comm::CommunicatorBackend {
 public:
  std::string description() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    return all.substr(0, std::min(all.find(','), all.find('\n')));
  }
  std::string make_id() const override { return "mpi"; }
  std::unique_ptr<comm::Communicator> join(Device&, const std::string&, int rank, int size,
                                           const comm::CommunicatorOptions&) const override {
    return std::make_unique<MpiCommunicator>(rank, size);
  }
  std::string share_at_launch(const std::string& bytes, int rank, int size) const override {
    enter_world(rank, size);
    int length = static_cast<int>(bytes.size());
    MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::string shared = rank == 0 ? bytes : std::string(static_cast<size_t>(length), '\0');
    MPI_Bcast(shared.data(), length, MPI_BYTE, 0, MPI_COMM_WORLD);
    return shared;
  }
};

}  // namespace
}  // namespace lockstep::mpi_engine

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static const lockstep::mpi_engine::Backend backend;
  static const lockstep::Plugin plugin{lockstep::kPluginAbiTag, "mpi", lockstep::PluginKind::communicator,
                                       static_cast<const lockstep::comm::CommunicatorBackend*>(&backend)};
  return &plugin;
}
