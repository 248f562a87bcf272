#include "engine/collective/channel.hpp"

#include <fmt/format.h>

#include <array>

namespace train::engine {

const char* channel_name(Channel channel) {
  static constexpr std::array kNames = {"gather", "reduce", "control"};
  return kNames.at(static_cast<std::size_t>(channel));
}

std::string to_string(const CollectiveIdentity& identity) {
  return fmt::format("generation {} command {} {} {}", identity.generation, identity.command,
                     channel_name(identity.channel), identity.index);
}

}  // namespace train::engine
