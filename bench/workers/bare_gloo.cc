// Gloo's own all-reduce between processes of this machine: what Lockstep's is measured against.
//   lockstep_bench_gloo FOLDER RANK SIZE
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/workers/control.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string folder = argv[1];
  const int rank = std::atoi(argv[2]), size = std::atoi(argv[3]);
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(folder);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  std::vector<float> data;
  uint32_t tag = 0;
  return lockstep::bench::serve(
      folder, rank, [&](int64_t bytes) { data.assign(static_cast<size_t>(bytes) / sizeof(float), 0.0f); },
      [&] {
        gloo::AllreduceOptions options(context);
        options.setOutput(data.data(), data.size());
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        options.setTag(tag++);
        gloo::allreduce(options);
      });
}
