# oneDNN as the target dnnl::dnnl. Debian's own CMake file asks for OpenCL's headers, which only oneDNN's GPU half
# needs and Lockstep does not use.

find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(DNNL_LIBRARY dnnl)
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found: install the Debian package libdnnl-dev, or set DNNL_INCLUDE_DIR and "
                      "DNNL_LIBRARY.")
endif()

add_library(dnnl::dnnl SHARED IMPORTED)
set_target_properties(dnnl::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                                            INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
