# The benchmark program: bench/*.cc, with the floors of bench/floors to measure against. `./run bench` builds it.
# The floors' own tests (bench/floors/*_test.cc) are part of the daily tests.

file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.cc)
file(GLOB floor_sources CONFIGURE_DEPENDS bench/floors/*.cc)
file(GLOB torch_sources CONFIGURE_DEPENDS bench/peers/*.cc)
set(floor_tests ${floor_sources})
list(FILTER floor_tests INCLUDE REGEX "_test\\.cc$")
list(FILTER floor_sources EXCLUDE REGEX "_test\\.cc$")

if(floor_sources)
  add_library(lockstep_floors STATIC EXCLUDE_FROM_ALL ${floor_sources})
  lockstep_compiler_options(lockstep_floors)
  # A floor is the best that this machine can do, so it is compiled for this machine.
  target_compile_options(lockstep_floors PRIVATE -O3 -march=native)
  target_include_directories(lockstep_floors PUBLIC ${PROJECT_SOURCE_DIR} src)
  target_link_libraries(lockstep_floors PUBLIC lockstep lockstep_parts)
endif()

if(floor_tests AND LOCKSTEP_TESTS)
  lockstep_add_tests(bench ${floor_tests})
  target_link_libraries(bench_tests PRIVATE lockstep_floors)
endif()

if(bench_sources)
  add_executable(lockstep_bench EXCLUDE_FROM_ALL ${bench_sources})
  lockstep_compiler_options(lockstep_bench)
  target_compile_definitions(lockstep_bench PRIVATE LOCKSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(lockstep_bench PRIVATE lockstep_floors)
  if(TARGET lockstep_models)
    target_link_libraries(lockstep_bench PRIVATE lockstep_models)
  endif()
  # LibTorch is a peer to compare with, where it is installed.
  if(torch_sources)
    find_package(Torch QUIET)
    if(Torch_FOUND)
      target_sources(lockstep_bench PRIVATE ${torch_sources})
      target_compile_definitions(lockstep_bench PRIVATE LOCKSTEP_BENCH_TORCH)
      target_link_libraries(lockstep_bench PRIVATE ${TORCH_LIBRARIES})
    endif()
  endif()
endif()
