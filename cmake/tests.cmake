# Tests. Every room's x_test.cc files make one program <room>_tests; tests/*_test.cc, which cross rooms, make
# engine_tests. A test whose name contains "Long" carries the label `long`: `./run test` leaves it out,
# `./run check` runs it. The other labels are the rooms', `engine`, `rules` and `package`.

enable_testing()
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GoogleTest)

set(test_timeout 120)
if(LOCKSTEP_SANITIZE)
  set(test_timeout 600)
endif()

function(lockstep_add_tests room)
  set(target ${room}_tests)
  add_executable(${target} ${ARGN})
  lockstep_knows_plugins(${ARGN})
  lockstep_compiler_options(${target})
  target_compile_definitions(${target} PRIVATE LOCKSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_include_directories(${target} PRIVATE src)
  target_link_libraries(${target} PRIVATE lockstep lockstep_parts GTest::gmock GTest::gtest GTest::gmock_main)
  # Thousands of small tests: under a sanitizer a process for each takes longer to start than to run.
  if(LOCKSTEP_SANITIZE AND room MATCHES "harness$")
    set(shards 16)
    foreach(shard RANGE 1 ${shards})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${room}.shard_${shard}_of_${shards} COMMAND ${target} --gtest_brief=1 --gtest_filter=-*Long*)
      set_tests_properties(${room}.shard_${shard}_of_${shards} PROPERTIES LABELS ${room} TIMEOUT 3600
          ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
    endforeach()
    return()
  endif()
  # A test that skips itself counts as skipped, not as passed; ctest's log holds the reason.
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX ${room}.
      TEST_FILTER "-*Long*" TEST_LIST ${target}_daily
      PROPERTIES LABELS ${room} TIMEOUT ${test_timeout} SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX ${room}.
      TEST_FILTER "*Long*" TEST_LIST ${target}_long
      PROPERTIES LABELS long TIMEOUT 3600 SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endfunction()

file(GLOB rooms CONFIGURE_DEPENDS LIST_DIRECTORIES TRUE RELATIVE ${PROJECT_SOURCE_DIR}/src src/*)
foreach(room ${rooms})
  file(GLOB_RECURSE room_tests CONFIGURE_DEPENDS src/${room}/*_test.cc)
  list(FILTER room_tests EXCLUDE REGEX "/testdata/|/src/backends/(nccl|mpi|gloo)/")
  if(NOT LOCKSTEP_WITH_CUDA)
    list(FILTER room_tests EXCLUDE REGEX "/src/backends/cuda/|_cuda_test\\.cc$")
  endif()
  if(room_tests AND room STREQUAL "cli")
    set(tested_sources ${cli_sources})
    list(FILTER tested_sources EXCLUDE REGEX "/main\\.cc$")
    lockstep_add_tests(cli ${room_tests} ${tested_sources})
    lockstep_cli_options(cli_tests)
  elseif(room_tests)
    lockstep_add_tests(${room} ${room_tests})
  endif()
endforeach()

# Plugins that the loader's tests load: src/device/testdata/plugin_X.cc becomes X/liblockstep_cuda.so.
file(GLOB plugin_sources CONFIGURE_DEPENDS src/device/testdata/plugin_*.cc)
foreach(source ${plugin_sources})
  cmake_path(GET source STEM plugin)
  string(REPLACE "plugin_" "" folder ${plugin})
  lockstep_add_plugin(test_${plugin} cuda ${source})
  set_target_properties(test_${plugin} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test_plugins/${folder})
  add_dependencies(device_tests test_${plugin})
endforeach()
if(plugin_sources)
  target_compile_definitions(device_tests PRIVATE LOCKSTEP_TEST_PLUGIN_DIR="${PROJECT_BINARY_DIR}/test_plugins")
endif()

# A stand-in for NVIDIA's driver and libraries: tests copy it under their names.
add_library(test_fake_nvidia MODULE src/device/testdata/fake_nvidia.cc)
lockstep_compiler_options(test_fake_nvidia)
target_link_libraries(test_fake_nvidia PRIVATE nlohmann_json::nlohmann_json)
foreach(room device doctor cli)
  add_dependencies(${room}_tests test_fake_nvidia)
  target_compile_definitions(${room}_tests PRIVATE LOCKSTEP_FAKE_NVIDIA="$<TARGET_FILE:test_fake_nvidia>")
endforeach()
add_dependencies(cli_tests lockstep_cli)
target_compile_definitions(cli_tests PRIVATE LOCKSTEP_TOOL="$<TARGET_FILE:lockstep_cli>")

file(GLOB engine_sources CONFIGURE_DEPENDS tests/*.cc)
if(engine_sources)
  lockstep_add_tests(engine ${engine_sources})
  target_include_directories(engine_tests PRIVATE tests)
  if(model_sources)
    target_link_libraries(engine_tests PRIVATE lockstep_models)
  endif()
endif()

# The op harness: every registered op, every promise an op makes.
file(GLOB harness_sources CONFIGURE_DEPENDS tests/ops/*.cc)
if(harness_sources)
  lockstep_add_tests(harness ${harness_sources})
  target_include_directories(harness_tests PRIVATE tests)
endif()

# On the first GPU, split into logical ones; without one they skip themselves.
file(GLOB gpu_test_sources CONFIGURE_DEPENDS tests/gpu/*.cc)
if(gpu_test_sources AND model_sources)
  lockstep_add_tests(gpu ${gpu_test_sources})
  target_include_directories(gpu_tests PRIVATE tests)
  target_link_libraries(gpu_tests PRIVATE lockstep_models)
endif()

# Against recorded Keras, and the layer harness.
file(GLOB keras_harness_sources CONFIGURE_DEPENDS tests/keras/*.cc)
if(keras_harness_sources)
  lockstep_add_tests(keras_harness ${keras_harness_sources})
  target_include_directories(keras_harness_tests PRIVATE tests)
endif()

# What follows looks at the tree and at the finished library: no sanitizer has a say in it.
if(LOCKSTEP_SANITIZE)
  return()
endif()

# The rules of the tree, and the tests of the checkers themselves.
foreach(rule room_order header_cycles public_includes readme_samples typed_streams words)
  add_test(NAME rules.${rule} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/rules/${rule}.py
                                      --root ${PROJECT_SOURCE_DIR})
endforeach()
add_test(NAME rules.headers_alone
         COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/rules/headers_alone.py --root ${PROJECT_SOURCE_DIR}
                 --compiler ${CMAKE_CXX_COMPILER} --cache ${PROJECT_BINARY_DIR}/headers_alone.json)
add_test(NAME rules.checkers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/rules/rules_test.py
                                     --compiler ${CMAKE_CXX_COMPILER})
set(rule_tests rules.room_order rules.header_cycles rules.public_includes rules.readme_samples rules.typed_streams rules.words
    rules.headers_alone rules.checkers)
if(simd_sources)
  add_test(NAME rules.simd_symbols
           COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/rules/simd_symbols.py
                   --first $<TARGET_OBJECTS:lockstep_simd_v2>
                   --later $<TARGET_OBJECTS:lockstep_simd_v3> $<TARGET_OBJECTS:lockstep_simd_v4>
           COMMAND_EXPAND_LISTS)
  list(APPEND rule_tests rules.simd_symbols)
endif()
set_tests_properties(${rule_tests} PROPERTIES LABELS rules TIMEOUT 300 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)

# The installed package: install into a prefix of its own, then build and run the programs of tests/package and
# examples against it, knowing nothing but that prefix.
set(package_folder ${PROJECT_BINARY_DIR}/package)
add_test(NAME package.clear COMMAND ${CMAKE_COMMAND} -E rm -rf ${package_folder}/prefix)
add_test(NAME package.install COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --config $<CONFIG>
                                      --prefix ${package_folder}/prefix)
add_test(NAME package.configure
         COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/tests/package -B ${package_folder}/build
                 -G ${CMAKE_GENERATOR} -DCMAKE_PREFIX_PATH=${package_folder}/prefix
                 -DCMAKE_BUILD_TYPE=$<CONFIG> -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
                 -DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER})
add_test(NAME package.build COMMAND ${CMAKE_COMMAND} --build ${package_folder}/build)
add_test(NAME package.run COMMAND ${package_folder}/build/consumer)
file(GLOB examples CONFIGURE_DEPENDS examples/*.cc)
set(example_tests)
foreach(source ${examples})
  cmake_path(GET source STEM example)
  add_test(NAME package.example_${example} COMMAND ${package_folder}/build/examples/${example})
  list(APPEND example_tests package.example_${example})
endforeach()
add_test(NAME package.tool COMMAND ${package_folder}/prefix/${CMAKE_INSTALL_BINDIR}/lockstep --help)
set_tests_properties(package.clear PROPERTIES FIXTURES_SETUP package_cleared)
set_tests_properties(package.install PROPERTIES FIXTURES_REQUIRED package_cleared FIXTURES_SETUP package_installed)
set_tests_properties(package.configure PROPERTIES FIXTURES_REQUIRED package_installed
                                                  FIXTURES_SETUP package_configured)
set_tests_properties(package.build PROPERTIES FIXTURES_REQUIRED package_configured FIXTURES_SETUP package_built)
set_tests_properties(package.run ${example_tests} PROPERTIES FIXTURES_REQUIRED package_built)
set_tests_properties(package.tool PROPERTIES FIXTURES_REQUIRED package_installed)
set_tests_properties(package.clear package.install package.configure package.build package.run package.tool
                     ${example_tests}
                     PROPERTIES LABELS package TIMEOUT 600)
