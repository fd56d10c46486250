// What the parts of the plugin note down.
#pragma once

#include "gpu_sources/driver.h"

namespace lockstep::testing {

Made& made();

}  // namespace lockstep::testing
