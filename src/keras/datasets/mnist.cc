#include "keras/datasets/files.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/datasets.h"

namespace lockstep::keras::datasets {
namespace {

struct Part {
  PublishedFile images;
  PublishedFile labels;
  int64_t count;
};

Examples load(const Publication& publication, const Part& part, const LoadOptions& options,
              std::source_location where) {
  const auto read = [&](const PublishedFile& file, const Shape& shape) {
    const std::string path = locate(publication, file, options, where);
    Tensor tensor = read_idx(path, where);
    require(tensor.spec() == TensorSpec{DType::uint8, shape}, ErrorCode::io, where, publication.name, ": \"",
            path, "\" holds ", tensor.spec(), " where ", TensorSpec{DType::uint8, shape},
            " is expected; is it the file of another data set?");
    return tensor;
  };
  return {read(part.images, {part.count, 28, 28}), read(part.labels, {part.count})};
}

PublishedFile file(std::string_view name, std::string_view unpacked, std::string_view dotted,
                   std::string_view sha256) {
  return {name, sha256, {unpacked, dotted}};
}

TrainTest load(const Publication& publication, const std::string_view (&sha256)[4],
               const LoadOptions& options, std::source_location where) {
  const Part train{
      file("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte", "train-images.idx3-ubyte", sha256[0]),
      file("train-labels-idx1-ubyte.gz", "train-labels-idx1-ubyte", "train-labels.idx1-ubyte", sha256[1]),
      60000};
  const Part test{
      file("t10k-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte", sha256[2]),
      file("t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte", sha256[3]),
      10000};
  return {load(publication, train, options, where), load(publication, test, options, where)};
}

}  // namespace

TrainTest mnist::load_data(const LoadOptions& options, std::source_location where) {
  return load({"mnist",
               {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/"}},
              {"440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
               "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
               "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
               "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
              options, where);
}

TrainTest fashion_mnist::load_data(const LoadOptions& options, std::source_location where) {
  return load({"fashion_mnist",
               {"https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"}},
              {"3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
               "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
               "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
               "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
              options, where);
}

}  // namespace lockstep::keras::datasets
