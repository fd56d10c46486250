# The CUDA backend: a plugin that the library loads at run time, so that the library itself needs no CUDA.

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/backends/cuda/*.cc src/backends/cuda/*.cu
                                                 src/ops/*_cuda.cc src/ops/*_cuda.cu)
list(FILTER cuda_sources EXCLUDE REGEX "_(test|bench|fuzz)\\.(cc|cu)$|/testdata/")
if(NOT cuda_sources)
  message(FATAL_ERROR
          "LOCKSTEP_CUDA is ON, but Lockstep ${PROJECT_VERSION} has no CUDA backend: src/backends/cuda holds no "
          "source file. Configure with LOCKSTEP_CUDA=OFF (the presets dev and release) to train on the CPU.")
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc 13 speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
find_library(CUDNN_LIBRARY cudnn REQUIRED HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(CUDNN_LIBRARY)

# NCCL joins cards and processes: another plugin, which loads libnccl itself where it is needed.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(NCCL_INCLUDE_DIR)
set(nccl_version 0)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_version REGEX "^#define NCCL_VERSION_CODE [0-9]+")
  string(REGEX REPLACE "[^0-9]" "" nccl_version "${nccl_version}")
  file(GLOB nccl_sources CONFIGURE_DEPENDS src/backends/nccl/*.cc)
  list(FILTER nccl_sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  lockstep_add_plugin(lockstep_nccl nccl ${nccl_sources})
  target_include_directories(lockstep_nccl PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(lockstep_nccl PRIVATE CUDA::cudart)
  install(TARGETS lockstep_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
else()
  message(STATUS "nccl.h was not found: without the plugin that joins several cards and processes")
endif()

lockstep_add_plugin(lockstep_cuda cuda ${cuda_sources})
target_link_libraries(lockstep_cuda PRIVATE CUDA::cudart CUDA::cuda_driver CUDA::cublasLt CUDA::nvrtc ${CUDNN_LIBRARY})
# Philox and other constexpr functions are device code too.
target_compile_options(lockstep_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
# What the plugin says of its code: "90" is machine code and intermediate code, "90-real" and "90-virtual" one of them.
set(machine_code ${CMAKE_CUDA_ARCHITECTURES})
list(FILTER machine_code EXCLUDE REGEX "-virtual$")
list(TRANSFORM machine_code REPLACE "[^0-9].*" "")
set(intermediate_code ${CMAKE_CUDA_ARCHITECTURES})
list(FILTER intermediate_code EXCLUDE REGEX "-real$")
list(TRANSFORM intermediate_code REPLACE "[^0-9].*" "")
list(JOIN machine_code "," machine_code)
list(JOIN intermediate_code "," intermediate_code)
set_property(SOURCE src/backends/cuda/plugin.cc APPEND PROPERTY COMPILE_DEFINITIONS
             LOCKSTEP_CUDA_MACHINE_CODE=${machine_code} LOCKSTEP_CUDA_INTERMEDIATE_CODE=${intermediate_code}
             LOCKSTEP_NCCL_VERSION=${nccl_version})
install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
