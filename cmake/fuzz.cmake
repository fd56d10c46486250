# Fuzzers: every x_fuzz.cc beside its source is one libFuzzer program x_fuzz; the target `fuzzers` builds all.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER}. "
                      "Use the preset: cmake --preset asan")
endif()

target_compile_options(lockstep PRIVATE -fsanitize=fuzzer-no-link)
target_compile_options(lockstep_cli_parts PRIVATE -fsanitize=fuzzer-no-link)

file(GLOB_RECURSE cli_fuzz_sources CONFIGURE_DEPENDS src/cli/*_fuzz.cc)

add_custom_target(fuzzers)
foreach(source ${fuzz_sources} ${cli_fuzz_sources})
  cmake_path(GET source STEM fuzzer)
  add_executable(${fuzzer} EXCLUDE_FROM_ALL ${source})
  lockstep_compiler_options(${fuzzer})
  target_compile_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
  target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
  target_include_directories(${fuzzer} PRIVATE src)
  target_link_libraries(${fuzzer} PRIVATE lockstep lockstep_parts)
  if(source IN_LIST cli_fuzz_sources)
    lockstep_cli_options(${fuzzer})
    target_link_libraries(${fuzzer} PRIVATE lockstep_cli_parts)
  endif()
  set_target_properties(${fuzzer} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${fuzzer})
endforeach()
