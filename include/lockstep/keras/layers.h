// Every layer of Keras.
#pragma once

#include "lockstep/keras/layers/convolutional.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/keras/layers/pooling.h"
#include "lockstep/keras/layers/reshaping.h"
