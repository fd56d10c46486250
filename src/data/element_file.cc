#include "data/element_file.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "graph/eager.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "tensor/tensor_impl.h"

namespace lockstep::data {
namespace {

// Header:  magic, tag (uint64), 1 where records are compressed (uint64).
// Record:  length (uint64), CRC-32C of the bytes (uint64), the bytes. Compressed bytes begin with their length
//          before.
// End:     kEnd as a length, then the number of records.
// Element: length of its structure's text (uint64), the text; a tensor: dtype, rank, sizes (uint64 each),
// elements. Numbers have the byte order of the machine, which the magic number tells.
constexpr uint64_t kMagic = 0x31'4d45'4c45'534c;
constexpr uint64_t kEnd = ~uint64_t{0};
constexpr size_t kNumber = sizeof(uint64_t);
constexpr size_t kBuffer = size_t{1} << 20;
constexpr uint64_t kMostElements = uint64_t{1} << 48;

void put(std::string& out, uint64_t number) { out.append(reinterpret_cast<const char*>(&number), kNumber); }

uint64_t number_at(std::string_view bytes, size_t at) {
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, kNumber);
  return number;
}

void encode(const Element& element, std::string& out) {
  const std::string structure = element.structure().to_string();
  put(out, structure.size());
  out += structure;
  for (const Tensor& given : element.flat()) {
    const Tensor host = given.device().kind() == DeviceKind::cpu ? given : given.to(device_by_name("/CPU:0"));
    const Tensor tensor = contiguous(host, std::source_location::current());
    put(out, static_cast<uint64_t>(tensor.dtype()));
    put(out, static_cast<uint64_t>(tensor.rank()));
    for (const int64_t size : tensor.shape()) put(out, static_cast<uint64_t>(size));
    out.append(static_cast<const char*>(tensor.impl()->data()), tensor.spec().bytes());
  }
}

// Takes parts off the front; false where there is too little.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}
  bool element(Element& element, std::source_location where) {
    uint64_t length = 0;
    std::string_view text;
    if (!number(length) || !take(length, text)) return false;
    auto structure = std::make_shared<const Structure>(Structure::parse(text, where));
    TensorList tensors;
    for (size_t leaf = 0; leaf < structure->leaves(); ++leaf)
      if (!tensor(tensors.emplace_back())) return false;
    if (!bytes_.empty()) return false;
    if (structure->kind() == Structure::Kind::leaf) structure = nullptr;
    element = Element(std::move(structure), std::move(tensors));
    return true;
  }

 private:
  bool take(uint64_t count, std::string_view& part) {
    if (count > bytes_.size()) return false;
    part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return true;
  }
  bool number(uint64_t& value) {
    std::string_view part;
    if (!take(kNumber, part)) return false;
    value = number_at(part, 0);
    return true;
  }
  bool tensor(Tensor& tensor) {
    uint64_t dtype = 0, rank = 0;
    if (!number(dtype) || !number(rank) || dtype >= kNumDTypes || rank > kMaxRank) return false;
    TensorSpec spec{static_cast<DType>(dtype), {}};
    uint64_t elements = 1;
    for (uint64_t i = 0; i < rank; ++i) {
      uint64_t size = 0;
      if (!number(size)) return false;
      // No product of sizes may wrap around.
      if (size > kMostElements || (size > 0 && elements > kMostElements / size)) return false;
      elements *= size;
      spec.shape.push_back(static_cast<int64_t>(size));
    }
    std::string_view bytes;
    if (!take(spec.bytes(), bytes)) return false;
    tensor = Tensor::empty(spec.dtype, spec.shape);
    if (!bytes.empty()) std::memcpy(tensor.impl()->data(), bytes.data(), bytes.size());
    return true;
  }

  std::string_view bytes_;
};

std::string deflated(std::string_view bytes) {
  uLongf length = compressBound(bytes.size());
  std::string out;
  put(out, bytes.size());
  out.resize(kNumber + length);
  compress2(reinterpret_cast<Bytef*>(out.data() + kNumber), &length,
            reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_BEST_SPEED);
  out.resize(kNumber + length);
  return out;
}

}  // namespace

ElementWriter::ElementWriter(const std::string& path, uint64_t tag, bool compressed,
                             std::source_location where)
    : file_(path, where), compressed_(compressed), where_(where) {
  put(waiting_, kMagic);
  put(waiting_, tag);
  put(waiting_, compressed);
}

void ElementWriter::add(const Element& element) {
  std::string bytes;
  encode(element, bytes);
  if (compressed_) bytes = deflated(bytes);
  put(waiting_, bytes.size());
  put(waiting_, crc32c(bytes));
  waiting_ += bytes;
  ++count_;
  if (waiting_.size() >= kBuffer) flush();
}

void ElementWriter::flush() {
  file_.write(waiting_);
  waiting_.clear();
}

void ElementWriter::commit() {
  put(waiting_, kEnd);
  put(waiting_, count_);
  flush();
  file_.commit();
}

ElementReader::ElementReader(const std::string& path, std::source_location where)
    : file_(path, where), where_(where) {
  const std::string_view header = peek(3 * kNumber);
  require(
      number_at(header, 0) == kMagic, ErrorCode::io, where, "\"", path,
      "\" is not a file of elements written by this version on a machine like this one; delete it to have it "
      "made anew");
  tag_ = number_at(header, kNumber);
  compressed_ = number_at(header, 2 * kNumber) != 0;
  offset_ = 3 * kNumber;
}

void ElementReader::damaged(const char* what) const {
  fail(ErrorCode::io, where_, "\"", file_.path(), "\" is damaged at offset ", offset_, ": ", what,
       "; delete it to have it made anew");
}

std::string_view ElementReader::peek(size_t bytes) {
  if (bytes > file_.size() - offset_) damaged("it ends inside of a record");
  if (offset_ < buffer_offset_ || offset_ + bytes > buffer_offset_ + buffer_.size()) {
    buffer_offset_ = offset_;
    buffer_.resize(std::min<uint64_t>(std::max(bytes, kBuffer), file_.size() - offset_));
    file_.read_at(offset_, buffer_.data(), buffer_.size(), where_);
  }
  return std::string_view(buffer_).substr(offset_ - buffer_offset_, bytes);
}

std::optional<std::string_view> ElementReader::record() {
  const std::string_view head = peek(2 * kNumber);
  const uint64_t length = number_at(head, 0), check = number_at(head, kNumber);
  if (length == kEnd) {
    if (check != count_) damaged("records are missing");
    return {};
  }
  if (length > file_.size() - offset_ - 2 * kNumber) damaged("a length that is beyond its end");
  const std::string_view bytes = peek(2 * kNumber + length).substr(2 * kNumber);
  if (crc32c(bytes) != check) damaged("a checksum that does not match");
  offset_ += 2 * kNumber + length;
  ++count_;
  return bytes;
}

std::optional<Element> ElementReader::next() {
  const uint64_t start = offset_;
  std::optional<std::string_view> bytes = record();
  if (!bytes) return {};
  if (compressed_) {
    uLongf length = bytes->size() >= kNumber ? number_at(*bytes, 0) : 0;
    // Deflate makes bytes at most 1032 times fewer.
    if (length > bytes->size() * 1032) damaged("a record that cannot be decompressed");
    inflated_.resize(length);
    if (bytes->size() < kNumber ||
        uncompress(reinterpret_cast<Bytef*>(inflated_.data()), &length,
                   reinterpret_cast<const Bytef*>(bytes->data() + kNumber),
                   bytes->size() - kNumber) != Z_OK ||
        length != inflated_.size())
      damaged("a record that cannot be decompressed");
    bytes = inflated_;
  }
  Element element;
  if (!Decoder(*bytes).element(element, where_)) {
    offset_ = start;
    damaged("a record that is no element");
  }
  return element;
}

bool ElementReader::skip(int64_t count) {
  for (; count > 0; --count)
    if (!record()) return false;
  return true;
}

}  // namespace lockstep::data
