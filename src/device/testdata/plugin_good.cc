// A plugin that the loader must accept: named cuda, built with this tree's tag.
#include "device/plugin.h"

extern "C" __attribute__((visibility("default"))) const lockstep::Plugin* lockstep_plugin() {
  static constexpr int kInterface = 42;
  static constexpr lockstep::Plugin kPlugin{lockstep::kPluginAbiTag, "cuda", lockstep::PluginKind::device,
                                            &kInterface};
  return &kPlugin;
}
