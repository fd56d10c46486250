// HDF5 files, as far as weights are kept in them: groups, arrays of numbers, attributes of text.
//
// libhdf5 is loaded with the first file (docs/decisions/0098). It may be used by one thread at a time; these
// classes see to that, and may themselves be used by one thread at a time. Some damaged files make libhdf5
// itself crash: a child of this process looks through a file before it is opened here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::train {

// A file opened for reading. Paths inside have no slash at either end; "" is the file's own group. Links to
// other places or files, and arrays that are kept in other files, are not followed: a file can name none but
// itself. Everything throws Error(io) for a damaged file, with its path and what libhdf5 said.
class Hdf5Reader {
 public:
  // Throws Error(not_found) where there is none, Error(io) where it is no HDF5 file or libhdf5 crashes on it,
  // Error(unsupported) where libhdf5 cannot be loaded.
  explicit Hdf5Reader(const std::string& path, std::source_location where = std::source_location::current());
  // A file in memory, which is copied; errors call it by this name.
  Hdf5Reader(const std::string& bytes, std::string name,
             std::source_location where = std::source_location::current());
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;
  ~Hdf5Reader();

  const std::string& name() const { return name_; }

  bool has_group(const std::string& path) const;
  bool has_array(const std::string& path) const;
  // Names of what is directly in the group, sorted; empty where there is no such group.
  std::vector<std::string> names(const std::string& group) const;

  // The dtype is the one that read() gives. bfloat16 is marked by Keras' attribute "dtype"; integers that
  // Lockstep has no dtype for become wider ones. Throws Error(unsupported) for elements that are no numbers.
  TensorSpec spec(const std::string& array) const;
  Tensor read(const std::string& array) const;

  // Nullopt where the group or array has no such attribute. Throws Error(io) where it is no text, or texts.
  std::optional<std::string> text(const std::string& path, const std::string& attribute) const;
  std::optional<std::vector<std::string>> texts(const std::string& path, const std::string& attribute) const;

 private:
  class Object;
  // Calls open(*this) here where a child of this process has come through it and through all that is in the
  // file.
  void open_tried(const std::function<void(Hdf5Reader&)>& open);
  // At most so many objects, so many groups deep: a group may contain itself.
  void look_through(const std::string& group, int deepest, int& most) const;
  void open_file();
  void open_image(const std::string& bytes);

  int64_t file_;
  std::string name_;
  std::source_location where_;
};

// A file being written, in memory: nothing of libhdf5's making is on a disk before it is complete. Groups are
// made as they are needed.
class Hdf5Writer {
 public:
  // Throws as Hdf5Reader does.
  explicit Hdf5Writer(std::source_location where = std::source_location::current());
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;
  ~Hdf5Writer();

  void make_group(const std::string& group);
  void add(const std::string& group, const std::string& name, const Tensor& value);
  void set_text(const std::string& group, const std::string& attribute, const std::string& text);
  // As Keras keeps lists of texts: what is too long for an attribute is in "NAME0", "NAME1", ...; none at all
  // is no attribute.
  void set_texts(const std::string& group, const std::string& attribute,
                 const std::vector<std::string>& texts);
  // The whole file. Nothing can be added after that.
  std::string finish();

 private:
  int64_t group(const std::string& path);

  int64_t file_;
  std::map<std::string, int64_t> groups_;
  std::source_location where_;
};

}  // namespace lockstep::train
