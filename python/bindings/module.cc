#include <thread>

#include "lockstep/base/interruption.h"
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
  // Python handles signals on its main thread alone. Other threads do not wait for the interpreter here: whoever waits
  // for them may hold it.
  static const std::thread::id importer = std::this_thread::get_id();
  lockstep::set_interruption_check([] {
    if (std::this_thread::get_id() == importer) in_python(check_signals);
  });
}
