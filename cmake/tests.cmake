# Tests. Every room's x_test.cc files make one program <room>_tests; tests/*_test.cc, which cross rooms, make
# engine_tests. The programs and some commands are listed in tests.json, which tests/runner/run_tests.py runs:
# `./run test` calls it, and so does ctest.

enable_testing()
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# lockstep_json_list(VARIABLE ITEM...): the items as strings of a JSON list; a generator expression may make several.
function(lockstep_json_list variable)
  set(items ${ARGN})
  list(TRANSFORM items REPLACE [[(["\])]] [[\\\1]])
  set(${variable} "[\"$<JOIN:${items},\", \">\"]" PARENT_SCOPE)
endfunction()

# How tests are compiled: quickly.
function(lockstep_test_options target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# Cases for the tests of the runner. Every test program takes its precompiled headers from this one.
add_executable(runner_cases tests/runner/cases.cc)
lockstep_compiler_options(runner_cases)
lockstep_test_options(runner_cases)
lockstep_precompile(runner_cases ${precompiled_test_headers})
target_link_libraries(runner_cases PRIVATE GTest::gtest GTest::gmock GTest::gtest_main OpenMP::OpenMP_CXX)

# lockstep_add_tests(ROOM SOURCE...): the program ROOM_tests, and its cases as tests of the room.
function(lockstep_add_tests room)
  set(target ${room}_tests)
  add_executable(${target} ${ARGN})
  lockstep_knows_plugins(${ARGN})
  lockstep_compiler_options(${target})
  lockstep_test_options(${target})
  lockstep_precompile(${target} REUSE_FROM runner_cases)
  # Only where it is used: ccache can take the other files from another checkout.
  foreach(source ${ARGN})
    file(STRINGS ${source} names_the_tree REGEX "LOCKSTEP_SOURCE_DIR" LIMIT_COUNT 1)
    if(names_the_tree)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS LOCKSTEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
  target_include_directories(${target} PRIVATE src)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/program/verify_graphs.cc)
  target_link_libraries(${target} PRIVATE lockstep lockstep_parts GTest::gmock GTest::gtest GTest::gmock_main)
  set_property(GLOBAL APPEND_STRING PROPERTY lockstep_test_programs
               ",\n  {\"room\": \"${room}\", \"program\": \"$<TARGET_FILE:${target}>\"}")
endfunction()

# lockstep_add_command(NAME [AFTER OTHER] COMMAND WORD...): a test that passes where the command ends with status 0; what
# stands before the first dot of its name is its room. It runs after OTHER, and not at all where OTHER failed.
function(lockstep_add_command name)
  cmake_parse_arguments(PARSE_ARGV 1 test "" "AFTER" "COMMAND")
  string(REGEX REPLACE "\\..*" "" room ${name})
  lockstep_json_list(words ${test_COMMAND})
  set(after)
  if(test_AFTER)
    set(after "\"after\": \"${test_AFTER}\", ")
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY lockstep_test_commands
               ",\n  {\"name\": \"${name}\", \"room\": \"${room}\", ${after}\"command\": ${words}}")
endfunction()

# Other files add tests too, so the list is written when all have been read.
function(lockstep_write_test_list)
  set(environment)
  set(patience 900)  # seconds without a word after which a process is taken to hang, on the busiest machine
  if(LOCKSTEP_SANITIZE MATCHES "address")
    set(environment [["ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1",
                      "UBSAN_OPTIONS": "print_stacktrace=1"]])
    set(patience 3600)
  elseif(LOCKSTEP_SANITIZE MATCHES "thread")
    set(environment
        [["TSAN_OPTIONS": "ignore_noninstrumented_modules=1:second_deadlock_stack=1:allocator_may_return_null=1"]])
    set(patience 3600)
  endif()
  foreach(list programs commands)
    get_property(${list} GLOBAL PROPERTY lockstep_test_${list})
    string(REGEX REPLACE "^," "" ${list} "${${list}}")
  endforeach()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/tests.json CONTENT
"{\"environment\": {${environment}},
 \"patience\": ${patience},
 \"programs\": [${programs}
 ],
 \"commands\": [${commands}
 ]}
")
endfunction()
cmake_language(DEFER CALL lockstep_write_test_list)
add_test(NAME lockstep COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/runner/run_tests.py
                               --build ${PROJECT_BINARY_DIR})

file(GLOB rooms CONFIGURE_DEPENDS LIST_DIRECTORIES TRUE RELATIVE ${PROJECT_SOURCE_DIR}/src src/*)
foreach(room ${rooms})
  file(GLOB_RECURSE room_tests CONFIGURE_DEPENDS src/${room}/*_test.cc)
  list(FILTER room_tests EXCLUDE REGEX "/testdata/|/src/backends/(nccl|mpi|gloo)/")
  if(NOT LOCKSTEP_WITH_CUDA)
    list(FILTER room_tests EXCLUDE REGEX "/src/backends/cuda/|_cuda_test\\.cc$")
  endif()
  if(room_tests AND room STREQUAL "cli")
    lockstep_add_tests(cli ${room_tests})
    lockstep_cli_options(cli_tests)
    target_link_libraries(cli_tests PRIVATE lockstep_cli_parts)
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
add_dependencies(cli_tests lockstep_cli lockstep_plugins)
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

# What the library writes for GPUs while it runs is written and compiled without one: a plugin takes the place of the GPU.
# Where the CUDA toolkit is missing, and with it the compiler, they skip themselves.
file(GLOB gpu_sources_test_sources CONFIGURE_DEPENDS tests/gpu_sources/*.cc)
if(gpu_sources_test_sources AND model_sources)
  lockstep_add_tests(gpu_sources ${gpu_sources_test_sources})
  target_include_directories(gpu_sources_tests PRIVATE tests)
  target_link_libraries(gpu_sources_tests PRIVATE lockstep_models)
  set(gpu_sources_folder)
  if(LOCKSTEP_WITH_CUDA)
    file(GLOB gpu_sources_plugin CONFIGURE_DEPENDS tests/gpu_sources/plugin/*.cc)
    lockstep_add_plugin(test_gpu_sources cuda ${gpu_sources_plugin})
    target_sources(test_gpu_sources PRIVATE $<TARGET_OBJECTS:lockstep_cuda_code>)
    target_include_directories(test_gpu_sources PRIVATE tests ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(test_gpu_sources PRIVATE CUDA::nvrtc)
    set(gpu_sources_folder ${PROJECT_BINARY_DIR}/test_plugins/gpu_sources)
    set_target_properties(test_gpu_sources PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${gpu_sources_folder})
    add_dependencies(gpu_sources_tests test_gpu_sources)
  endif()
  target_compile_definitions(gpu_sources_tests PRIVATE LOCKSTEP_SOURCES_PLUGIN="${gpu_sources_folder}")
endif()

# Runs of several processes, joined by the engines that were built; without one they skip themselves.
file(GLOB workers_test_sources CONFIGURE_DEPENDS tests/workers/*.cc)
if(workers_test_sources)
  lockstep_add_tests(workers ${workers_test_sources})
  target_include_directories(workers_tests PRIVATE tests)
  add_dependencies(workers_tests lockstep_plugins)
endif()

# What a run is said to suffer from, made to happen; and runs that suffer from nothing. They ask what takes how long, which code
# that is watched, and not optimised, does not answer.
file(GLOB verdict_test_sources CONFIGURE_DEPENDS tests/verdicts/*.cc)
if(verdict_test_sources AND NOT LOCKSTEP_SANITIZE MATCHES "address")
  lockstep_add_tests(verdicts ${verdict_test_sources})
  add_dependencies(verdicts_tests lockstep_cli)
  target_compile_definitions(verdicts_tests PRIVATE LOCKSTEP_COMPILER="${CMAKE_CXX_COMPILER}"
                             LOCKSTEP_LIBRARY="$<TARGET_FILE:lockstep>" LOCKSTEP_TOOL="$<TARGET_FILE:lockstep_cli>")
endif()

# Against recorded Keras, and the layer harness.
file(GLOB keras_harness_sources CONFIGURE_DEPENDS tests/keras/*.cc)
if(keras_harness_sources)
  lockstep_add_tests(keras_harness ${keras_harness_sources})
  target_include_directories(keras_harness_tests PRIVATE tests)
endif()

# The test runner, seen running cases that fail, crash and hang.
set(python ${Python3_EXECUTABLE} -B)
lockstep_add_command(runner.run_tests COMMAND ${python} ${PROJECT_SOURCE_DIR}/tests/runner/run_tests_test.py
                                              --program $<TARGET_FILE:runner_cases>)

# What follows looks at the tree and at the finished library: no sanitizer has a say in it.
if(LOCKSTEP_SANITIZE)
  return()
endif()

# The Python package's tests are a program like the others; where the package is not built, every case is skipped.
set(python_tests_settings "LOCKSTEP_TEST_PYTHON='${Python_EXECUTABLE}' LOCKSTEP_TEST_PACKAGE='${PROJECT_BINARY_DIR}/python'")
if(NOT LOCKSTEP_PYTHON)
  set(python_tests_settings "LOCKSTEP_TEST_SKIP=\"\${LOCKSTEP_TEST_SKIP:-the package was not built; ./run test builds it}\"")
endif()
file(WRITE ${PROJECT_BINARY_DIR}/python_tests
     "#!/bin/sh\n${python_tests_settings} exec '${Python3_EXECUTABLE}' -B '${PROJECT_SOURCE_DIR}/tests/python/program.py' \"$@\"\n")
file(CHMOD ${PROJECT_BINARY_DIR}/python_tests PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE)
set_property(GLOBAL APPEND_STRING PROPERTY lockstep_test_programs
             ",\n  {\"room\": \"python\", \"program\": \"${PROJECT_BINARY_DIR}/python_tests\"}")

# The rules of the tree, and the tests of the checkers themselves.
set(rules ${PROJECT_SOURCE_DIR}/tests/rules)
foreach(rule room_order header_cycles op_names no_downcasts public_includes readme_samples typed_streams words)
  lockstep_add_command(rules.${rule} COMMAND ${python} ${rules}/${rule}.py --root ${PROJECT_SOURCE_DIR})
endforeach()
lockstep_add_command(rules.files_alone COMMAND ${python} ${rules}/files_alone.py --root ${PROJECT_SOURCE_DIR}
                     --compiler ${CMAKE_CXX_COMPILER} --cache ${PROJECT_BINARY_DIR}/files_alone.json)
lockstep_add_command(rules.checkers COMMAND ${python} ${rules}/rules_test.py --compiler ${CMAKE_CXX_COMPILER})
if(simd_sources AND LOCKSTEP_SIMD STREQUAL "all")
  lockstep_add_command(rules.simd_symbols COMMAND ${python} ${rules}/simd_symbols.py
                       --first $<TARGET_OBJECTS:lockstep_simd_v2>
                       --later $<TARGET_OBJECTS:lockstep_simd_v3> $<TARGET_OBJECTS:lockstep_simd_v4>)
endif()

# The installed package: install into a prefix of its own, then build and run the programs of tests/package and
# examples against it, knowing nothing but that prefix.
set(package_folder ${PROJECT_BINARY_DIR}/package)
lockstep_add_command(package.clear COMMAND ${CMAKE_COMMAND} -E rm -rf ${package_folder}/prefix)
lockstep_add_command(package.install AFTER package.clear
                     COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --config $<CONFIG>
                             --prefix ${package_folder}/prefix)
lockstep_add_command(package.configure AFTER package.install
                     COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/tests/package -B ${package_folder}/build
                             -G ${CMAKE_GENERATOR} -DCMAKE_PREFIX_PATH=${package_folder}/prefix
                             -DCMAKE_BUILD_TYPE=$<CONFIG> -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
                             -DCMAKE_CXX_COMPILER_LAUNCHER=$<$<BOOL:${CCACHE}>:${CCACHE}>)
lockstep_add_command(package.build AFTER package.configure COMMAND ${CMAKE_COMMAND} --build ${package_folder}/build)
lockstep_add_command(package.run AFTER package.build COMMAND ${package_folder}/build/consumer)
file(GLOB examples CONFIGURE_DEPENDS examples/*.cc)
foreach(source ${examples})
  cmake_path(GET source STEM example)
  lockstep_add_command(package.example_${example} AFTER package.build
                       COMMAND ${package_folder}/build/examples/${example})
endforeach()
# What programs print is written at their end, and in the pages of the guide.
set(pages ${PROJECT_SOURCE_DIR}/tests/pages)
file(GLOB articles CONFIGURE_DEPENDS examples/articles/*.cc)
foreach(source ${articles})
  cmake_path(GET source STEM article)
  lockstep_add_command(package.article_${article} AFTER package.build
                       COMMAND ${python} ${pages}/programs.py --source ${source}
                               --program ${package_folder}/build/examples/articles/${article})
endforeach()
file(GLOB guide CONFIGURE_DEPENDS docs/guide/*.md)
list(FILTER guide EXCLUDE REGEX "README|/python\\.md")  # what Python programs print, tests/python looks at
foreach(page ${guide})
  cmake_path(GET page STEM name)
  lockstep_add_command(package.guide_${name} AFTER package.build
                       COMMAND ${python} ${pages}/programs.py --page ${page} --folder ${package_folder}/build/examples)
endforeach()
lockstep_add_command(pages.programs COMMAND ${python} ${pages}/programs_test.py)
# The commands of a page of the documentation.
if(TARGET lockstep_gloo)
  lockstep_add_command(package.many_machines AFTER package.build
                       COMMAND ${python} ${PROJECT_SOURCE_DIR}/tests/pages/many_machines.py
                               --page ${PROJECT_SOURCE_DIR}/docs/many_machines.md
                               --program ${package_folder}/build/examples/many_workers
                               --tool ${package_folder}/prefix/${CMAKE_INSTALL_BINDIR}/lockstep)
endif()
lockstep_add_command(package.tool AFTER package.install
                     COMMAND ${package_folder}/prefix/${CMAKE_INSTALL_BINDIR}/lockstep --help)
