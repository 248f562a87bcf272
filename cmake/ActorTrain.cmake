# One static library per folder: train_<name>, built from every .cpp below the current folder that
# no nested CMakeLists.txt claims. The include root is the repository; warnings are errors.

function(actortrain_options target)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Werror>)  # Clang builds the fuzzers only, and warns of other things
  # The same bits from the same source on every machine: the compiler may not fuse a*b+c on its own.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-fmad=false --expt-relaxed-constexpr -Xptxas -v>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror>")
  if(ACTORTRAIN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ACTORTRAIN_SANITIZE} -fno-omit-frame-pointer -g)
    # GCC 12 sees uninitialised values in Catch2 where the sanitizer instruments it.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    if(ACTORTRAIN_SANITIZE MATCHES thread)
      # Our fences are for memory of other processes, which this sanitizer does not see anyway.
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${ACTORTRAIN_SANITIZE})
  endif()
endfunction()

function(actortrain_library name)
  cmake_parse_arguments(arg "" "" "EXCLUDE;LINK;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(pattern IN LISTS arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  add_library(train_${name} STATIC ${sources})
  actortrain_options(train_${name})
  target_link_libraries(train_${name} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE})
endfunction()

# In a bundle (scripts/bundle.sh) all libraries lie beside the program. Of the two kinds of search path
# this is the one that they follow too, for each other, and that goes before LD_LIBRARY_PATH. Further
# arguments: of install().
function(actortrain_relocatable target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${target} PRIVATE "LINKER:--disable-new-dtags")
  install(TARGETS ${target} RUNTIME DESTINATION bin ${ARGN})
endfunction()

# tests/<folder>/*_test.cpp become one program test_<folder>, run by ctest under that name.
function(actortrain_test name)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cpp")
  if(NOT sources)
    return()
  endif()
  add_executable(test_${name} ${sources} "${PROJECT_SOURCE_DIR}/tests/support/catch_main.cpp")
  actortrain_options(test_${name})
  target_compile_definitions(test_${name} PRIVATE
    ACTORTRAIN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ACTORTRAIN_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(test_${name} PRIVATE ${arg_LINK} train_base Catch2::Catch2)
  add_test(NAME ${name} COMMAND test_${name})
endfunction()

# The product's main with something of its own linked in, beside the product itself: what integration
# tests run.
function(actortrain_program name)
  add_executable(${name} "${PROJECT_SOURCE_DIR}/actors/main.cpp" ${ARGN})
  actortrain_options(${name})
  target_link_libraries(${name} PRIVATE train_actors)
  target_compile_definitions(${name} PRIVATE ACTORTRAIN_VERSION="${PROJECT_VERSION}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  if(TARGET test_integration)
    add_dependencies(test_integration ${name})
  endif()
endfunction()
