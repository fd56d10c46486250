#include "base/as_error.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep {

void rethrow_as_error(std::string_view what, std::source_location where) {
  constexpr const char* kNoMemory = ": there is not enough memory for this";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, where, what, kNoMemory);
  } catch (const std::length_error&) {
    // A container was asked to be larger than memory can be.
    fail(ErrorCode::out_of_memory, where, what, kNoMemory);
  } catch (const std::filesystem::filesystem_error& error) {
    fail(ErrorCode::io, where, what, ": \"", error.path1().string(), "\": ", error.code().message());
  } catch (const std::system_error& error) {
    fail(ErrorCode::out_of_memory, where, what, ": the system refuses: ", error.code().message());
  }
}

}  // namespace lockstep
