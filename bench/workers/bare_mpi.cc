// MPI's own all-reduce between the processes that mpirun started: what Lockstep's is measured against.
//   mpirun -n SIZE lockstep_bench_mpi FOLDER
#include <mpi.h>

#include <string>
#include <vector>

#include "bench/workers/control.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> data;
  const int status = lockstep::bench::serve(
      argv[1], rank, [&](int64_t bytes) { data.assign(static_cast<size_t>(bytes) / sizeof(float), 0.0f); },
      [&] {
        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      });
  MPI_Finalize();
  return status;
}
