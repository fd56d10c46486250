// tf::io: files, records and images under TensorFlow's module of this name.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include "lockstep/base/files.h"
#include "lockstep/data/example.h"
#include "lockstep/data/files.h"
#include "lockstep/data/image.h"

namespace lockstep::io {

using data::decode_image;
using data::encode_jpeg;
using data::encode_png;
using data::parse_example;
using data::TFRecordOptions;
using data::TFRecordWriter;
using lockstep::read_file;

// The file appears complete or not at all.
inline void write_file(const std::string& path, std::string_view contents,
                       std::source_location where = std::source_location::current()) {
  AtomicFile file(path, where);
  file.write(contents);
  file.commit();
}
// decode_image() reads either kind of file.
inline Tensor decode_jpeg(std::string_view contents, int channels = 0,
                          std::source_location where = std::source_location::current()) {
  return decode_image(contents, channels, "image", where);
}
inline Tensor decode_png(std::string_view contents, int channels = 0,
                         std::source_location where = std::source_location::current()) {
  return decode_image(contents, channels, "image", where);
}

}  // namespace lockstep::io
