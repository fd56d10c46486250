# The Python package, where LOCKSTEP_PYTHON asks for it: python/lockstep over one extension module of python/bindings, for the
# interpreter Python_EXECUTABLE, which has nanobind (./run python makes such a one). In the build tree the folder `python` holds
# both, to be put on PYTHONPATH.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE
                OUTPUT_VARIABLE nanobind_folder COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED PATHS ${nanobind_folder} NO_DEFAULT_PATH)

file(GLOB binding_sources CONFIGURE_DEPENDS python/bindings/*.cc)
# From Python 3.12 on one module serves all later versions; before that each version has its own.
nanobind_add_module(lockstep_python STABLE_ABI NB_STATIC NOMINSIZE ${binding_sources})
target_link_libraries(lockstep_python PRIVATE lockstep)
target_compile_options(lockstep_python PRIVATE -O1)  # what is bound does nothing but hand over
set_target_properties(lockstep_python PROPERTIES OUTPUT_NAME _lockstep
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/lockstep)

if(DEFINED SKBUILD)
  # A wheel: the package and the library in one folder.
  set_target_properties(lockstep_python PROPERTIES INSTALL_RPATH $ORIGIN)
  install(TARGETS lockstep_python LIBRARY DESTINATION lockstep COMPONENT python)
  install(FILES $<TARGET_FILE:lockstep> DESTINATION lockstep COMPONENT python RENAME $<TARGET_SONAME_FILE_NAME:lockstep>)
else()
  file(GLOB_RECURSE package_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python python/lockstep/*.py python/lockstep/py.typed)
  foreach(file ${package_files})
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/python/${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/${file} ${PROJECT_BINARY_DIR}/python/${file} SYMBOLIC)
  endforeach()
endif()
