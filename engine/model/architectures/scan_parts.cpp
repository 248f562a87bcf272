#include "engine/model/architectures/scan_parts.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace train::engine {

MambaSpec hybrid_scan(ModelConfig& config, std::int64_t dim, float eps) {
  MambaSpec scan;
  scan.inner = config.size("mamba_expand") * dim;
  scan.states = config.size("mamba_d_state");
  const nlohmann::json* rank = config.find("mamba_dt_rank");
  scan.step_rank =
      rank != nullptr && *rank == "auto" ? (dim + 15) / 16 : config.size("mamba_dt_rank");
  scan.taps = config.size("mamba_d_conv");
  scan.bias = config.flag("mamba_proj_bias");
  scan.conv_bias = config.flag("mamba_conv_bias");
  scan.norms = ScanNorms::weighted;
  scan.norm_eps = eps;
  const double bound = 1.0 / std::sqrt(static_cast<double>(scan.step_rank));
  scan.step_init = Initializer::uniform(-bound, bound);
  scan.in = "mamba.in_proj";
  scan.conv = "mamba.conv1d";
  scan.select = "mamba.x_proj";
  scan.step = "mamba.dt_proj";
  scan.out = "mamba.out_proj";
  scan.rates = "mamba.A_log";
  scan.skip = "mamba.D";
  scan.step_norm = "mamba.dt_layernorm";
  scan.b_norm = "mamba.b_layernorm";
  scan.c_norm = "mamba.c_layernorm";
  return scan;
}

}  // namespace train::engine
