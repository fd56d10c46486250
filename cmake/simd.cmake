# Vector kernels: every file x_simd.cc is compiled once per x86-64 level, inside the namespace that the macro
# LOCKSTEP_SIMD names (simd_v2, simd_v3, simd_v4); the code beside it picks a level when the program starts.
#
# An inline function that is compiled at several levels under one name (a template of the standard library,
# say) is one function to the linker, which keeps the first copy it meets: level 2 stands first here, so that
# the copy kept runs everywhere. The test rules.simd_symbols checks that such a copy exists.

set(LOCKSTEP_SIMD all CACHE STRING "Vector kernels for: all x86-64 processors, or native, this machine's alone (quicker to compile)")
set_property(CACHE LOCKSTEP_SIMD PROPERTY STRINGS all native)

set(simd_levels v2 v3 v4)
if(LOCKSTEP_SIMD STREQUAL "native")
  # The loader names the levels of this machine, the highest first: "  x86-64-v3 (supported, searched)".
  execute_process(COMMAND /lib64/ld-linux-x86-64.so.2 --help OUTPUT_VARIABLE loader_help ERROR_QUIET)
  if(loader_help MATCHES "x86-64-(v[234]) \\(supported")
    set(simd_levels ${CMAKE_MATCH_1})
  endif()
elseif(NOT LOCKSTEP_SIMD STREQUAL "all")
  message(FATAL_ERROR "LOCKSTEP_SIMD is 'all' or 'native', not '${LOCKSTEP_SIMD}'")
endif()

set(simd_flags_v2 -march=x86-64-v2)
set(simd_flags_v3 -march=x86-64-v3)
set(simd_flags_v4 -march=x86-64-v4 -mprefer-vector-width=512)

set(simd_optimization -O3)
if(LOCKSTEP_SANITIZE OR LOCKSTEP_FUZZ)
  # Instrumented, unrolled vector code takes minutes per file to compile: the sanitizers watch the code around it.
  set(simd_optimization -O1 -fno-sanitize=all)
endif()

if(simd_sources)
  foreach(level ${simd_levels})
    add_library(lockstep_simd_${level} OBJECT ${simd_sources})
    lockstep_compiler_options(lockstep_simd_${level})
    target_compile_features(lockstep_simd_${level} PRIVATE cxx_std_20)
    target_compile_definitions(lockstep_simd_${level} PRIVATE LOCKSTEP_SIMD=simd_${level})
    target_compile_options(lockstep_simd_${level} PRIVATE ${simd_optimization} -ffp-contract=off -fno-math-errno
                                                          -fno-trapping-math -fno-semantic-interposition
                                                          ${simd_flags_${level}})
    target_include_directories(lockstep_simd_${level} PRIVATE include src)
    target_link_libraries(lockstep_simd_${level} PRIVATE lockstep_parts)
    lockstep_precompile(lockstep_simd_${level} ${precompiled_headers})
    target_sources(lockstep PRIVATE $<TARGET_OBJECTS:lockstep_simd_${level}>)
  endforeach()
endif()
