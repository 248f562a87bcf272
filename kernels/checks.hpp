#pragma once

#include <cstdint>

#include "kernels/kernel_list.hpp"

// What makes a call of a kernel a wrong one, in one place for every kind of device. Each throws
// CheckFailed, on the caller's thread and before anything is enqueued.
namespace train::kernels {

#define TRAIN_KERNEL_CHECK(name, Params) void check_params(const Params& params);
TRAIN_KERNELS(TRAIN_KERNEL_CHECK)
#undef TRAIN_KERNEL_CHECK

/// For kernels that are compiled for heads of up to `largest` columns.
void require_head_dim(const char* kernel, std::int64_t head_dim, std::int64_t largest);

}  // namespace train::kernels
