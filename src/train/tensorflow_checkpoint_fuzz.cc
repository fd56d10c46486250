// Any bytes as the index of a TensorFlow checkpoint: refused by an Error, or read. What has a wrong checksum
// is never parsed, so the bytes are tried a second time as the one block of an index whose checksums are
// right.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/protobuf.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/train/tensorflow_checkpoint.h"

namespace {

const std::string& prefix() {
  static const std::string path = "/tmp/tensorflow_checkpoint_fuzz_" + std::to_string(getpid());
  return path;
}

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> 8 * i));
  return text;
}

std::string with_trailer(std::string block) {
  block.push_back('\0');
  return block + little_endian(lockstep::masked_crc32c(lockstep::crc32c(block)), 4);
}

std::string index_of(const std::string& block) {
  using lockstep::protobuf::append_varint;
  std::string handle, list, file = with_trailer(block), footer;
  append_varint(handle, 0);
  append_varint(handle, block.size());
  append_varint(list, 0);
  append_varint(list, 1);
  append_varint(list, handle.size());
  list += "z" + handle + little_endian(0, 4) + little_endian(1, 4);
  for (const uint64_t number : {uint64_t{0}, uint64_t{0}, uint64_t{file.size()}, uint64_t{list.size()}})
    append_varint(footer, number);
  footer.resize(40);
  return file + with_trailer(list) + footer + little_endian(0xdb4775248b80fb57, 8);
}

void try_to_read(const std::string& bytes) {
  std::ofstream(prefix() + ".index", std::ios::binary) << bytes;
  try {
    const lockstep::train::TensorflowCheckpoint checkpoint(prefix());
    for (const auto& entry : checkpoint.entries()) {
      try {
        checkpoint.read(entry.name);
      } catch (const lockstep::Error& error) {
        if (error.message().empty()) std::abort();
      }
    }
  } catch (const lockstep::Error& error) {
    if (error.message().empty()) std::abort();
  }
  unlink((prefix() + ".index").c_str());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_to_read(bytes);
  try_to_read(index_of(bytes));
  return 0;
}
