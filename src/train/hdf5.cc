#include "train/hdf5.h"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <span>
#include <utility>

#include "base/child_process.h"
#include "base/file.h"
#include "base/shared_library.h"
#include "graph/tensor_bytes.h"
#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// The formatter would write these lists anew with every call.
// clang-format off

// The functions that are used, under their own names.
#define LOCKSTEP_HDF5_FUNCTIONS(F)                                                                         \
  F(H5Aclose) F(H5Acreate2) F(H5Aexists) F(H5Aget_space) F(H5Aget_type) F(H5Aopen) F(H5Aread)              \
  F(H5Awrite) F(H5Dclose) F(H5Dcreate2) F(H5Dget_create_plist) F(H5Dget_space) F(H5Dget_storage_size)      \
  F(H5Dget_type) F(H5Dread) F(H5Dvlen_reclaim) F(H5Dwrite) F(H5Eclear2) F(H5Eget_auto2) F(H5Eset_auto2)    \
  F(H5Ewalk2) F(H5Fclose) F(H5Fcreate) F(H5Fflush) F(H5Fget_file_image) F(H5Fopen) F(H5Gclose)             \
  F(H5Gcreate2) F(H5Gget_info) F(H5Iget_type) F(H5Lexists) F(H5Lget_info) F(H5Lget_name_by_idx)            \
  F(H5Oclose) F(H5Oopen) F(H5Pclose) F(H5Pcreate) F(H5Pget_external_count) F(H5Pget_layout)                \
  F(H5Pset_fapl_core) F(H5Pset_file_image) F(H5Pset_obj_track_times) F(H5Sclose) F(H5Screate)              \
  F(H5Screate_simple) F(H5Sget_simple_extent_dims) F(H5Sget_simple_extent_ndims) F(H5Tclose) F(H5Tcopy)    \
  F(H5Tcreate) F(H5Tenum_insert) F(H5Tget_class) F(H5Tget_fields) F(H5Tget_nmembers) F(H5Tget_sign)        \
  F(H5Tget_size) F(H5Tis_variable_str) F(H5Tset_cset) F(H5Tset_fields) F(H5Tset_order)                     \
  F(H5Tset_precision) F(H5Tset_ebias) F(H5Tset_size) F(H5Tset_tag) F(H5open)

// Types and classes that the library keeps in variables, which H5open() fills.
#define LOCKSTEP_HDF5_TYPES(F)                                                                             \
  F(H5P_CLS_DATASET_CREATE_ID_g) F(H5P_CLS_FILE_ACCESS_ID_g) F(H5T_C_S1_g) F(H5T_IEEE_F32LE_g)             \
  F(H5T_IEEE_F64LE_g) F(H5T_NATIVE_DOUBLE_g) F(H5T_NATIVE_FLOAT_g) F(H5T_NATIVE_INT32_g)                   \
  F(H5T_NATIVE_INT64_g) F(H5T_NATIVE_INT8_g) F(H5T_NATIVE_UINT8_g)

// clang-format on

struct Library {
#define LOCKSTEP_MEMBER(name) decltype(&::name) name = nullptr;
  LOCKSTEP_HDF5_FUNCTIONS(LOCKSTEP_MEMBER)
  LOCKSTEP_HDF5_TYPES(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
};

const Library& library(std::source_location where) {
  struct Loaded {
    Library functions;
    std::string problem;
  };
  static const Loaded loaded = [] {
    Loaded result;
    // The soname says that types and functions are those of the header, which is 1.10's. They are those of
    // 1.14 too: a function that has a second version by then keeps its first one under its name and a 1. A
    // Python wheel carries 1.14; Debian calls the library that knows no MPI libhdf5_serial.
    const std::string names[] = {"libhdf5.so.310", "libhdf5_serial.so.310", "libhdf5_serial.so.103",
                                 "libhdf5.so.103"};
    LoadResult load = load_library(names);
    if (!load.library) {
      result.problem = describe(load.failures);
      return result;
    }
    load.library->keep_loaded();  // it has exit handlers
    const auto take = [&]<class T>(const char* name, T*& symbol) {
      auto found = load.library->symbol<T>(name);
      if (!found) found = load.library->symbol<T>((std::string(name) + "1").c_str());
      if (!found && result.problem.empty()) result.problem = found.error;
      symbol = found.address;
    };
#define LOCKSTEP_TAKE(name) take(#name, result.functions.name);
    LOCKSTEP_HDF5_FUNCTIONS(LOCKSTEP_TAKE)
    LOCKSTEP_HDF5_TYPES(LOCKSTEP_TAKE)
#undef LOCKSTEP_TAKE
    if (result.problem.empty() && result.functions.H5open() < 0) result.problem = "H5open failed";
    return result;
  }();
  require(loaded.problem.empty(), ErrorCode::unsupported, where,
          "HDF5 files need libhdf5 1.10 or 1.14 (apt install libhdf5-103-1 on Debian 12, libhdf5-310 on "
          "Debian 13), which cannot be loaded: ",
          loaded.problem);
  return loaded.functions;
}

// The library to one thread, silent: it would print its errors, and a program that uses it as well may want
// that.
class Use {
 public:
  explicit Use(std::source_location where) : h5_(library(where)), lock_(mutex()) {
    h5_.H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
    h5_.H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    h5_.H5Eclear2(H5E_DEFAULT);
    h5_.H5Eset_auto2(H5E_DEFAULT, print_, print_data_);
  }
  const Library* operator->() const { return &h5_; }

  // Why the last call failed, from where it was noticed.
  std::string reason() const {
    std::string text;
    h5_.H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned, const H5E_error2_t* error, void* into) -> herr_t {
          auto& words = *static_cast<std::string*>(into);
          if (words.empty() && error->desc) words = error->desc;
          return 0;
        },
        &text);
    return text.empty() ? "libhdf5 gives no reason" : text;
  }

 private:
  // Never destroyed: a writer that outlives main() may still close its file.
  static std::mutex& mutex() {
    static auto& instance = *new std::mutex;
    return instance;
  }

  const Library& h5_;
  std::lock_guard<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// An id of the library's; negative: the call that should have given it failed.
class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

 private:
  hid_t id_;
  Close close_;
};

// Settings for a file in memory alone.
Id in_memory(const Use& h5) {
  Id access(h5->H5Pcreate(*h5->H5P_CLS_FILE_ACCESS_ID_g), h5->H5Pclose);
  h5->H5Pset_fapl_core(access.get(), size_t{1} << 20, false);
  return access;
}
// libhdf5 takes files in memory of one name for the same.
std::string name_in_memory() {
  static std::atomic<uint64_t> number{0};
  return "lockstep-" + std::to_string(number++);
}

// How the elements of an array are read: the type that libhdf5 converts to, and what that is here.
struct Elements {
  Id memory;
  DType dtype;
};

// H5F_ACC_RDONLY and H5F_ACC_TRUNC, which are macros that call the library.
constexpr unsigned kReadOnly = 0, kReplace = 2;

constexpr const char* kDTypeAttribute = "dtype";

// An array that says it is larger than this, and is much larger than what is stored of it, is a trap.
constexpr uint64_t kUnsuspicious = uint64_t{64} << 20;
constexpr uint64_t kMaxExpansion = 1000;

}  // namespace

// --- reading -----------------------------------------------------------------------------------------------

// One thing of a file, for as long as it is looked at. The calls are made under one Use.
class Hdf5Reader::Object {
 public:
  Object(const Hdf5Reader& reader, const Use& h5, const std::string& path)
      : reader_(reader), h5_(h5), path_(path), id_(open()) {}

  bool exists() const { return static_cast<bool>(id_); }
  bool is_group() const { return exists() && h5_->H5Iget_type(id_.get()) == H5I_GROUP; }
  bool is_array() const { return exists() && h5_->H5Iget_type(id_.get()) == H5I_DATASET; }
  hid_t id() const { return id_.get(); }

  std::vector<std::string> names() const {
    H5G_info_t info{};
    check(h5_->H5Gget_info(id_.get(), &info) >= 0, "its members cannot be listed: ", h5_.reason());
    std::vector<std::string> all;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      const auto name = [&](char* into, size_t room) {
        const ssize_t length =
            h5_->H5Lget_name_by_idx(id_.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, into, room, H5P_DEFAULT);
        check(length >= 0, "its members cannot be listed: ", h5_.reason());
        return static_cast<size_t>(length);
      };
      std::string text(name(nullptr, 0), '\0');
      name(text.data(), text.size() + 1);
      all.push_back(std::move(text));
    }
    return all;
  }

  TensorSpec spec() const { return {elements().dtype, shape()}; }

  Tensor read() const {
    const Elements elements = this->elements();
    const TensorSpec spec{elements.dtype, shape()};
    std::string bytes(spec.bytes(), '\0');
    check(h5_->H5Dread(id_.get(), elements.memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0,
          "its elements cannot be read: ", h5_.reason());
    if (spec.dtype == DType::boolean)
      check(std::all_of(bytes.begin(), bytes.end(), [](char flag) { return flag == 0 || flag == 1; }),
            "its elements should be true or false, but there are others");
    return tensor_of(spec, bytes);
  }

  std::optional<std::vector<std::string>> texts(const std::string& name) const {
    const htri_t there = h5_->H5Aexists(id_.get(), name.c_str());
    check(there >= 0, "attribute \"", name, "\" cannot be looked for: ", h5_.reason());
    if (there == 0) return {};
    const Id attribute(h5_->H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT), h5_->H5Aclose);
    check(bool(attribute), "attribute \"", name, "\" cannot be opened: ", h5_.reason());
    const Id type(h5_->H5Aget_type(attribute.get()), h5_->H5Tclose);
    const Id space(h5_->H5Aget_space(attribute.get()), h5_->H5Sclose);
    check(type && space, "attribute \"", name, "\" cannot be read: ", h5_.reason());
    const auto count = static_cast<size_t>(extent(space.get()).size());
    std::vector<std::string> values;
    // NumPy has no type of texts for none of them.
    if (count == 0) return values;
    check(h5_->H5Tget_class(type.get()) == H5T_STRING, "attribute \"", name, "\" is no text");
    const size_t width = h5_->H5Tget_size(type.get());
    if (h5_->H5Tis_variable_str(type.get()) > 0) {
      check(count < kUnsuspicious, "attribute \"", name, "\" has ", count, " texts");
      std::vector<char*> pointers(count, nullptr);
      check(h5_->H5Aread(attribute.get(), type.get(), pointers.data()) >= 0, "attribute \"", name,
            "\" cannot be read: ", h5_.reason());
      for (const char* text : pointers) values.emplace_back(text ? text : "");
      h5_->H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, pointers.data());
      return values;
    }
    check(width > 0 && count <= kUnsuspicious / width, "attribute \"", name, "\" has ", count, " texts of ",
          width, " bytes");
    std::vector<char> bytes(count * width);
    check(h5_->H5Aread(attribute.get(), type.get(), bytes.data()) >= 0, "attribute \"", name,
          "\" cannot be read: ", h5_.reason());
    for (size_t i = 0; i < count; ++i) {
      const char* begin = bytes.data() + i * width;
      values.emplace_back(begin, std::find(begin, begin + width, '\0'));
    }
    return values;
  }

  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require(holds, ErrorCode::io, reader_.where_, "HDF5 file \"", reader_.name_, "\": \"/", path_,
            "\": ", parts...);
  }

 private:
  // Part by part, so that no link leads elsewhere.
  Id open() const {
    const auto open_in = [&](hid_t parent, const std::string& name) {
      return Id(h5_->H5Oopen(parent, name.c_str(), H5P_DEFAULT), h5_->H5Oclose);
    };
    Id here = open_in(reader_.file_, "/");
    check(bool(here), "cannot be opened: ", h5_.reason());
    for (size_t begin = 0; begin < path_.size();) {
      const size_t end = std::min(path_.find('/', begin), path_.size());
      const std::string name = path_.substr(begin, end - begin);
      begin = end + 1;
      if (h5_->H5Iget_type(here.get()) != H5I_GROUP) return Id(-1, h5_->H5Oclose);
      const htri_t there = h5_->H5Lexists(here.get(), name.c_str(), H5P_DEFAULT);
      check(there >= 0, "cannot be looked for: ", h5_.reason());
      if (there == 0) return Id(-1, h5_->H5Oclose);
      H5L_info_t link{};
      check(h5_->H5Lget_info(here.get(), name.c_str(), &link, H5P_DEFAULT) >= 0,
            "cannot be looked at: ", h5_.reason());
      check(link.type == H5L_TYPE_HARD, "\"", name,
            "\" is a link to another place, and such links are not followed");
      Id next = open_in(here.get(), name);
      check(bool(next), "cannot be opened: ", h5_.reason());
      here = std::move(next);
    }
    return here;
  }

  Shape extent(hid_t space) const {
    const int rank = h5_->H5Sget_simple_extent_ndims(space);
    check(rank >= 0, "its shape cannot be read: ", h5_.reason());
    check(rank <= kMaxRank, "has ", rank, " dimensions; at most ", kMaxRank, " are supported");
    std::array<hsize_t, H5S_MAX_RANK> sizes{};
    check(h5_->H5Sget_simple_extent_dims(space, sizes.data(), nullptr) >= 0,
          "its shape cannot be read: ", h5_.reason());
    Shape shape;
    int64_t count = 1;
    for (int d = 0; d < rank; ++d) {
      const auto size = static_cast<int64_t>(sizes[static_cast<size_t>(d)]);
      check(size >= 0 && !__builtin_mul_overflow(count, size, &count) && count < (int64_t{1} << 58),
            "has more elements than can be counted");
      shape.push_back(size);
    }
    return shape;
  }

  Shape shape() const {
    check(is_array(), "is no array");
    const Id made(h5_->H5Dget_create_plist(id_.get()), h5_->H5Pclose);
    const Id space(h5_->H5Dget_space(id_.get()), h5_->H5Sclose);
    const Id type(h5_->H5Dget_type(id_.get()), h5_->H5Tclose);
    check(made && space && type, "cannot be looked at: ", h5_.reason());
    check(h5_->H5Pget_external_count(made.get()) == 0 && h5_->H5Pget_layout(made.get()) != H5D_VIRTUAL,
          "its elements are in another file, and such files are not opened");
    const Shape shape = extent(space.get());
    const uint64_t bytes = static_cast<uint64_t>(shape.size()) * h5_->H5Tget_size(type.get());
    const uint64_t stored = h5_->H5Dget_storage_size(id_.get());
    check(bytes <= kUnsuspicious || bytes / kMaxExpansion <= stored, "has ", bytes,
          " bytes of elements, but ", stored, " in the file");
    return shape;
  }

  Elements elements() const {
    check(is_array(), "is no array");
    const Id type(h5_->H5Dget_type(id_.get()), h5_->H5Tclose);
    check(bool(type), "the type of its elements cannot be read: ", h5_.reason());
    const size_t size = h5_->H5Tget_size(type.get());
    const auto copy = [&](hid_t of) {
      Id id(h5_->H5Tcopy(of), h5_->H5Tclose);
      check(bool(id), "the type of its elements cannot be read: ", h5_.reason());
      return id;
    };
    switch (h5_->H5Tget_class(type.get())) {
      case H5T_FLOAT: {
        if (size == 4) return {copy(*h5_->H5T_NATIVE_FLOAT_g), DType::float32};
        if (size == 8) return {copy(*h5_->H5T_NATIVE_DOUBLE_g), DType::float64};
        size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
        h5_->H5Tget_fields(type.get(), &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits);
        const bool half = exponent_bits == 5 && mantissa_bits == 10,
                   brain = exponent_bits == 8 && mantissa_bits == 7;
        if (size != 2 || (!half && !brain)) break;
        Id memory = copy(type.get());
        h5_->H5Tset_order(memory.get(), H5T_ORDER_LE);
        return {std::move(memory), half ? DType::float16 : DType::bfloat16};
      }
      case H5T_INTEGER: {
        const bool has_sign = h5_->H5Tget_sign(type.get()) == H5T_SGN_2;
        if (size == 1 && !has_sign) return {copy(*h5_->H5T_NATIVE_UINT8_g), DType::uint8};
        if (size < 4 || (size == 4 && has_sign)) return {copy(*h5_->H5T_NATIVE_INT32_g), DType::int32};
        if (size <= 8) return {copy(*h5_->H5T_NATIVE_INT64_g), DType::int64};
        break;
      }
      case H5T_ENUM:
        if (size == 1 && h5_->H5Tget_nmembers(type.get()) == 2) return {copy(type.get()), DType::boolean};
        break;
      case H5T_OPAQUE:
        if (const auto name = texts(kDTypeAttribute);
            size == 2 && name && *name == std::vector<std::string>{"bfloat16"})
          return {copy(type.get()), DType::bfloat16};
        break;
      default: break;
    }
    fail(ErrorCode::unsupported, reader_.where_, "HDF5 file \"", reader_.name_, "\": \"/", path_,
         "\" has elements of ", size, " bytes that are no numbers of a kind that can be read");
  }

  const Hdf5Reader& reader_;
  const Use& h5_;
  std::string path_;
  Id id_;
};

Hdf5Reader::Hdf5Reader(const std::string& path, std::source_location where)
    : file_(-1), name_(path), where_(where) {
  const InputFile readable(path, where);  // libhdf5 does not say that there is none
  open_tried([](Hdf5Reader& file) { file.open_file(); });
}

Hdf5Reader::Hdf5Reader(const std::string& bytes, std::string name, std::source_location where)
    : file_(-1), name_(std::move(name)), where_(where) {
  open_tried([&](Hdf5Reader& file) { file.open_image(bytes); });
}

void Hdf5Reader::open_file() {
  const Use h5(where_);
  file_ = h5->H5Fopen(name_.c_str(), kReadOnly, H5P_DEFAULT);
  require(file_ >= 0, ErrorCode::io, where_, "\"", name_, "\" is no HDF5 file, or damaged: ", h5.reason());
}

void Hdf5Reader::open_image(const std::string& bytes) {
  const Use h5(where_);
  const Id access = in_memory(h5);
  // It is not written to.
  if (h5->H5Pset_file_image(access.get(), const_cast<char*>(bytes.data()), bytes.size()) >= 0)
    file_ = h5->H5Fopen(name_in_memory().c_str(), kReadOnly, access.get());
  require(file_ >= 0, ErrorCode::io, where_, "\"", name_, "\" is no HDF5 file, or damaged: ", h5.reason());
}

void Hdf5Reader::open_tried(const std::function<void(Hdf5Reader&)>& open) {
  // Loaded before there is a child: it would be loaded there anew, with other threads' locks as they were.
  library(where_);
  // Where another thread has libhdf5, the child waits for ever, and is no judge.
  constexpr double kSeconds = 10;
  const ChildResult tried = run_in_child(
      [&](const std::function<void(std::string_view)>&) {
        try {
          open(*this);
          int most = 100000;
          look_through("", 32, most);
        } catch (const Error&) {
          // It will be met again, and told, here.
        }
      },
      kSeconds);
  require(tried.finished || !tried.ended, ErrorCode::io, where_, "\"", name_,
          "\" is damaged: libhdf5, which reads it, crashes (a child of this process ", tried.mishap, ")");
  open(*this);
}

// What is asked of libhdf5 for weights, but for the numbers themselves.
void Hdf5Reader::look_through(const std::string& group, int deepest, int& most) const {
  texts(group, "weight_names");
  texts(group, "layer_names");
  for (const std::string& name : names(group)) {
    const std::string path = group.empty() ? name : group + "/" + name;
    try {
      if (--most < 0) return;
      if (has_array(path))
        spec(path);
      else if (deepest > 0)
        look_through(path, deepest - 1, most);
    } catch (const Error&) {
      // Others may be whole.
    }
  }
}

Hdf5Reader::~Hdf5Reader() {
  const Use h5(where_);
  h5->H5Fclose(file_);
}

bool Hdf5Reader::has_group(const std::string& path) const {
  const Use h5(where_);
  return Object(*this, h5, path).is_group();
}
bool Hdf5Reader::has_array(const std::string& path) const {
  const Use h5(where_);
  return Object(*this, h5, path).is_array();
}
std::vector<std::string> Hdf5Reader::names(const std::string& group) const {
  const Use h5(where_);
  const Object object(*this, h5, group);
  return object.is_group() ? object.names() : std::vector<std::string>();
}
TensorSpec Hdf5Reader::spec(const std::string& array) const {
  const Use h5(where_);
  return Object(*this, h5, array).spec();
}
Tensor Hdf5Reader::read(const std::string& array) const {
  const Use h5(where_);
  return Object(*this, h5, array).read();
}

std::optional<std::vector<std::string>> Hdf5Reader::texts(const std::string& path,
                                                          const std::string& attribute) const {
  const Use h5(where_);
  const Object object(*this, h5, path);
  return object.exists() ? object.texts(attribute) : std::nullopt;
}
std::optional<std::string> Hdf5Reader::text(const std::string& path, const std::string& attribute) const {
  const Use h5(where_);
  const Object object(*this, h5, path);
  if (!object.exists()) return {};
  const auto all = object.texts(attribute);
  if (!all) return {};
  object.check(all->size() == 1, "attribute \"", attribute, "\" has ", all->size(), " texts, expected one");
  return all->front();
}

// --- writing -----------------------------------------------------------------------------------------------

namespace {

template <class... Parts>
void check_written(const Use& h5, bool holds, std::source_location where, const Parts&... what) {
  require(holds, ErrorCode::io, where, "cannot write an HDF5 file: ", what..., ": ", h5.reason());
}

// The type of the elements in the file, as h5py would write them; bool and bfloat16 have none of their own.
Id written_type(const Use& h5, DType dtype) {
  const auto copy = [&](hid_t of) { return Id(h5->H5Tcopy(of), h5->H5Tclose); };
  switch (dtype) {
    case DType::float32: return copy(*h5->H5T_IEEE_F32LE_g);
    case DType::float64: return copy(*h5->H5T_IEEE_F64LE_g);
    case DType::int32: return copy(*h5->H5T_NATIVE_INT32_g);
    case DType::int64: return copy(*h5->H5T_NATIVE_INT64_g);
    case DType::uint8: return copy(*h5->H5T_NATIVE_UINT8_g);
    case DType::float16: {
      Id half = copy(*h5->H5T_IEEE_F32LE_g);
      // Bits before the size: the fields must fit at every moment.
      h5->H5Tset_fields(half.get(), 15, 10, 5, 0, 10);
      h5->H5Tset_precision(half.get(), 16);
      h5->H5Tset_size(half.get(), 2);
      h5->H5Tset_ebias(half.get(), 15);
      return half;
    }
    case DType::bfloat16: {
      Id opaque(h5->H5Tcreate(H5T_OPAQUE, 2), h5->H5Tclose);
      h5->H5Tset_tag(opaque.get(), "");
      return opaque;
    }
    case DType::boolean: break;
  }
  // An enumeration of int8, with these names.
  const Id base = copy(*h5->H5T_NATIVE_INT8_g);
  Id flags(h5->H5Tcreate(H5T_ENUM, h5->H5Tget_size(base.get())), h5->H5Tclose);
  const int8_t no = 0, yes = 1;
  h5->H5Tenum_insert(flags.get(), "FALSE", &no);
  h5->H5Tenum_insert(flags.get(), "TRUE", &yes);
  return flags;
}

void write_text(const Use& h5, hid_t object, const std::string& name, const std::string& text,
                std::source_location where) {
  const Id type(h5->H5Tcopy(*h5->H5T_C_S1_g), h5->H5Tclose);
  h5->H5Tset_size(type.get(), H5T_VARIABLE);
  h5->H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Id space(h5->H5Screate(H5S_SCALAR), h5->H5Sclose);
  const Id attribute(h5->H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                     h5->H5Aclose);
  check_written(h5, bool(attribute), where, "attribute \"", name, "\"");
  const char* characters = text.c_str();
  check_written(h5, h5->H5Awrite(attribute.get(), type.get(), &characters) >= 0, where, "attribute \"", name,
                "\"");
}

// All of one width, as NumPy has them.
void write_texts(const Use& h5, hid_t object, const std::string& name, std::span<const std::string> texts,
                 size_t width, std::source_location where) {
  const Id type(h5->H5Tcopy(*h5->H5T_C_S1_g), h5->H5Tclose);
  h5->H5Tset_size(type.get(), width);
  const hsize_t count = texts.size();
  const Id space(h5->H5Screate_simple(1, &count, nullptr), h5->H5Sclose);
  const Id attribute(h5->H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                     h5->H5Aclose);
  check_written(h5, bool(attribute), where, "attribute \"", name, "\"");
  std::string bytes(width * texts.size(), '\0');
  for (size_t i = 0; i < texts.size(); ++i) bytes.replace(i * width, texts[i].size(), texts[i]);
  check_written(h5, h5->H5Awrite(attribute.get(), type.get(), bytes.data()) >= 0, where, "attribute \"", name,
                "\"");
}

// What fits into the header of an object, as Keras counts.
constexpr size_t kMostInAttribute = 64512;

}  // namespace

Hdf5Writer::Hdf5Writer(std::source_location where) : file_(-1), where_(where) {
  const Use h5(where);
  file_ = h5->H5Fcreate(name_in_memory().c_str(), kReplace, H5P_DEFAULT, in_memory(h5).get());
  check_written(h5, file_ >= 0, where, "its beginning");
}

Hdf5Writer::~Hdf5Writer() {
  if (file_ < 0) return;
  const Use h5(where_);
  for (const auto& [path, id] : groups_) h5->H5Gclose(id);
  h5->H5Fclose(file_);
}

std::string Hdf5Writer::finish() {
  const Use h5(where_);
  for (const auto& [path, id] : groups_) h5->H5Gclose(id);
  groups_.clear();
  check_written(h5, h5->H5Fflush(file_, H5F_SCOPE_LOCAL) >= 0, where_, "its end");
  const ssize_t size = h5->H5Fget_file_image(file_, nullptr, 0);
  check_written(h5, size > 0, where_, "its end");
  std::string bytes(static_cast<size_t>(size), '\0');
  check_written(h5, h5->H5Fget_file_image(file_, bytes.data(), bytes.size()) == size, where_, "its end");
  h5->H5Fclose(std::exchange(file_, -1));
  return bytes;
}

int64_t Hdf5Writer::group(const std::string& path) {
  if (path.empty()) return file_;
  if (const auto found = groups_.find(path); found != groups_.end()) return found->second;
  const size_t slash = path.rfind('/');
  const int64_t parent = group(slash == std::string::npos ? "" : path.substr(0, slash));
  const Use h5(where_);
  const hid_t id =
      h5->H5Gcreate2(parent, path.substr(slash + 1).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  check_written(h5, id >= 0, where_, "group \"", path, "\"");
  groups_.emplace(path, id);
  return id;
}

void Hdf5Writer::make_group(const std::string& path) { group(path); }

void Hdf5Writer::set_text(const std::string& path, const std::string& attribute, const std::string& text) {
  const int64_t id = group(path);
  const Use h5(where_);
  write_text(h5, id, attribute, text, where_);
}

void Hdf5Writer::set_texts(const std::string& path, const std::string& attribute,
                           const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  const int64_t id = group(path);
  size_t width = 1;
  for (const std::string& text : texts) width = std::max(width, text.size());
  const size_t parts = (texts.size() * width + kMostInAttribute - 1) / kMostInAttribute;
  const size_t in_part = (texts.size() + parts - 1) / parts;
  const Use h5(where_);
  for (size_t begin = 0; begin < texts.size(); begin += in_part)
    write_texts(h5, id, parts == 1 ? attribute : attribute + std::to_string(begin / in_part),
                std::span(texts).subspan(begin, std::min(in_part, texts.size() - begin)), width, where_);
}

void Hdf5Writer::add(const std::string& path, const std::string& name, const Tensor& value) {
  const int64_t id = group(path);
  const std::string bytes = bytes_of(value);
  const Use h5(where_);
  const Id type = written_type(h5, value.dtype());
  const std::vector<hsize_t> sizes(value.shape().begin(), value.shape().end());
  const Id space(
      sizes.empty() ? h5->H5Screate(H5S_SCALAR) : h5->H5Screate_simple(value.rank(), sizes.data(), nullptr),
      h5->H5Sclose);
  // Without the time: the same weights are the same file.
  const Id timeless(h5->H5Pcreate(*h5->H5P_CLS_DATASET_CREATE_ID_g), h5->H5Pclose);
  h5->H5Pset_obj_track_times(timeless.get(), false);
  const Id array(
      h5->H5Dcreate2(id, name.c_str(), type.get(), space.get(), H5P_DEFAULT, timeless.get(), H5P_DEFAULT),
      h5->H5Dclose);
  check_written(h5, bool(array), where_, "array \"", path, "/", name, "\"");
  check_written(h5, h5->H5Dwrite(array.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0,
                where_, "array \"", path, "/", name, "\"");
  if (value.dtype() == DType::bfloat16) write_text(h5, array.get(), kDTypeAttribute, "bfloat16", where_);
}

}  // namespace lockstep::train
