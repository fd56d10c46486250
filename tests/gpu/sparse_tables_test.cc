// Tables of which a step reads few rows, on a GPU: the bits are those of a gradient of the table's size.
#include "sparse_tables.h"

#include "gpu/gpu.h"

namespace lockstep::testing {
namespace {

using GpuSparseTables = Gpu;

TEST_F(GpuSparseTables, HaveTheBitsOfADenseGradient) {
  const DeviceScope scope(gpu());
  for (const char* optimizer : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion"}) {
    SCOPED_TRACE(optimizer);
    TrainedTable sparse(optimizer), dense(optimizer), eager(optimizer);
    const auto found = sparse.train(How::sparse);
    EXPECT_NE(sparse.explained().find("sparse_update"), std::string::npos) << sparse.explained();
    EXPECT_EQ(found, dense.train(How::dense));
    EXPECT_EQ(found, eager.train(How::eager));
  }
}

}  // namespace
}  // namespace lockstep::testing
