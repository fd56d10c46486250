// Data sets.
//
// The functions may be called by several threads, and processes, at once: each result is the caller's own,
// and a file that is missing is downloaded by one of them while the others wait.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::datasets {

struct Examples {
  Tensor x;  // the first dimension runs over the examples
  Tensor y;  // labels
};

struct TrainTest {
  Examples train;
  Examples test;
};

struct DigitsOptions {
  uint64_t seed = 0;
  int64_t train_size = 60000;
  int64_t test_size = 10000;
};

// Handwritten-like digits that are made, not loaded: the same bytes for the same seed everywhere. x is uint8
// (n, 28, 28), grey images in which 0 is the background, y uint8 (n,). The test examples do not depend on
// train_size.
TrainTest digits(const DigitsOptions& options = {},
                 std::source_location where = std::source_location::current());

struct LoadOptions {
  // Where to look for the files first, as published or unpacked.
  std::string folder = {};
  // Whether what is found neither there nor in the cache folder is downloaded, checked and kept in the
  // latter.
  bool download = true;
  // URLs of folders that are tried before the publishers' own.
  std::vector<std::string> mirrors = {};
};

// The published data sets, from options.folder, the cache folder ($LOCKSTEP_DATA_DIR, else lockstep in
// $XDG_CACHE_HOME, else ~/.cache/lockstep) or their publishers. Where there is none of that, the Error says
// which files to put where.
//
// 60,000 and 10,000 grey images: x is uint8 (n, 28, 28), y uint8 (n,).
//
//   const auto [train, test] = tf::keras::datasets::mnist::load_data();
//   const auto [x_train, y_train] = train;
namespace mnist {
TrainTest load_data(const LoadOptions& options = {},
                    std::source_location where = std::source_location::current());
}
namespace fashion_mnist {
TrainTest load_data(const LoadOptions& options = {},
                    std::source_location where = std::source_location::current());
}
// 50,000 and 10,000 colour images: x is uint8 (n, 32, 32, 3), y uint8 (n, 1).
namespace cifar10 {
TrainTest load_data(const LoadOptions& options = {},
                    std::source_location where = std::source_location::current());
}
// label_mode: "fine" (100 classes) or "coarse" (20).
namespace cifar100 {
TrainTest load_data(const std::string& label_mode = "fine", const LoadOptions& options = {},
                    std::source_location where = std::source_location::current());
}

// An array in the IDX format (that of MNIST), compressed with gzip or not: uint8, int32, float32 or float64.
Tensor read_idx(const std::string& path, std::source_location where = std::source_location::current());

struct CsvOptions {
  // The column of the labels: its name in the header, or its number, from 0 or, negative, from the end.
  // Empty: y is none, and all columns are x.
  std::string label_column = {};
  bool header = true;
  char separator = ',';
};

// A table of numbers (RFC 4180: fields may be quoted, and then hold separators and line breaks). x is float32
// (rows, columns), y float32 (rows,). Throws Error(io) with file, line and column where a field is no number
// or a row has another number of fields than the first.
Examples read_csv(const std::string& path, const CsvOptions& options = {},
                  std::source_location where = std::source_location::current());

// A table whose columns a program picks itself.
struct Table {
  std::string path;
  std::vector<std::string> columns;  // their names; without a header their numbers
  Tensor values;                     // float64 (rows, columns)

  // The position of the column of this name, else of this number, from 0 or, negative, from the end. Throws
  // Error(invalid_argument) that names the nearest name.
  size_t position(const std::string& column,
                  std::source_location where = std::source_location::current()) const;
};
// The same file with every column; options.label_column is not looked at.
Table read_table(const std::string& path, const CsvOptions& options = {},
                 std::source_location where = std::source_location::current());

}  // namespace lockstep::keras::datasets
