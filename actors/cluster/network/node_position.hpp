#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "base/result.hpp"

// Which node this is, of how many, and what it has to do there.
namespace train::actors {

/// Where the head of one generation of ranks listens.
struct Endpoint {
  std::string host;  ///< IPv4 address.
  std::uint16_t port = 0;
  std::uint32_t generation = 0;  ///< Of ranks, of that start of the launchers.
};

/// `host:port`, as on a command line.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);
/// Errors (user): not of the form HOST:PORT.
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);

/// What the head leaves for other launchers in a file of the run's control directory.
struct ControlNote {
  std::string word;  ///< The matter, one line.
  std::string start;
  std::uint32_t number = 0;  ///< Of the generation, or what the matter says.
};
/// Durable on return; blocks. Errors: those of write_private_file().
[[nodiscard]] Status write_note(const std::filesystem::path& file, const ControlNote& note);
/// Blocks. Errors (failure): there is none, or not all of it.
[[nodiscard]] Result<ControlNote> read_note(const std::filesystem::path& file);

/// The IPv4 address of a network interface; of loopback if `interface` is empty.
/// Errors (user): there is none of that name with an address; names those that have one.
[[nodiscard]] Result<std::string> interface_address(const std::string& interface);

/// This launcher's position among the launchers of the run: one per node, node 0 is the head.
struct NodePosition {
  std::int64_t node = 0;
  std::int64_t nodes = 1;
  std::string start = {};  ///< The same on all nodes of one start, another at the next.

  [[nodiscard]] bool head() const { return node == 0; }
  /// First rank of this node and the one after its last: contiguous, even to within one.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> ranks(std::int64_t all) const {
    return {all * node / nodes, all * (node + 1) / nodes};
  }
};

/// The number of `rank` among those of its node, from 0. REQUIRES: rank < ranks.
[[nodiscard]] std::int64_t local_rank(std::int64_t rank, std::int64_t ranks, std::int64_t nodes);

/// Where the head listens, for a node that is not the head: waits for the note that the head of
/// the same start writes to `file` in its generation `from` or a later one: a launcher that was
/// started anew comes when it can. Looks every 50 ms; blocks. Errors (failure): none within
/// `timeout`, or until `give_up`.
[[nodiscard]] Result<Endpoint> find_head(const NodePosition& position, std::uint32_t from,
                                         const std::filesystem::path& file,
                                         std::chrono::milliseconds timeout,
                                         const std::function<bool()>& give_up = {});

}  // namespace train::actors
