#include <fmt/format.h>

#include "configs/rules.hpp"

namespace train::configs {

Error broken(const KeyPositions& places, std::string_view key, const std::string& rule) {
  return user_error(fmt::format("{}: {} {}", places.of(key), key, rule));
}

namespace {

/// memory.bf16_weights = "made".
Status check_made_weights(const RunConfig& config, const KeyPositions& places) {
  const auto refuse = [&](const std::string& why) {
    return broken(places, "memory.bf16_weights", "is \"made\", but " + why);
  };
  if (config.runtime.device == "cpu" || config.precision.compute != "bf16") {
    return refuse(
        "layers read fp32 weights; leave it out, or set runtime.device to \"cuda\" and "
        "precision.compute to \"bf16\"");
  }
  if (config.memory.offload == "parameters") {
    return refuse(
        "memory.offload = \"parameters\" leaves the fp32 weights to the host; set that to "
        "\"optimizer\", or leave this out");
  }
  const std::string& strategy = config.parallel.strategy;
  if (config.parallel.ranks > 1 && (strategy == "optimizer" || strategy == "gradient")) {
    return refuse(fmt::format(
        "with parallel.strategy = \"{}\" no rank has all of a layer's fp32 weights; leave it "
        "out, or set the strategy to \"full\"",
        strategy));
  }
  return {};
}

}  // namespace

Status check_memory(const RunConfig& config, const KeyPositions& places) {
  const MemorySection& memory = config.memory;
  if (memory.checkpointed_part != "block" && memory.activation_checkpointing == "none") {
    return broken(places, "memory.checkpointed_part",
                  fmt::format("is \"{}\", but no block is checkpointed; set "
                              "memory.activation_checkpointing to \"all\", or leave this out",
                              memory.checkpointed_part));
  }
  if (memory.bf16_weights == "made") {
    TRAIN_RETURN_IF_ERROR(check_made_weights(config, places));
  }
  if (memory.offload == "none") {
    return {};
  }
  if (config.runtime.device == "cpu") {
    return broken(
        places, "memory.offload",
        fmt::format("is \"{}\", but on the CPU all memory is the host's; leave it out, or "
                    "set runtime.device to \"cuda\"",
                    memory.offload));
  }
  const ParallelSection& parallel = config.parallel;
  const bool by_nccl = parallel.transport == "nccl" || parallel.transport == "auto";
  if (memory.offload == "parameters" && parallel.ranks > 1 && by_nccl) {
    return broken(
        places, "memory.offload",
        "is \"parameters\", but NCCL takes what it sends from the device's memory alone; set "
        "this to \"optimizer\", or parallel.transport to \"gloo\" or \"inproc\"");
  }
  const std::string& strategy = parallel.strategy;
  const bool whole = strategy != "full" && strategy != "hybrid";
  if (memory.offload == "parameters" && whole && config.precision.compute == "fp32") {
    return broken(places, "memory.offload",
                  fmt::format("is \"parameters\", but with parallel.strategy = \"{}\" and fp32 "
                              "compute the only weights are those that layers read; set "
                              "precision.compute to \"bf16\", the strategy to \"full\", or this to "
                              "\"optimizer\"",
                              strategy));
  }
  return {};
}

}  // namespace train::configs
