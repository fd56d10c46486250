# Unity builds: files of one folder are compiled together, so that the headers are read and the templates instantiated once
# for all of them; a first build takes half the time. ./run lint compiles every file on its own.

option(LOCKSTEP_UNITY "Compile the files of a folder together" ON)

# The folders whose files keep out of each other's way. Files of ops name alike what is alike in all of them (`registered`,
# `infer`), and so do the files after them, which are compiled on their own.
set(united_folders "/src/(backends/cpu|base|cli|comm|compile|data|device|distribute|doctor|execute|graph|keras|observe|tensor|train)/")
set(files_on_their_own
    "/src/(base/child_process|compile/control_flow/loop_op|keras/constraints|\
keras/layer_outputs|keras/layers/dense|keras/layers/einsum_dense|keras/losses|keras/optimizers/[a-z_]+|train/(hdf5|zip_archive))\\.cc$")
set(bytes_per_unit 70000)  # of source text: about ten seconds of g++, and enough units for the cores of a workstation

# lockstep_unite(SOURCES): puts units in the place of those of these files that can be compiled together.
function(lockstep_unite variable)
  if(NOT LOCKSTEP_UNITY)
    return()
  endif()
  set(together ${${variable}})
  list(FILTER together INCLUDE REGEX "${united_folders}")
  list(FILTER together EXCLUDE REGEX "${files_on_their_own}")
  set(units)
  set(unit_folder)
  foreach(source ${together})
    # Its definition of the build's hash changes with every header (cmake/plugins.cmake).
    file(STRINGS ${source} includes_plugin REGEX "^#include \"device/plugin\\.h\"" LIMIT_COUNT 1)
    if(includes_plugin)
      list(REMOVE_ITEM together ${source})
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src OUTPUT_VARIABLE path)
    file(SIZE ${source} size)
    math(EXPR bytes "${bytes} + ${size}")
    if(NOT folder STREQUAL unit_folder OR bytes GREATER bytes_per_unit)
      set(unit_folder ${folder})
      set(bytes ${size})
      string(REPLACE "/" "_" name ${path})
      set(unit ${PROJECT_BINARY_DIR}/units/${name})
      list(APPEND units ${unit})
      set(text_${name} "")
    endif()
    string(APPEND text_${name} "#include \"${path}\"\n")
  endforeach()
  foreach(unit ${units})
    cmake_path(GET unit FILENAME name)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text_${name}}" @ONLY)
    # g++ takes an included file for a header, in which a type of the unnamed namespace would be a mistake.
    set_property(SOURCE ${unit} APPEND PROPERTY COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endforeach()
  set(alone ${${variable}})
  if(together)
    list(REMOVE_ITEM alone ${together})
  endif()
  set(${variable} ${units} ${alone} PARENT_SCOPE)
endfunction()
