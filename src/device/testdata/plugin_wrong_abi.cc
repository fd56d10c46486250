// A plugin that the loader must refuse: everything fits but the tag.
#include "device/plugin.h"

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static constexpr lockstep::Plugin kPlugin{"lockstep 0.0.0, build of another day", "cuda",
                                            lockstep::PluginKind::device, nullptr};
  return &kPlugin;
}
