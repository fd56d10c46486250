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

# NCCL joins GPUs and processes: another plugin, which loads libnccl itself where it is needed.
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
  add_dependencies(lockstep_plugins lockstep_nccl)
  install(TARGETS lockstep_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT plugins)
else()
  message(STATUS "nccl.h was not found: without the plugin that joins several GPUs and processes")
endif()

# Files that use instructions of Hopper which no later chip has (wgmma): compiled for 90a in the place of 90.
set(hopper_sources ${cuda_sources})
list(FILTER hopper_sources INCLUDE REGEX "tf32x3[a-z_]*\\.cu$")
list(REMOVE_ITEM cuda_sources ${hopper_sources})
set(hopper_architectures ${CMAKE_CUDA_ARCHITECTURES})
list(TRANSFORM hopper_architectures REPLACE "^90" "90a")
add_library(lockstep_hopper OBJECT ${hopper_sources})
lockstep_compiler_options(lockstep_hopper)
target_include_directories(lockstep_hopper PRIVATE src)
target_link_libraries(lockstep_hopper PRIVATE lockstep lockstep_parts)
target_compile_options(lockstep_hopper PRIVATE --expt-relaxed-constexpr)
set_target_properties(lockstep_hopper PROPERTIES CUDA_ARCHITECTURES "${hopper_architectures}")

# What writes code while the program runs, and has it compiled: the same objects in the plugin and in that of the tests, which
# needs no GPU (cmake/tests.cmake).
set(code_sources ${cuda_sources})
list(FILTER code_sources INCLUDE REGEX
     "/megakernel/|_megakernel_cuda\\.cc$|/(window_code_cuda|elementwise_(cuda|group|kernel|source)|(runtime|kept)_code|deferred_errors)\\.cc$")
list(REMOVE_ITEM cuda_sources ${code_sources})
add_library(lockstep_cuda_code OBJECT ${code_sources})
lockstep_compiler_options(lockstep_cuda_code)
target_include_directories(lockstep_cuda_code PRIVATE src ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(lockstep_cuda_code PRIVATE lockstep lockstep_parts)

lockstep_add_plugin(lockstep_cuda cuda ${cuda_sources})
target_sources(lockstep_cuda PRIVATE $<TARGET_OBJECTS:lockstep_hopper> $<TARGET_OBJECTS:lockstep_cuda_code>)
target_link_libraries(lockstep_cuda PRIVATE CUDA::cudart CUDA::cublasLt CUDA::nvrtc ${CUDNN_LIBRARY})
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
add_dependencies(lockstep_plugins lockstep_cuda)
install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT plugins)
