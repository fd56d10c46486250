# The CUDA backend: a plugin that the library loads at run time, so that the library itself needs no CUDA.

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/backends/cuda/*.cc src/backends/cuda/*.cu
                                                 src/ops/*_cuda.cc src/ops/*_cuda.cu)
list(FILTER cuda_sources EXCLUDE REGEX "_(test|bench|fuzz)\\.(cc|cu)$|/testdata/")

# What is there is looked at before CMake's own search, which ends with an error where something is missing.
find_program(NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NVCC)
  get_filename_component(cuda_root ${NVCC} REALPATH)
  get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
endif()
find_library(CUDNN_LIBRARY cudnn HINTS ${cuda_root}/lib64)
find_path(CUDNN_HEADERS cudnn.h HINTS ${cuda_root}/include)
mark_as_advanced(NVCC CUDNN_LIBRARY CUDNN_HEADERS)
set(missing)
if(NOT NVCC)
  list(APPEND missing "nvcc (on PATH, in CUDA_HOME, or in /usr/local/cuda)")
endif()
if(NOT CUDNN_LIBRARY OR NOT CUDNN_HEADERS)
  list(APPEND missing "cuDNN 9 (libcudnn.so and cudnn.h)")
endif()
if(missing)
  list(JOIN missing ", " missing)
  if(NOT LOCKSTEP_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "LOCKSTEP_CUDA is ON, but there is no ${missing}. Install it, or configure with LOCKSTEP_CUDA=OFF "
                        "to train on the CPU.")
  endif()
  message(STATUS "The CUDA backend is not built: there is no ${missing}")
  return()
endif()
set(LOCKSTEP_WITH_CUDA ON)
message(STATUS "The CUDA backend is built by ${NVCC}")

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${NVCC})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc 13 speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")

lockstep_add_plugin(lockstep_cuda cuda ${cuda_sources})
target_link_libraries(lockstep_cuda PRIVATE CUDA::cudart CUDA::cuda_driver CUDA::cublasLt CUDA::nvrtc ${CUDNN_LIBRARY})
# Philox and other constexpr functions are device code too.
target_compile_options(lockstep_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
