#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train::engine {

/// What a checkpoint may see of a tensor: its name, its place in the global tensor, its bytes.
/// Borrows `data` (host memory, row-major, fp32); the owner outlives the view.
struct StateView {
  std::string name;  ///< "model.<parameter>", "optimizer.exp_avg.<parameter>", ...
  std::vector<std::int64_t> global_shape;  ///< Shape of the whole tensor.
  std::int64_t first_row = 0;              ///< First row of dimension 0 held here.
  std::int64_t rows = 0;                   ///< Rows held here.
  std::byte* data = nullptr;               ///< `size_bytes` bytes: the rows held here.
  std::size_t size_bytes = 0;
};

}  // namespace train::engine
