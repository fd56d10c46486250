// Input pipelines against what they are made of. Each function gives the candidates of one work, the
// reference first.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/bench.h"

namespace lockstep::bench {

// An epoch of kSliceExamples shuffled rows of kSliceColumns floats in batches, one iteration per batch:
// from_tensor_slices + shuffle + batch + prefetch, against copying the same rows one after another.
inline constexpr int64_t kSliceExamples = 60000, kSliceColumns = 784;
std::vector<Candidate> slices_candidates(int64_t batch);

// A function of about 0.2 ms over 256 elements, one iteration per element: on one thread, on `threads`, and
// as AUTOTUNE finds them, against calling it in a loop.
std::vector<Candidate> map_candidates(int threads);

// Steps of 1 ms on elements that take 0.8 ms each, made meanwhile by prefetch, against the steps alone. Fails
// where explain() and the step clock do not agree on how long the steps waited.
std::vector<Candidate> hidden_candidates();

// A TFRecord file of kRecords records of kRecordBytes, in the system's cache, one iteration a pass:
// TFRecordDataset against reading the file and taking the checksum of its bytes.
inline constexpr int64_t kRecords = 4096, kRecordBytes = 16384;
std::vector<Candidate> tfrecord_candidates();

// kJpegs images of kJpegSide pixels a side, in batches of 32, one iteration a pass: decoded by a parallel map
// of `threads` right into the batch, against libjpeg-turbo alone in as many threads.
inline constexpr int64_t kJpegs = 256, kJpegSide = 256;
std::vector<Candidate> jpeg_candidates(int threads);

}  // namespace lockstep::bench
