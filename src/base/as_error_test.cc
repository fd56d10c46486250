#include "base/as_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <vector>

#include "base/error_of_test.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

Error error_from(const std::function<void()>& f) {
  return error_of([&] { as_error("fit", std::source_location::current(), f); });
}

TEST(AsError, MemoryFilesAndThreadsAreErrors) {
  EXPECT_EQ(error_from([] { throw std::bad_alloc(); }).code(), ErrorCode::out_of_memory);
  EXPECT_EQ(error_from([] { std::vector<int>().reserve(SIZE_MAX); }).code(), ErrorCode::out_of_memory);
  const Error refused = error_from([] {
    throw std::filesystem::filesystem_error("x", "some/path",
                                            std::make_error_code(std::errc::filename_too_long));
  });
  EXPECT_EQ(refused.code(), ErrorCode::io);
  EXPECT_THAT(refused.message(), HasSubstr("fit: \"some/path\": File name too long"));
  EXPECT_EQ(error_from([] {
              throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
            }).code(),
            ErrorCode::out_of_memory);
}

TEST(AsError, WhatIsTheUsersOwnStaysWhatItIs) {
  EXPECT_THROW(as_error("fit", std::source_location::current(), [] { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_EQ(as_error("fit", std::source_location::current(), [] { return 3; }), 3);
}

}  // namespace
}  // namespace lockstep
