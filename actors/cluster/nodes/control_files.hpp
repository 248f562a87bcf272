#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/nodes/node_position.hpp"
#include "base/result.hpp"

// What launchers tell each other before they are in touch, and when they cannot be: files of the
// run's control directory, which all nodes share. Each holds for one start of the launchers alone
// (NodePosition::start).
namespace train::actors {

/// Where the head leaves what nodes and workers need to find it, of the run in `root`.
[[nodiscard]] std::filesystem::path control_directory(const std::filesystem::path& root);
[[nodiscard]] std::filesystem::path endpoint_file(const std::filesystem::path& root);

/// Says in `file` where the head listens. Durable on return; blocks. `start`: NodePosition::start
/// of the head. It replaces what the head of an earlier generation wrote, and stays until the end
/// of the run: a client of NFS that has once seen no file believes that for 30 s. Errors: those of
/// storage::write_private_file().
[[nodiscard]] Status write_endpoint(const std::filesystem::path& file, const Endpoint& endpoint,
                                    const std::string& start);

/// At the end of the run, a courtesy: who reads it later learns at once that nobody is there.
void forget_endpoint(const std::filesystem::path& file);

/// Where the head listens, for a node that is not the head: waits for the note that the head of
/// the same start writes to `file` in its generation `from` or a later one: a launcher that was
/// started anew comes when it can. Looks every 50 ms; blocks. Errors (failure): none within
/// `timeout`, or until `give_up`.
[[nodiscard]] Result<Endpoint> find_head(const NodePosition& position, std::uint32_t from,
                                         const std::filesystem::path& file,
                                         std::chrono::milliseconds timeout,
                                         const std::function<bool()>& give_up = {});

/// At the head's start, before any other launcher can take an older word for its own. Blocks.
void forget_exit_record(const std::filesystem::path& root);

/// At the head's end, which is that of the run in `root`. Blocks. What cannot be written is a
/// warning: the others then wait for as long as they do for a head that is lost.
void leave_exit_record(const std::filesystem::path& root, const std::string& start, int exit_code);

/// The exit code that the head of `start` has left; none: none yet, or one of another start.
/// Blocks.
[[nodiscard]] std::optional<int> exit_record(const std::filesystem::path& root,
                                             const std::string& start);

}  // namespace train::actors
