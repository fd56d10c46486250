#include "data/tuner.h"

namespace lockstep::data {

Tuner::Tuner(Pipeline& pipeline) : pipeline_(pipeline) {}

void Tuner::step() {}

}  // namespace lockstep::data
