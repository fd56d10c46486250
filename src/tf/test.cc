#include "lockstep/tf/test.h"

#include "device/plugin.h"

namespace lockstep::test {

bool is_built_with_cuda() { return find_plugin("cuda") != nullptr; }

}  // namespace lockstep::test
