// Every layer of Keras.
#pragma once

#include "lockstep/keras/layers/activation.h"
#include "lockstep/keras/layers/attention.h"
#include "lockstep/keras/layers/augmentation.h"
#include "lockstep/keras/layers/convolutional.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/keras/layers/image.h"
#include "lockstep/keras/layers/lookup.h"
#include "lockstep/keras/layers/merging.h"
#include "lockstep/keras/layers/normalization.h"
#include "lockstep/keras/layers/pooling.h"
#include "lockstep/keras/layers/position_embedding.h"
#include "lockstep/keras/layers/preprocessing.h"
#include "lockstep/keras/layers/recurrent.h"
#include "lockstep/keras/layers/reshaping.h"
