# Sets ACTORTRAIN_HAS_CUDA, and enables the language where there is a toolkit to compile with. The
# program needs neither toolkit nor device to start: the runtime is linked statically, the other
# libraries are opened when a kernel asks for them.
#
# Sets NCCL_INCLUDE_DIR where there is NCCL's header, which the transport between devices of several
# processes needs; of the library nothing is linked.
set(ACTORTRAIN_HAS_CUDA OFF)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS /usr/local/cuda/include)
if(ACTORTRAIN_CUDA STREQUAL "OFF" OR ACTORTRAIN_SANITIZE)
  return()  # The sanitizers and the CUDA runtime do not share an address space.
endif()
if(ACTORTRAIN_CUDA STREQUAL "DEVICE" AND NOT EXISTS /dev/nvidiactl)
  return()  # Nobody waits for kernels that this machine cannot run; `./dev build gpu` compiles them.
endif()
find_package(CUDAToolkit 12 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  if(ACTORTRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACTORTRAIN_CUDA=ON, but there is no CUDA toolkit of version 12 or later")
  endif()
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# Keeps the compiler's report on registers beside each object, for the tests to read.
set(CMAKE_CUDA_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/scripts/keep_ptxas_report.sh"
  ${CMAKE_CXX_COMPILER_LAUNCHER})
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(ACTORTRAIN_HAS_CUDA ON)
