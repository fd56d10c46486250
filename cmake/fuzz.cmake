# Fuzzers: every x_fuzz.cc beside its source is one libFuzzer program x_fuzz; the target `fuzzers` builds all.

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang (libFuzzer); the compiler is ${CMAKE_CXX_COMPILER}. "
                      "Use the preset: cmake --preset fuzz")
endif()

# Left out are checks of every pointer that is followed: what they would find ends a fuzzer all the same, or is found by the
# whole of the tests under the preset asan, and they are a quarter of the time that the library takes to compile.
set(fuzz_flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
    -fno-sanitize=null,alignment,vptr,object-size,nonnull-attribute,returns-nonnull-attribute,pointer-overflow,function)
target_compile_options(lockstep PRIVATE ${fuzz_flags} -fsanitize=fuzzer-no-link)
target_link_options(lockstep PRIVATE -fsanitize=address,undefined)

# The tool's fuzzers are programs of the tool without its main().
file(GLOB_RECURSE cli_fuzz_sources CONFIGURE_DEPENDS src/cli/*_fuzz.cc)
set(fuzzed_cli_sources ${cli_sources})
list(FILTER fuzzed_cli_sources EXCLUDE REGEX "/main\\.cc$")

add_custom_target(fuzzers)
foreach(source ${fuzz_sources} ${cli_fuzz_sources})
  cmake_path(GET source STEM fuzzer)
  add_executable(${fuzzer} EXCLUDE_FROM_ALL ${source})
  lockstep_compiler_options(${fuzzer})
  target_compile_options(${fuzzer} PRIVATE ${fuzz_flags} -fsanitize=fuzzer)
  target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer,address,undefined)
  target_include_directories(${fuzzer} PRIVATE src)
  target_link_libraries(${fuzzer} PRIVATE lockstep lockstep_parts)
  if(source IN_LIST cli_fuzz_sources)
    target_sources(${fuzzer} PRIVATE ${fuzzed_cli_sources})
    lockstep_cli_options(${fuzzer})
  endif()
  set_target_properties(${fuzzer} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${fuzzer})
endforeach()
