// Cross entropy of integer labels, for rules and kernels that name it.
#pragma once

#include "graph/op.h"

namespace lockstep {

// (logits [..., C], labels [...]) -> (loss [...], stats [..., 2]). The statistics of a row are its largest
// logit and the sum of exp(logit - largest): all that the backward pass needs to make the probabilities
// again, in float32 (float64 for float64 logits) whatever the logits are.
extern const OpDef kSigmoidCrossEntropy;  // elementwise, of logits and labels
extern const OpDef kSparseCrossEntropy;

// (logits, labels, stats, dloss [...]) -> (softmax(logits) - one_hot(labels)) * dloss
extern const OpDef kSparseCrossEntropyGrad;

// (logits, labels, dloss) -> (loss, gradient): the two above at once, which compiled programs use on GPUs.
extern const OpDef kSparseCrossEntropyWithGrad;

}  // namespace lockstep
