#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train::engine {

/// The name of a parameter's weights among the tensors of a state begins with this.
inline constexpr std::string_view kWeights = "model.";

[[nodiscard]] inline std::string weight_name(std::string_view parameter) {
  return std::string(kWeights).append(parameter);
}
[[nodiscard]] inline bool is_weight(std::string_view tensor) {
  return tensor.starts_with(kWeights);
}

/// View of a tensor for checkpoints: its name, its place in the global tensor, its bytes.
/// Borrows `data` (host memory, row-major, fp32); the owner outlives the view.
struct StateView {
  std::string name;  ///< weight_name(parameter), "optimizer.exp_avg.<parameter>", ...
  std::vector<std::int64_t> global_shape;  ///< Shape of the whole tensor.
  std::int64_t first_row = 0;              ///< First row of dimension 0 held here.
  std::int64_t rows = 0;                   ///< Rows held here.
  std::byte* data = nullptr;               ///< `size_bytes` bytes: the rows held here.
  std::size_t size_bytes = 0;
  bool is_bf16 = false;  ///< The rank holds these rows as bf16, in half of size_bytes (HostState).
};

}  // namespace train::engine
