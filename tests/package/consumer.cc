// Uses the installed package as a program of a user's does: its headers, its library, and an Error that is
// thrown inside the library and caught here.
#include <lockstep/base/error.h>
#include <lockstep/tensor/shape.h>

#include <iostream>

namespace tf = lockstep;

int main() {
  const tf::Shape sum = tf::broadcast({4, 1}, {3}, "add");
  if (sum != tf::Shape{4, 3}) {
    std::cerr << "(4, 1) and (3,) broadcast to " << sum << " instead of (4, 3)\n";
    return 1;
  }
  try {
    tf::broadcast({4, 2}, {3}, "add");
  } catch (const tf::Error& error) {
    std::cout << error.what() << '\n';
    return error.code() == tf::ErrorCode::shape_mismatch ? 0 : 1;
  }
  std::cerr << "(4, 2) and (3,) broadcast without an error\n";
  return 1;
}
