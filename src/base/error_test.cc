#include "lockstep/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::StartsWith;

constexpr ErrorCode kCodes[] = {ErrorCode::invalid_argument,
                                ErrorCode::shape_mismatch,
                                ErrorCode::dtype_mismatch,
                                ErrorCode::device_mismatch,
                                ErrorCode::out_of_memory,
                                ErrorCode::not_found,
                                ErrorCode::failed_precondition,
                                ErrorCode::unsupported,
                                ErrorCode::io,
                                ErrorCode::internal};

TEST(Error, SaysCodeMessageAndPlace) {
  const auto where = std::source_location::current();
  const Error error(ErrorCode::shape_mismatch, "matmul: inner dimensions differ", where);
  EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
  EXPECT_EQ(error.message(), "matmul: inner dimensions differ");
  EXPECT_EQ(error.where().line(), where.line());
  EXPECT_THAT(error.notes(), IsEmpty());
  EXPECT_EQ(std::string(error.what()), "shape_mismatch: matmul: inner dimensions differ [error_test.cc:" +
                                           std::to_string(where.line()) + "]");
}

TEST(Error, NotesComeInOrderOnLinesOfTheirOwn) {
  Error error(ErrorCode::io, "lost", std::source_location::current());
  error.note("in layer dense_1").note("while tracing the training step");
  EXPECT_THAT(error.notes(), ElementsAre("in layer dense_1", "while tracing the training step"));
  EXPECT_THAT(std::string(error.what()), StartsWith("io: lost ["));
  EXPECT_THAT(std::string(error.what()),
              EndsWith("]\n  in layer dense_1\n  while tracing the training step"));
}

TEST(Error, NotesAreAddedWhileItUnwinds) {
  try {
    try {
      fail(ErrorCode::not_found, std::source_location::current(), "no file");
    } catch (Error& error) {
      error.note("outer");
      throw;
    }
  } catch (const std::exception& error) {
    EXPECT_THAT(std::string(error.what()), EndsWith("\n  outer"));
  }
}

TEST(Error, FailJoinsTheParts) {
  try {
    fail(ErrorCode::internal, std::source_location::current(), "takes ", 2, " of ", 3.5, ' ',
         std::string("things"));
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "takes 2 of 3.5 things");
  }
}

struct Explosive {};
std::ostream& operator<<(std::ostream& out, const Explosive&) {
  ADD_FAILURE() << "the message was built";
  return out;
}

TEST(Error, RequireBuildsItsMessageOnlyWhereItThrows) {
  require(true, ErrorCode::internal, std::source_location::current(), Explosive{});
  EXPECT_THROW(require(false, ErrorCode::internal, std::source_location::current(), "no"), Error);
}

TEST(Error, CodesHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const ErrorCode code : kCodes) {
    EXPECT_NE(name(code), "unknown");
    EXPECT_TRUE(names.insert(name(code)).second) << name(code);
  }
}

TEST(Error, IsCopiedWithEverything) {
  Error error(ErrorCode::io, "lost", std::source_location::current());
  error.note("a note");
  const Error copy = error;
  EXPECT_EQ(std::string(copy.what()), error.what());
  EXPECT_EQ(copy.code(), error.code());
}

}  // namespace
}  // namespace lockstep
