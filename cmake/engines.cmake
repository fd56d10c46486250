# Engines that join the processes of a run over a network: plugins, each built where its library is found.

# They are small: ./run makes them with every program.
add_custom_target(lockstep_engines)
add_dependencies(lockstep_plugins lockstep_engines)

# lockstep_add_engine(NAME): the plugin of src/backends/NAME, linked with the rest of the arguments.
function(lockstep_add_engine name)
  file(GLOB engine_sources CONFIGURE_DEPENDS src/backends/${name}/*.cc)
  list(FILTER engine_sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  lockstep_add_plugin(lockstep_${name} ${name} ${engine_sources})
  target_link_libraries(lockstep_${name} PRIVATE ${ARGN})
  add_dependencies(lockstep_engines lockstep_${name})
  install(TARGETS lockstep_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT plugins)
endfunction()

find_package(Gloo QUIET)
if(TARGET gloo)
  lockstep_add_engine(gloo gloo)
else()
  message(STATUS "Gloo was not found: without the plugin that joins processes over TCP")
endif()

# The functions of C: the classes for C++ are no part of MPI any more.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(TARGET MPI::MPI_CXX)
  lockstep_add_engine(mpi MPI::MPI_CXX)
else()
  message(STATUS "MPI was not found: without the plugin that joins processes of mpirun and srun")
endif()
