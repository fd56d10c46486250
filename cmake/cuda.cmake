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

lockstep_add_plugin(lockstep_cuda cuda ${cuda_sources})
target_link_libraries(lockstep_cuda PRIVATE CUDA::cudart CUDA::cuda_driver CUDA::cublasLt CUDA::nvrtc ${CUDNN_LIBRARY})
# Philox and other constexpr functions are device code too.
target_compile_options(lockstep_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
