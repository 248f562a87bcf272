#include "kernels/backend.hpp"

namespace train::kernels {

const KernelTable* cuda_backend() { return nullptr; }

}  // namespace train::kernels
