#pragma once

#include <cstdint>
#include <memory>

#include "configs/optimizer_section.hpp"
#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

// Each is defined in a file of its own (families share one); registry.cpp gives it its name.
// `run_steps`: steps of the whole run. REQUIRES: a validated section.
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw(const configs::OptimizerSection& section,
                                                    std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_adamw_decaying_wd(
    const configs::OptimizerSection& section, std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_adana(const configs::OptimizerSection& section,
                                                    std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_dana_mk4(const configs::OptimizerSection& section,
                                                       std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_dana_star(const configs::OptimizerSection& section,
                                                        std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_dana_star_mk4(
    const configs::OptimizerSection& section, std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_ademamix(const configs::OptimizerSection& section,
                                                       std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_ademamix_decaying_wd(
    const configs::OptimizerSection& section, std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_muon(const configs::OptimizerSection& section,
                                                   std::int64_t run_steps);
[[nodiscard]] std::unique_ptr<Optimizer> make_d_muon(const configs::OptimizerSection& section,
                                                     std::int64_t run_steps);

}  // namespace train::engine
