#include "data/host.h"
#include "data/labelled_files.h"
#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {

// Rows of numbers are shuffled, batched and split among workers; images are read behind that.
Dataset image_folder_dataset(const std::string& folder, const ImageFolderOptions& options,
                             std::source_location where) {
  constexpr const char* kOp = "image_folder_dataset";
  require(options.image_size.size() == 2 && options.image_size[0] > 0 && options.image_size[1] > 0,
          ErrorCode::invalid_argument, where, kOp, ": image_size is a positive height and width");
  require(options.channels == 1 || options.channels == 3 || options.channels == 4,
          ErrorCode::invalid_argument, where, kOp, ": channels is 1, 3 or 4, received ", options.channels);
  require(options.batch_size >= 0, ErrorCode::invalid_argument, where, kOp,
          ": batch_size must not be negative, received ", options.batch_size);
  const LabelledFiles listing =
      list_labelled_files(kOp, folder, options.class_names, kImageExtensions, options.labels, where);
  const int64_t count = std::ssize(listing.files);
  auto paths = std::make_shared<std::vector<std::string>>();
  std::vector<int64_t> numbers;
  std::vector<int32_t> labels;
  for (const LabelledFile& file : listing.files) {
    numbers.push_back(std::ssize(numbers));
    labels.push_back(file.label);
    paths->push_back(file.path);
  }
  const DeviceScope host(host_device());
  Dataset rows = Dataset::from_tensor_slices(
      Element(Tensor::from(numbers, {count}), Tensor::from(labels, {count})), where);
  if (options.shuffle) rows = rows.shuffle(count, {.seed = options.seed}, where);
  const bool batches = options.batch_size > 0;
  if (batches) rows = rows.batch(options.batch_size, {.drop_remainder = options.drop_remainder}, where);

  const DecodeOptions decoding{
      .image_size = options.image_size, .channels = options.channels, .resize = options.resize};
  const bool labelled = options.labels;
  const auto read = [paths, decoding, labelled, batches, where](const Tensor& chosen, const Tensor& label) {
    std::vector<std::string> files;
    for (const int64_t number : chosen.to_vector<int64_t>(where))
      files.push_back((*paths)[static_cast<size_t>(number)]);
    Tensor images = decode_image_files(files, decoding, where);
    if (!batches) {
      Shape shape = images.shape();
      shape.erase(0);
      images = make_view(*images.impl(), {images.dtype(), shape}, contiguous_strides(shape), 0);
    }
    return labelled ? Element(images, label) : Element(images);
  };
  ElementSpec spec{{}, {{DType::float32, {options.image_size[0], options.image_size[1], options.channels}}}};
  if (labelled) {
    spec.structure = Structure::tuple({{}, {}});
    spec.tensors.push_back({DType::int32, {}});
  }
  if (batches)
    for (TensorSpec& tensor : spec.tensors)
      tensor.shape.insert(0, options.drop_remainder ? options.batch_size : -1);
  return rows.map(read, {.num_parallel_calls = options.num_parallel_calls, .output = std::move(spec)}, where);
}

}  // namespace lockstep::data
