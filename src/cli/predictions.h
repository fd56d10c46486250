// Predictions as a file that others read.
#pragma once

#include <string>

#include "lockstep/train/safetensors.h"

namespace lockstep::cli {

// The format that the ending of a file's name stands for: .npy (NumPy; one output), .csv (a row per example,
// a column per number), .jsonl (a line of JSON per example) or .safetensors. Throws Error(invalid_argument)
// for other endings.
enum class PredictionFormat { npy, csv, jsonl, safetensors };
PredictionFormat prediction_format(const std::string& path);

// The file appears complete or not at all.
void write_predictions(const train::NamedTensors& predictions, const std::string& path);

// A line per example: its numbers as a nested list, or an object of such lists where there are several
// outputs.
std::string prediction_lines(const train::NamedTensors& predictions);

}  // namespace lockstep::cli
