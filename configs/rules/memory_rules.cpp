#include "configs/rules/rules.hpp"

namespace train::configs {
namespace {

void check_made_weights(const RunConfig& config, Rules& rules) {
  const std::string_view key = "memory.bf16_weights";
  rules.refuse_if(
      config.runtime.device == "cpu" || config.precision.compute != "bf16", key,
      "is \"made\", but layers read fp32 weights; leave it out, or set runtime.device to "
      "\"cuda\" and precision.compute to \"bf16\"");
  rules.refuse_if(config.memory.offload == "parameters", key,
                  "is \"made\", but memory.offload = \"parameters\" leaves the fp32 weights to the "
                  "host; set that to \"optimizer\", or leave this out");
  const std::string& strategy = config.parallel.strategy;
  rules.refuse_if(
      config.parallel.ranks > 1 && (strategy == "optimizer" || strategy == "gradient"), key,
      "is \"made\", but with parallel.strategy = \"{}\" no rank has all of a layer's fp32 weights; "
      "leave it out, or set the strategy to \"full\"",
      strategy);
}

}  // namespace

void check_memory(const RunConfig& config, Rules& rules) {
  const MemorySection& memory = config.memory;
  const ParallelSection& parallel = config.parallel;
  rules.refuse_if(
      config.runtime.device != "cuda" && parallel.transport == "nccl", "parallel.transport",
      "is \"nccl\", which moves memory of CUDA devices, but runtime.device is \"{}\"; use "
      "\"tcp\", or set runtime.device to \"cuda\"",
      config.runtime.device);
  rules.refuse_if(
      memory.checkpointed_part != "block" && memory.activation_checkpointing == "none",
      "memory.checkpointed_part",
      "is \"{}\", but no block is checkpointed; set memory.activation_checkpointing to \"all\", or "
      "leave this out",
      memory.checkpointed_part);
  if (memory.bf16_weights == "made") {
    check_made_weights(config, rules);
  }
  rules.refuse_if(memory.offload != "none" && config.runtime.device == "cpu", "memory.offload",
                  "is \"{}\", but on the CPU all memory is the host's; leave it out, or set "
                  "runtime.device to \"cuda\"",
                  memory.offload);
  if (memory.offload != "parameters") {
    return;
  }
  const bool by_nccl = parallel.transport == "nccl" || parallel.transport == "auto";
  rules.refuse_if(parallel.ranks > 1 && by_nccl, "memory.offload",
                  "is \"parameters\", but NCCL takes what it sends from the device's memory alone; "
                  "set this to \"optimizer\", or parallel.transport to \"tcp\" or \"inproc\"");
  const std::string& strategy = parallel.strategy;
  rules.refuse_if(strategy != "full" && strategy != "hybrid" && config.precision.compute == "fp32",
                  "memory.offload",
                  "is \"parameters\", but with parallel.strategy = \"{}\" and fp32 compute the "
                  "only weights are "
                  "those that layers read; set precision.compute to \"bf16\", the strategy to "
                  "\"full\", or this "
                  "to \"optimizer\"",
                  strategy);
}

}  // namespace train::configs
