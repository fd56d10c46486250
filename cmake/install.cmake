# The installed package: find_package(lockstep) gives the target lockstep::lockstep.

include(CMakePackageConfigHelpers)

file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(lockstep_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")

# What a program that uses the library needs has a component of its own: the tool need not be built for it.
install(TARGETS lockstep EXPORT lockstepTargets LIBRARY COMPONENT library NAMELINK_COMPONENT library
        FILE_SET HEADERS COMPONENT library)
install(TARGETS lockstep_cli)

set(package_destination ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION ${package_destination} COMPONENT library)
configure_package_config_file(cmake/lockstepConfig.cmake.in lockstepConfig.cmake
                              INSTALL_DESTINATION ${package_destination})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/lockstepConfigVersion.cmake
        DESTINATION ${package_destination} COMPONENT library)

if(LOCKSTEP_SIMD STREQUAL "native")
  install(CODE [[message(WARNING "This library runs on processors like this machine's alone; for all: cmake -DLOCKSTEP_SIMD=all, and build again")]]
          COMPONENT library)
endif()
