// Any bytes as an image: decoded, or refused by an Error; what was decoded survives being encoded as PNG.
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/data/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ls = lockstep;
  if (size == 0) return 0;
  static constexpr int kChannels[] = {0, 1, 3, 4};
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  ls::Tensor image;
  try {
    image = ls::data::decode_image(bytes, kChannels[data[0] % 4]);
  } catch (const ls::Error& error) {
    if (error.message().empty()) std::abort();
    return 0;
  }
  if (image.size() > 1 << 20) return 0;
  const ls::Tensor again = ls::data::decode_image(ls::data::encode_png(image));
  if (again.to_vector<uint8_t>() != image.to_vector<uint8_t>()) std::abort();
  return 0;
}
