#include "engine/rank/memory_options.hpp"

#include <charconv>
#include <string>

#include "base/check.hpp"

namespace train::engine {

Checkpointing checkpointing_of(const configs::MemorySection& section) {
  const std::string& text = section.activation_checkpointing;
  Checkpointing checkpointing;
  if (section.checkpointed_part != "block") {
    checkpointing.part = section.checkpointed_part == "mlp" ? Recompute::mlp : Recompute::attention;
  }
  if (text == "none" || text == "all") {
    checkpointing.every = text == "all" ? 1 : 0;
    return checkpointing;
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), checkpointing.every);
  TRAIN_CHECK(error == std::errc{} && end == text.data() + text.size() && checkpointing.every > 0,
              "memory.activation_checkpointing is \"{}\"", text);
  return checkpointing;
}

Offload offload_of(const configs::MemorySection& section) {
  if (section.offload == "none") {
    return Offload::nothing;
  }
  return section.offload == "optimizer" ? Offload::optimizer : Offload::parameters;
}

bool makes_weights(const configs::MemorySection& section) { return section.bf16_weights == "made"; }

}  // namespace train::engine
