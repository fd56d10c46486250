// Tables of which a step reads few rows, on a GPU: the bits are those of a gradient of the table's size.
#include "sparse_tables.h"

#include "gpu/gpu.h"

namespace lockstep::testing {
namespace {

using GpuSparseTables = Gpu;

TEST_F(GpuSparseTables, HaveTheBitsOfADenseGradient) {
  const DeviceScope scope(gpu());
  for (const TableCase& c : table_cases()) {
    SCOPED_TRACE(c.name);
    TrainedTable sparse(c), dense(c), eager(c);
    const auto found = sparse.train(How::sparse);
    EXPECT_EQ(sparse.explained().find("sparse_update") != std::string::npos, c.sparse) << sparse.explained();
    EXPECT_EQ(found, dense.train(How::dense));
    EXPECT_EQ(found, eager.train(How::eager));
  }
}

}  // namespace
}  // namespace lockstep::testing
