# What a plugin must have in common with the library. They share C++ types, so both carry a hash of the headers
# these come from (LOCKSTEP_BUILD_HASH, part of the tag that the loader compares). Only files that include
# "device/plugin.h" see it: any other would be compiled again with every change to a header.

file(GLOB_RECURSE private_headers CONFIGURE_DEPENDS src/*.h)
list(FILTER private_headers EXCLUDE REGEX "/src/(cli|keras|doctor)/|_test\\.h$|/testdata/")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers} ${private_headers})
set(header_hashes "")
foreach(header ${headers} ${private_headers})
  file(SHA256 ${header} header_hash)
  string(APPEND header_hashes ${header_hash})
endforeach()
string(SHA256 build_hash "${header_hashes}")
string(SUBSTRING ${build_hash} 0 16 build_hash)

# lockstep_knows_plugins(SOURCE...): gives the hash to those of these files that include "device/plugin.h".
function(lockstep_knows_plugins)
  foreach(source ${ARGN})
    file(STRINGS ${source} includes_plugin REGEX "^#include \"device/plugin\\.h\"" LIMIT_COUNT 1)
    if(includes_plugin)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS LOCKSTEP_BUILD_HASH="${build_hash}")
    endif()
  endforeach()
endfunction()
lockstep_knows_plugins(${sources})

# What the programs load at run time. A whole build makes them; ./run makes them with a program where they are of use, and
# says so where they are not, for a tool without its plugin trains on the CPU alone.
add_custom_target(lockstep_plugins)

# lockstep_add_plugin(TARGET NAME SOURCE...): the plugin liblockstep_NAME.so.
function(lockstep_add_plugin target name)
  add_library(${target} MODULE ${ARGN})
  lockstep_compiler_options(${target})
  lockstep_knows_plugins(${ARGN})
  target_include_directories(${target} PRIVATE src)
  target_link_libraries(${target} PRIVATE lockstep lockstep_parts)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME lockstep_${name})
endfunction()
