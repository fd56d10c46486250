# How everything of Lockstep is compiled, and where.

if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  message(FATAL_ERROR
          "Lockstep ${PROJECT_VERSION} runs on x86-64 only; this is ${CMAKE_SYSTEM_PROCESSOR}. "
          "Its elementwise code generator and its vector kernels (x_simd.cc) have no other target.")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
  endif()
  find_program(CCACHE ccache)
  mark_as_advanced(CCACHE)
  if(CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    # The first two are what ccache asks for before it keeps files that use a precompiled header; the others let a header
    # count as unchanged by its contents in a checkout that was just made.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_ctime,include_file_mtime ${CCACHE})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

option(LOCKSTEP_PCH "Precompile the headers of the standard library and of GoogleTest" ON)

# In releases: kernels are compiled -O3 and what runs in every step -O2. What describes a model, reads a file or talks to a
# person runs once: -O1 is two thirds of the work for the compiler.
foreach(language CXX CUDA)
  if("${CMAKE_${language}_FLAGS_RELEASE}" MATCHES "^(-O3 -DNDEBUG)?$")  # nobody has chosen others
    set(CMAKE_${language}_FLAGS_RELEASE "-O2 -DNDEBUG")
  endif()
endforeach()
set(kernel_files "/src/backends/cpu/|/src/ops/.*_cpu\\.cc$")
set(files_that_run_once "/src/((autodiff|cli|distribute|doctor|keras|ops|tf|train)/|device/nvidia_)")

# lockstep_optimize(SOURCES): sets the levels of these files, compiles together what can be, and puts kernels first and files that run once last: of an
# inline function that is compiled at several levels under one name, the linker keeps the first copy it meets.
function(lockstep_optimize variable)
  set(kernels ${${variable}})
  set(others ${${variable}})
  list(FILTER kernels INCLUDE REGEX "${kernel_files}")
  list(FILTER others EXCLUDE REGEX "${kernel_files}")
  set(once ${others})
  list(FILTER once INCLUDE REGEX "${files_that_run_once}")
  list(FILTER others EXCLUDE REGEX "${files_that_run_once}")
  lockstep_unite(kernels)
  lockstep_unite(others)
  lockstep_unite(once)
  set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  set_property(SOURCE ${once} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
  set(${variable} ${kernels} ${others} ${once} PARENT_SCOPE)
endfunction()

if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Libraries that are loaded at run time (NVML, HDF5, libcurl) are called by declarations of our own.
    add_compile_options(-fno-sanitize=function)
    # As g++ does by itself.
    string(REGEX MATCH "address|thread" sanitizer ${LOCKSTEP_SANITIZE})
    string(TOUPPER ${sanitizer} sanitizer)
    add_compile_definitions(__SANITIZE_${sanitizer}__)
  endif()
  if(LOCKSTEP_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)
  endif()
endif()

# The headers that are precompiled. They are none of this tree's: no change here makes them new, and with them everything.
set(precompiled_headers <algorithm> <array> <atomic> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional>
    <limits> <map> <memory> <mutex> <numeric> <optional> <set> <source_location> <span> <sstream> <string> <string_view>
    <unordered_map> <utility> <vector>)
set(precompiled_test_headers ${precompiled_headers} <gmock/gmock.h> <gtest/gtest.h>)

# lockstep_precompile(TARGET HEADER...), or (TARGET REUSE_FROM OTHER), where OTHER is compiled by the same options.
function(lockstep_precompile target)
  # Under g++ alone: ccache and clang go other ways about it.
  if(LOCKSTEP_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
    if("REUSE_FROM" IN_LIST ARGN)
      target_precompile_headers(${target} ${ARGN})
    else()
      target_precompile_headers(${target} PRIVATE ${ARGN})
    endif()
  endif()
endfunction()

function(lockstep_compiler_options target)
  target_compile_definitions(${target} PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
  target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LOCKSTEP_WERROR}>>:-Werror>)
  # g++ 12 sees overlapping copies in its own std::string operator+.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
endfunction()
