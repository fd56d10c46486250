#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/gzip_file.h"
#include "data/sources/rows.h"
#include "lockstep/base/error.h"
#include "lockstep/data/files.h"

namespace lockstep::data {
namespace {

uint32_t big_endian(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// The format: two zero bytes, the type of the elements, the number of dimensions, each dimension as a
// big-endian uint32, then the elements, big-endian, in row-major order.
TensorSpec read_header(GzipFile& file, std::source_location where) {
  const std::string& path = file.path();
  const std::string magic = file.read_exactly(4, "the header");
  require(magic[0] == 0 && magic[1] == 0, ErrorCode::io, where, "IDX file \"", path,
          "\": it does not start with two zero bytes; it is no IDX file");
  DType dtype{};
  switch (magic[2]) {
    case 0x08: dtype = DType::uint8; break;
    case 0x0C: dtype = DType::int32; break;
    case 0x0D: dtype = DType::float32; break;
    case 0x0E: dtype = DType::float64; break;
    default:
      fail(ErrorCode::unsupported, where, "IDX file \"", path, "\": it holds elements of type ",
           static_cast<int>(static_cast<uint8_t>(magic[2])),
           "; readable are 8 (uint8), 12 (int32), 13 (float32) and 14 (float64)");
  }
  const int rank = static_cast<uint8_t>(magic[3]);
  require(rank <= kMaxRank, ErrorCode::unsupported, where, "IDX file \"", path, "\": it has ", rank,
          " dimensions; at most ", kMaxRank, " are supported");
  const std::string dims = file.read_exactly(4 * static_cast<size_t>(rank), "the header");
  Shape shape;
  auto bytes = static_cast<int64_t>(size_of(dtype));
  for (int i = 0; i < rank; ++i) {
    shape.push_back(big_endian(&dims[4 * static_cast<size_t>(i)]));
    require(!__builtin_mul_overflow(bytes, shape[-1], &bytes), ErrorCode::io, where, "IDX file \"", path,
            "\": the shape ", shape, " has more elements than can be counted");
  }
  return {dtype, shape};
}

}  // namespace

Tensor read_idx(const std::string& path, std::source_location where) {
  GzipFile file(path, where);
  const auto [dtype, shape] = read_header(file, where);
  const size_t bytes = TensorSpec{dtype, shape}.bytes();
  std::string elements = file.read_exactly(bytes, "the elements");
  char beyond = 0;
  require(file.read(&beyond, 1) == 0, ErrorCode::io, where, "IDX file \"", path,
          "\": there are more bytes than the ", bytes, " of shape ", shape);
  const size_t width = size_of(dtype);
  for (size_t i = 0; width > 1 && i < elements.size(); i += width)
    std::reverse(elements.begin() + static_cast<ptrdiff_t>(i),
                 elements.begin() + static_cast<ptrdiff_t>(i + width));
  return dispatch(dtype, [&]<class T>() {
    const std::span values(reinterpret_cast<const T*>(elements.data()), elements.size() / sizeof(T));
    return Tensor::from(values, shape, where);
  });
}

Dataset idx_dataset(const std::string& images, const std::string& labels, std::source_location where) {
  std::vector<std::string> files{images};
  if (!labels.empty()) files.push_back(labels);
  ElementSpec spec;
  if (!labels.empty()) spec.structure = Structure::tuple({{}, {}});
  for (const std::string& path : files) {
    GzipFile file(path, where);
    spec.tensors.push_back(read_header(file, where));
  }
  return stored_rows_dataset({.name = "idx_dataset",
                              .spec = std::move(spec),
                              .read =
                                  [files, where] {
                                    TensorList arrays;
                                    for (const std::string& path : files)
                                      arrays.push_back(read_idx(path, where));
                                    return arrays;
                                  }},
                             where);
}

}  // namespace lockstep::data
