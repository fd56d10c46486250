# The benchmark program: bench/*.cc, with the floors of bench/floors to measure against. `./run bench` builds it;
# its own tests (bench/**/x_test.cc) are part of the daily tests.

file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.cc)
file(GLOB floor_sources CONFIGURE_DEPENDS bench/floors/*.cc)
set(bench_test_sources ${bench_sources} ${floor_sources})
list(FILTER bench_test_sources INCLUDE REGEX "_test\\.cc$")
list(FILTER bench_sources EXCLUDE REGEX "_test\\.cc$|/main\\.cc$")
list(FILTER floor_sources EXCLUDE REGEX "_test\\.cc$")
if(NOT bench_sources OR NOT TARGET lockstep_models)
  return()
endif()

add_library(lockstep_floors STATIC EXCLUDE_FROM_ALL ${floor_sources})
lockstep_compiler_options(lockstep_floors)
# A floor is the best that this machine can do, so it is compiled for this machine.
target_compile_options(lockstep_floors PRIVATE -O3 -march=native)
target_include_directories(lockstep_floors PUBLIC ${PROJECT_SOURCE_DIR} src)
target_link_libraries(lockstep_floors PUBLIC lockstep lockstep_parts)

add_library(lockstep_bench_parts STATIC EXCLUDE_FROM_ALL ${bench_sources})
lockstep_compiler_options(lockstep_bench_parts)
target_compile_definitions(lockstep_bench_parts PRIVATE LOCKSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(lockstep_bench_parts PUBLIC lockstep_floors lockstep_models PRIVATE JPEG::JPEG)

add_executable(lockstep_bench EXCLUDE_FROM_ALL bench/main.cc)
lockstep_compiler_options(lockstep_bench)
target_link_libraries(lockstep_bench PRIVATE lockstep_bench_parts CLI11::CLI11)

# LibTorch is a peer to compare with, where it is installed: a program of its own.
if(EXISTS ${PROJECT_SOURCE_DIR}/bench/peers/libtorch_peer.cc)
  find_package(Torch QUIET)
  if(Torch_FOUND)
    add_executable(lockstep_bench_libtorch EXCLUDE_FROM_ALL bench/peers/libtorch_peer.cc)
    target_link_libraries(lockstep_bench_libtorch PRIVATE nlohmann_json::nlohmann_json ${TORCH_LIBRARIES})
    target_compile_definitions(lockstep_bench_parts PRIVATE
                               LOCKSTEP_BENCH_LIBTORCH="$<TARGET_FILE:lockstep_bench_libtorch>")
    add_dependencies(lockstep_bench lockstep_bench_libtorch)
  endif()
endif()

# The engines between workers, each called by a program of its own without Lockstep.
set(bare_gloo gloo)
set(bare_mpi MPI::MPI_CXX)
foreach(engine gloo mpi)
  if(TARGET lockstep_${engine})
    add_executable(lockstep_bench_${engine} EXCLUDE_FROM_ALL bench/workers/bare_${engine}.cc)
    lockstep_compiler_options(lockstep_bench_${engine})
    target_include_directories(lockstep_bench_${engine} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(lockstep_bench_${engine} PRIVATE ${bare_${engine}})
    add_dependencies(lockstep_bench lockstep_bench_${engine})
  endif()
endforeach()

# The report's breakdown of a GPU's time beside CUPTI's; CUPTI itself is loaded where the program runs.
find_path(CUPTI_HEADERS cupti.h HINTS ${cuda_root}/extras/CUPTI/include ${cuda_root}/include
          PATHS /usr/local/cuda/extras/CUPTI/include /usr/local/cuda/include)
find_path(CUDA_HEADERS cuda.h HINTS ${cuda_root}/include PATHS /usr/local/cuda/include)
mark_as_advanced(CUPTI_HEADERS CUDA_HEADERS)
if(CUPTI_HEADERS AND CUDA_HEADERS)
  add_executable(lockstep_breakdown EXCLUDE_FROM_ALL bench/breakdown/main.cc bench/breakdown/gpu_activity.cc)
  lockstep_compiler_options(lockstep_breakdown)
  target_include_directories(lockstep_breakdown PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(lockstep_breakdown SYSTEM PRIVATE ${CUPTI_HEADERS} ${CUDA_HEADERS})
  target_link_libraries(lockstep_breakdown PRIVATE lockstep lockstep_parts CLI11::CLI11 ${CMAKE_DL_LIBS})
endif()

if(LOCKSTEP_TESTS AND bench_test_sources)
  lockstep_add_tests(bench ${bench_test_sources})
  target_link_libraries(bench_tests PRIVATE lockstep_bench_parts)
endif()

# The C++ side of what Python costs (bench/python/front.py).
if(EXISTS ${PROJECT_SOURCE_DIR}/bench/python/front.cc)
  add_executable(lockstep_bench_front EXCLUDE_FROM_ALL bench/python/front.cc)
  lockstep_compiler_options(lockstep_bench_front)
  target_link_libraries(lockstep_bench_front PRIVATE lockstep)
endif()
