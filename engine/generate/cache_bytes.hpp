#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "engine/model/spec.hpp"
#include "engine/model/workspace.hpp"

namespace train::engine {

/// Decoding state that all layers keep of a text, in fp32.
struct CacheBytes {
  std::int64_t token = 0;  ///< Bytes of a token.
  /// Bytes among these that only the last tokens have, by the number of those tokens.
  std::map<std::int64_t, std::int64_t> windows = {};
};

/// Bytes with that form in the layers that have it. nullopt: no layer has it.
[[nodiscard]] std::optional<CacheBytes> cache_bytes(const ModelSpec& model, CacheForm form);

}  // namespace train::engine
