// The callback that keeps the record of a run, for `lockstep report`, `watch` and `doctor`
// (lockstep/observe/run_record.h):
//
//   model.fit(train, {.epochs = 5, .callbacks = {tf::keras::callbacks::RunRecord("runs/7")}});
#pragma once

#include <source_location>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/keras/callbacks.h"

namespace lockstep::keras::callbacks {

struct RunRecordOptions {
  Json configuration = Json::object();  // what the run shall be known by, in words of yours
  // What the device can do at most, for the kernels' share of it (doctor::ceilings); 0: not known.
  double flops_per_second = 0;
  double half_flops_per_second = 0;  // on 16-bit floats; 0: as many
  double bytes_per_second = 0;
  std::string ceiling_is = {};  // how that is known
};
// Keeps record.json in `folder` up to date: curves, where the time of the steps went, some of them in full,
// the input, memory, kernels and verdicts. A thread of its own writes it every few seconds, whole; a few
// early steps are traced, unless the program traces itself. Where the run goes on from a backup or with an
// initial_epoch, so does the record that lies there. Of several workers every one has this callback, and the
// chief writes for all: the others tell it every second what they did. A folder is for one run at a time.
Callback RunRecord(const std::string& folder, const RunRecordOptions& options = {},
                   std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::callbacks
