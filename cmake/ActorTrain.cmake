# One static library per folder: train_<name>, built from every .cpp below the current folder that
# no nested CMakeLists.txt claims. The include root is the repository; warnings are errors.

function(actortrain_options target)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Werror>)  # Clang builds the fuzzers only, and warns of other things
  # The compiler collects its garbage less often: a tenth of its time, for a few hundred MB.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-expand=200 --param ggc-min-heapsize=524288>")
  # ccache finds what was compiled with precompiled headers only if the preprocessor names them.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  # The same bits from the same source on every machine: the compiler may not fuse a*b+c on its own.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-fmad=false --expt-relaxed-constexpr -Xptxas -v>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror>")
  # Device code is half of a package otherwise; it is unpacked once, when a device is first used.
  target_compile_options(${target} PRIVATE
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<VERSION_GREATER_EQUAL:$<CUDA_COMPILER_VERSION>,12.8>>:--compress-mode=size>")
  if(ACTORTRAIN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ACTORTRAIN_SANITIZE} -fno-omit-frame-pointer -g1)
    if(ACTORTRAIN_COMPUTES_FROM)
      # Half of the compiler's time, for what the sanitizer of addresses sees as well or an optimizer must find;
      # `alignment` alone a quarter, for the few pointers that are cast to more than bytes. `./dev check` has them.
      target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size,vptr,alignment>)
    endif()
    # GCC 12 sees uninitialised values in Catch2 where the sanitizer instruments it.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    if(ACTORTRAIN_SANITIZE MATCHES thread)
      # Our fences are for memory of other processes, which this sanitizer does not see anyway.
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${ACTORTRAIN_SANITIZE})
  endif()
endfunction()

# UNITY of a library or a test program, times this: of a build that happens once, where large pieces are faster and nothing is
# compiled a second time.
set(ACTORTRAIN_PIECES 1 CACHE STRING "How many times larger the pieces are that libraries and tests are compiled in")
function(actortrain_unity target sources)
  math(EXPR batch "${sources} * ${ACTORTRAIN_PIECES}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  if(ACTORTRAIN_PIECES GREATER 1)
    # GCC 12 sees copies overlap there that do not, and a name that another file of the piece uses.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict;-Wno-shadow>")
  endif()
endfunction()

# actortrain_library(NAME [COMPUTES] [EXCLUDE regex...] [LINK lib...] [PRIVATE lib...] [OPTIMIZE level] [UNITY n]
#                   [PRECOMPILE header...])
# UNITY: so many sources are compiled together, which pays where headers cost more than the code.
# OPTIMIZE: of a folder that computes nothing: what the compiler saves is most of its time.
# PRECOMPILE: headers of others that every source of the folder parses; otherwise, with OPTIMIZE -O1, those of base.
# COMPUTES: ACTORTRAIN_COMPUTES_FROM, if there is one, has the library.
function(actortrain_library name)
  cmake_parse_arguments(arg "COMPUTES" "OPTIMIZE;UNITY" "EXCLUDE;LINK;PRIVATE;PRECOMPILE" ${ARGN})
  if(arg_COMPUTES AND ACTORTRAIN_COMPUTES_FROM)
    add_library(train_${name} STATIC IMPORTED GLOBAL)
    set_target_properties(train_${name} PROPERTIES
      IMPORTED_LOCATION "${ACTORTRAIN_COMPUTES_FROM}/${name}/libtrain_${name}.a")
    target_link_libraries(train_${name} INTERFACE ${arg_LINK} ${arg_PRIVATE})
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  foreach(pattern IN LISTS arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  add_library(train_${name} STATIC ${sources})
  actortrain_options(train_${name})
  # A line is counted where it stands only without an optimizer; kernels are too slow for that.
  if(ACTORTRAIN_COVERAGE AND NOT name STREQUAL "kernels")
    target_compile_options(train_${name} PRIVATE -O0 --coverage)
    target_link_options(train_${name} PUBLIC --coverage "LINKER:-u,__gcov_dump")  # for test::leave()
  # Sanitizers make an optimizer work twice as long, and longer than its work saves.
  elseif(arg_OPTIMIZE AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT ACTORTRAIN_COMPUTES_FROM)
    target_compile_options(train_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${arg_OPTIMIZE}>)
  endif()
  if(arg_UNITY)
    actortrain_unity(train_${name} ${arg_UNITY})
    # It takes what is private to a source for a part of a header, because that source is included.
    target_compile_options(train_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  if(arg_PRECOMPILE)
    target_precompile_headers(train_${name} PRIVATE ${arg_PRECOMPILE})
  elseif(arg_OPTIMIZE STREQUAL "-O1")  # As base is compiled, whose headers all others parse too.
    target_precompile_headers(train_${name} REUSE_FROM train_base)
  endif()
  target_link_libraries(train_${name} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE})
endfunction()

# Sources of CUDA kernels, as they are compiled: headers and ten passes cost nvcc 5 to 20 s for each, so that the
# small ones of a folder are one piece, which includes them; with larger pieces (ACTORTRAIN_PIECES) most large ones too.
# Their names stand once in the folder.
function(actortrain_cuda_sources result)
  file(GLOB_RECURSE sources RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/*.cu")
  set(alone)
  set(pieces)
  set(large "/tensor_cores/|/norm_(for|back)ward|/expert_matmul_mma")
  if(ACTORTRAIN_PIECES EQUAL 1)
    string(APPEND large "|/attention_(for|back)ward|/head_loss|/expert_matmul\\.")
  endif()
  foreach(source IN LISTS sources)
    if(source MATCHES "${large}")
      list(APPEND alone "${PROJECT_SOURCE_DIR}/${source}")
      continue()
    endif()
    set(piece others)
    if(source MATCHES "^kernels/(activation|attention|experts|head|optimizer|state_space)/")
      set(piece ${CMAKE_MATCH_1})
    endif()
    string(APPEND text_${piece} "#include \"${source}\"\n")
    list(APPEND pieces ${piece})
  endforeach()
  list(REMOVE_DUPLICATES pieces)
  foreach(piece IN LISTS pieces)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/kernels/pieces/${piece}.cu" CONTENT "${text_${piece}}" @ONLY)
  endforeach()
  list(TRANSFORM pieces REPLACE "(.+)" "${PROJECT_BINARY_DIR}/kernels/pieces/\\1.cu")
  file(GLOB gone "${PROJECT_BINARY_DIR}/kernels/pieces/*.cu")
  list(REMOVE_ITEM gone ${pieces})
  if(gone)
    file(REMOVE ${gone})
  endif()
  set(${result} ${alone} ${pieces} PARENT_SCOPE)
endfunction()

# In a bundle (scripts/bundle.sh) all libraries lie beside the program. Of the two kinds of search path
# this is the one that they follow too, for each other, and that goes before LD_LIBRARY_PATH. Further
# arguments: of install().
function(actortrain_relocatable target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${target} PRIVATE "LINKER:--disable-new-dtags")
  install(TARGETS ${target} RUNTIME DESTINATION bin ${ARGN})
endfunction()

# tests/<folder>/*_test.cpp become one program test_<folder>, which `./dev test` runs under that name, and
# what is tagged [.full] in it `./dev test full` under <folder>_full, [.soak] `./dev test soak`. What lies in tests/<folder>/long is a
# program of its own, test_<folder>_long, which `./dev test` does not even build. CAF: its cases see actors.
# COMPUTES: so much that the compiler has to do its best. ONLY_FULL: all cases are tagged [.full]. UNITY: as
# that of actortrain_library; a name then stands once in the folder. SHARED: sources that match it become objects,
# shared_cases_<folder>, which another program of tests links, too.
function(actortrain_test name)
  cmake_parse_arguments(arg "CAF;COMPUTES;ONLY_FULL" "UNITY;SHARED" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cpp")
  if(NOT sources)
    return()
  endif()
  set(long_sources ${sources})
  list(FILTER sources EXCLUDE REGEX "/${name}/long/")
  list(FILTER long_sources INCLUDE REGEX "/${name}/long/")
  set(kind "")
  if(arg_CAF)
    set(kind CAF)
  elseif(arg_COMPUTES)
    set(kind COMPUTES)
  endif()
  add_custom_target(${name}_tests)  # for `./dev test ${name}`
  set(shared)
  if(arg_SHARED)
    set(shared_sources ${sources})
    list(FILTER shared_sources INCLUDE REGEX "${arg_SHARED}")
    list(FILTER sources EXCLUDE REGEX "${arg_SHARED}")
    actortrain_shared_cases(${name} "${shared_sources}" ${arg_UNITY} ${kind} LINK ${arg_LINK})
    set(shared $<TARGET_OBJECTS:shared_cases_${name}>)
  endif()
  actortrain_test_of(${name} "${sources};${shared}" ${kind} LINK ${arg_LINK})
  if(arg_UNITY)
    actortrain_unity(test_${name} ${arg_UNITY})
  endif()
  if(NOT arg_ONLY_FULL)
    actortrain_default_test(${name} test_${name})
  endif()
  actortrain_full_test(${name}_full test_${name} "[full]")  # the exit code of a program without such a case is 0
  actortrain_soak_test(${name}_soak test_${name} "[soak]")
  add_dependencies(${name}_tests test_${name})
  if(long_sources)
    actortrain_test_of(${name}_long "${long_sources}" ${kind} LINK ${arg_LINK})
    if(arg_UNITY)
      actortrain_unity(test_${name}_long ${arg_UNITY})
    endif()
    actortrain_full_test(${name}_long test_${name}_long "[full]")
    actortrain_soak_test(${name}_long_soak test_${name}_long "[soak]")
    add_dependencies(${name}_tests test_${name}_long)
  endif()
endfunction()

function(actortrain_shared_cases name sources unity)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  add_library(shared_cases_${name} OBJECT ${sources})
  actortrain_unity(shared_cases_${name} ${unity})
  target_compile_definitions(shared_cases_${name} PRIVATE
    ACTORTRAIN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ACTORTRAIN_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(shared_cases_${name} PRIVATE ${arg_LINK})
  actortrain_test_program(shared_cases_${name} ${arg_UNPARSED_ARGUMENTS})
endfunction()

# Folders whose tests `./dev test sanitized` runs.
set(ACTORTRAIN_WATCHED base configs storage data checkpoint run actors)

function(actortrain_test_of name sources)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  set(cases "libcases_${name}.a")
  if(ACTORTRAIN_COMPUTES_FROM AND ACTORTRAIN_SANITIZE AND name IN_LIST ACTORTRAIN_WATCHED)
    actortrain_test_watched(${name} "${ACTORTRAIN_COMPUTES_FROM}/tests/${cases}" ${arg_LINK})
    return()
  endif()
  add_executable(test_${name} ${sources})
  if(name IN_LIST ACTORTRAIN_WATCHED)
    add_custom_command(TARGET test_${name} POST_BUILD BYPRODUCTS ${cases}
      COMMAND ${CMAKE_COMMAND} -E rm -f ${cases}
      COMMAND ${CMAKE_AR} qcT ${cases} $<TARGET_OBJECTS:test_${name}> $<TARGET_OBJECTS:test_main>
      COMMAND_EXPAND_LISTS VERBATIM)
  endif()
  target_compile_definitions(test_${name} PRIVATE
    ACTORTRAIN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ACTORTRAIN_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(test_${name} PRIVATE ${arg_LINK})
  actortrain_optimized_first(test_${name} ${arg_LINK} train_base)
  actortrain_test_program(test_${name} ${arg_UNPARSED_ARGUMENTS})
endfunction()

# The cases of another build, around libraries that a sanitizer watches: half of the compiler's time. The objects
# of the folder come first, so that of functions in headers, too, the watched ones are linked.
function(actortrain_test_watched name cases)
  add_executable(test_${name} $<TARGET_OBJECTS:test_allocated>)
  set_target_properties(test_${name} PROPERTIES LINKER_LANGUAGE CXX)
  actortrain_options(test_${name})
  list(REMOVE_ITEM ARGN test_allocated)
  foreach(library train_base ${ARGN})
    if(library MATCHES "^train_(base|${name}|lanes|tokenizer)$")
      target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:${library}>)
    endif()
  endforeach()
  target_link_libraries(test_${name} PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,${cases}>" ${ARGN} train_base Catch2::Catch2)
endfunction()

# Links the objects of libraries, and of those that they need, before the program's own. Of a function in a header the
# linker takes the first copy: one that an optimizer made rather than a test's or a command's, which start and read
# files twice as slowly. Kernels have no part in this: their copies may be for processors that are not everybody's.
function(actortrain_optimized_first target)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR ACTORTRAIN_SANITIZE OR ACTORTRAIN_COVERAGE)
    return()
  endif()
  set(seen)
  set(waiting ${ARGN})
  while(waiting)
    list(POP_FRONT waiting library)
    if(TARGET "${library}" AND library MATCHES "^train_" AND NOT library IN_LIST seen)
      list(APPEND seen ${library})
      get_target_property(needs ${library} INTERFACE_LINK_LIBRARIES)
      list(APPEND waiting ${needs})
      if(NOT library MATCHES "^train_(cli|board|kernels|device)$")
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
      endif()
    endif()
  endwhile()
endfunction()

# Gives a program of tests its main(), with the code of JSON's members, and the headers that all of them parse once,
# which only declare those. CAF: those of actors too.
function(actortrain_test_program target)
  set(headers test_headers)
  if("CAF" IN_LIST ARGN)
    set(headers test_headers_caf)
  elseif("COMPUTES" IN_LIST ARGN)
    set(headers test_headers_computes)
  endif()
  actortrain_options(${target})
  actortrain_test_optimize(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE test_main train_base Catch2::Catch2)
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# Compiling tests takes longer than running them: the compiler saves, and Catch2 does not catch what an
# assertion throws for each of them anew.
function(actortrain_test_optimize target)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    if("COMPUTES" IN_LIST ARGN)
      set(level -O1)
    else()
      set(level -O0)
    endif()
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${level}>)
  endif()
  target_compile_definitions(${target} PRIVATE CATCH_CONFIG_FAST_COMPILE)
  # An inline function is linked as one object has it, often a test's: it is counted there as well.
  if(ACTORTRAIN_COVERAGE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:--coverage>)
  endif()
endfunction()

# Seconds that the longest tests take on two cores. They begin first, so that no core is idle while another ends
# the last of them; what a fresh clone has not measured yet would begin in any order.
set(ACTORTRAIN_COSTS integration_long=350 integration_full=250 cuda_emulation=90 cuda_emulation_backwards=35
  engine_full=75 checkpoint_full=70 bundle_package=75 board_page=65 bundle_full=50 kernels_cuda_sass=50
  kernels_cuda_report=30 cuda_emulation_warpgroups=20 sim_full=30 actors_full=35 kernels_full=25 data_full=16 base_full=15
  integration=250 data=80 engine=50 checkpoint=38 actors=38 kernels=37 guarded_device=35 cli=32 configs=30 storage=30
  run=20 tidy=18
  data_sanitized=70 actors_sanitized=60 checkpoint_sanitized=50 storage_sanitized=30 run_sanitized=30
  configs_sanitized=10)
# Tests that wait for processes, disks and clocks a fifth to half of the time. A processor of ctest is half a core,
# `-j4` two cores: beside one that computes two of these run, and neither core is idle.
set(ACTORTRAIN_WAITING integration_long integration_full integration checkpoint checkpoint_full board_page board_scrape
  bundle_full)
function(actortrain_schedule name)
  if(";${ACTORTRAIN_COSTS};" MATCHES ";${name}=([0-9]+);")
    set_tests_properties(${name} PROPERTIES COST ${CMAKE_MATCH_1})
  endif()
  if(NOT name IN_LIST ACTORTRAIN_WAITING)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# A test that `./dev test` runs, in minutes, and one that `./dev test full` runs besides. The limits of
# time turn a hang into a failure, on a busy machine too.
add_custom_target(default_tests)
add_custom_target(full_tests)
function(actortrain_default_test name target)
  add_test(NAME ${name} COMMAND ${target} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS default TIMEOUT 3600)
  actortrain_schedule(${name})
  add_dependencies(default_tests ${target})
endfunction()
function(actortrain_full_test name target)
  add_test(NAME ${name} COMMAND ${target} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS full TIMEOUT 3600)
  actortrain_schedule(${name})
  add_dependencies(full_tests ${target})
endfunction()

# One that `./dev test soak` runs, by hand: what goes on for as long as one has patience. Cases that do
# something again and again at random do it twenty times as often there.
function(actortrain_soak_test name target)
  add_test(NAME ${name} COMMAND ${target} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS soak TIMEOUT 36000 PROCESSORS 4
    ENVIRONMENT ACTORTRAIN_SOAK=20)
endfunction()

# The product's main with something of its own linked in, beside the product itself: what integration
# tests run; those of the full tier, if nothing else depends on it.
function(actortrain_program name)
  add_executable(${name} "${PROJECT_SOURCE_DIR}/cli/main.cpp" ${ARGN})
  actortrain_options(${name})
  target_link_libraries(${name} PRIVATE train_cli)
  actortrain_optimized_first(${name} train_cli)
  target_compile_definitions(${name} PRIVATE ACTORTRAIN_VERSION="${PROJECT_VERSION}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
  add_dependencies(full_tests ${name})
endfunction()
