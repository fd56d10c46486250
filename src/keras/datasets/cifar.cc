#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "keras/datasets/files.h"
#include "keras/datasets/tar.h"
#include "lockstep/base/error.h"

namespace lockstep::keras::datasets {
namespace {

constexpr int64_t kSide = 32, kPixels = kSide * kSide, kChannels = 3;

struct Layout {
  Publication publication;
  PublishedFile archive;  // also: its folder, unpacked
  std::vector<std::string> train;
  std::vector<std::string> test;
  int64_t label_bytes;  // before each image
  int64_t label;        // which of them
};

// Records of labels and then the red, the green and the blue plane of an image.
Examples parse(const Layout& layout, const std::vector<std::string>& names,
               const std::map<std::string, std::string>& contents, int64_t count,
               std::source_location where) {
  std::vector<uint8_t> x(static_cast<size_t>(count * kPixels * kChannels)), y(static_cast<size_t>(count));
  const int64_t record = layout.label_bytes + kChannels * kPixels;
  const int64_t each = count / std::ssize(names);
  int64_t example = 0;
  for (const std::string& name : names) {
    const std::string& bytes = contents.at(name);
    require(std::ssize(bytes) == each * record, ErrorCode::io, where, layout.publication.name, ": ", name,
            " has ", bytes.size(), " bytes where ", each * record, " are expected");
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
    for (int64_t i = 0; i < each; ++i, ++example, from += record) {
      y[static_cast<size_t>(example)] = from[layout.label];
      uint8_t* to = &x[static_cast<size_t>(example * kPixels * kChannels)];
      for (int64_t pixel = 0; pixel < kPixels; ++pixel)
        for (int64_t c = 0; c < kChannels; ++c) *to++ = from[layout.label_bytes + c * kPixels + pixel];
    }
  }
  return {Tensor::from(x, {count, kSide, kSide, kChannels}), Tensor::from(y, {count, 1})};
}

TrainTest load(const Layout& layout, const LoadOptions& options, std::source_location where) {
  const std::string found = locate(layout.publication, layout.archive, options, where);
  std::vector<std::string> names = layout.train;
  names.insert(names.end(), layout.test.begin(), layout.test.end());
  std::map<std::string, std::string> contents;
  if (is_folder(found)) {
    const std::filesystem::path parent = std::filesystem::path(found).parent_path();
    for (const std::string& name : names) contents[name] = read_file((parent / name).string(), where);
  } else {
    contents = read_tar(found, names, where);
  }
  return {parse(layout, layout.train, contents, 50000, where),
          parse(layout, layout.test, contents, 10000, where)};
}

}  // namespace

TrainTest cifar10::load_data(const LoadOptions& options, std::source_location where) {
  Layout layout{{"cifar10", {"https://www.cs.toronto.edu/~kriz/"}},
                {"cifar-10-binary.tar.gz",
                 "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                 {"cifar-10-batches-bin"}},
                {},
                {"cifar-10-batches-bin/test_batch.bin"},
                1,
                0};
  for (int i = 1; i <= 5; ++i)
    layout.train.push_back("cifar-10-batches-bin/data_batch_" + std::to_string(i) + ".bin");
  return load(layout, options, where);
}

TrainTest cifar100::load_data(const std::string& label_mode, const LoadOptions& options,
                              std::source_location where) {
  require(label_mode == "fine" || label_mode == "coarse", ErrorCode::invalid_argument, where,
          "cifar100: label_mode is \"fine\" or \"coarse\", received \"", label_mode, "\"");
  return load({{"cifar100", {"https://www.cs.toronto.edu/~kriz/"}},
               {"cifar-100-binary.tar.gz",
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                {"cifar-100-binary"}},
               {"cifar-100-binary/train.bin"},
               {"cifar-100-binary/test.bin"},
               2,
               label_mode == "fine" ? 1 : 0},
              options, where);
}

}  // namespace lockstep::keras::datasets
