#pragma once

// All that nccl.h wants of CUDA, for a library that has no kernels.
using cudaStream_t = struct CUstream_st*;
