# OpenMP where clang compiles. oneDNN brings libgomp, and a process wants one OpenMP runtime only, so clang
# links libgomp as well. With it clang leaves out the parallel regions: every loop runs on the calling thread,
# which is what a fuzzer wants; other threads are threads all the same. clang cannot read g++'s omp.h; LLVM's says the same.

file(GLOB omp_headers /usr/lib/llvm-*/lib/clang/*/include/omp.h)
if(NOT omp_headers)
  message(FATAL_ERROR "No omp.h that clang can read was found: install the Debian package libomp-dev.")
endif()
list(GET omp_headers 0 omp_header)
cmake_path(GET omp_header PARENT_PATH omp_folder)

add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)
target_compile_options(OpenMP::OpenMP_CXX INTERFACE -fopenmp=libgomp -Wno-source-uses-openmp
                                                    "SHELL:-idirafter ${omp_folder}")
target_link_options(OpenMP::OpenMP_CXX INTERFACE -fopenmp=libgomp)
