#include "base/sha256.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace lockstep {
namespace {

std::string digest(std::string_view bytes) { return Sha256().update(bytes).finish(); }

// The examples of FIPS 180-4 and of NIST's validation suite.
TEST(Sha256, PublishedValues) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

std::string hex(const std::string& bytes) {
  std::string digits;
  for (const char byte : bytes)
    for (const int shift : {4, 0})
      digits.push_back("0123456789abcdef"[static_cast<uint8_t>(byte) >> shift & 15]);
  return digits;
}

// Test cases 1, 2 and 6 of RFC 4231.
TEST(Sha256, PublishedValuesOfHmac) {
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, PiecesAreOneWhole) {
  const std::string text(300, 'x');
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut)).update(std::string_view(text).substr(cut));
    ASSERT_EQ(hash.finish(), digest(text)) << cut;
  }
}

TEST(Sha256, OfAFile) {
  const std::string path = testing::TempDir() + "lockstep_sha256_file";
  std::ofstream(path) << "abc";
  EXPECT_EQ(sha256_of_file(path), digest("abc"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace lockstep
