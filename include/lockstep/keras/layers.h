// Every layer of Keras.
#pragma once

#include "lockstep/keras/layers/core.h"
