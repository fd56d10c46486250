#include "python.h"

NB_MODULE(_lockstep, m) {
  using namespace lockstep::python;
  // Handles that the interpreter does not drop when it ends are no leak.
  nb::set_leak_warnings(false);
  bind_errors(m);
  bind_tensor(m);
  bind_ops(m);
  bind_engine(m);
  bind_layers(m);
  bind_training(m);
  bind_data(m);
  bind_files(m);
  bind_distribute(m);
}
