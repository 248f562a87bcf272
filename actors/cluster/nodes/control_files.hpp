#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "actors/cluster/network/endpoint.hpp"
#include "base/result.hpp"
#include "run/plan/node_position.hpp"

// Messages between launchers while they are not connected: files of the run's control directory,
// shared by all nodes. Each is valid for one start of the launchers (NodePosition::start).
namespace train::actors {

/// Directory in which the head of the run in `root` leaves what nodes and workers need to find it.
[[nodiscard]] std::filesystem::path control_directory(const std::filesystem::path& root);
[[nodiscard]] std::filesystem::path endpoint_file(const std::filesystem::path& root);

/// Publishes in `file` where the head listens. Durable on return; blocks. `start`:
/// NodePosition::start of the head. It replaces that of an earlier generation, and stays until the
/// end of the run, because an NFS client caches a missing file for 30 s. Errors: those of
/// storage::write_private_file().
[[nodiscard]] Status write_endpoint(const std::filesystem::path& file, const Endpoint& endpoint,
                                    const std::string& start);

/// Removes it at the end of the run, so that later readers know at once that there is no head.
void forget_endpoint(const std::filesystem::path& file);

/// Finds the head, on another node: waits for the record that the head of the same start writes to
/// `file` in its generation `from` or a later one; a restarted launcher may be late. Polls every 50
/// ms; blocks. Errors (failure): none within `timeout`, or until `give_up`.
[[nodiscard]] Result<Endpoint> find_head(const run::NodePosition& position, std::uint32_t from,
                                         const std::filesystem::path& file,
                                         std::chrono::milliseconds timeout,
                                         const std::function<bool()>& give_up = {});

/// Called at the head's start, before another launcher could read an older record. Blocks.
void forget_exit_record(const std::filesystem::path& root);

/// Called at the head's end, which is that of the run in `root`. Blocks. A write error is only a
/// warning: the others then wait as long as for a lost head.
void leave_exit_record(const std::filesystem::path& root, const std::string& start, int exit_code);

/// Exit code left by the head of `start`; nullopt: none yet, or one of another start. Blocks.
[[nodiscard]] std::optional<int> exit_record(const std::filesystem::path& root,
                                             const std::string& start);

}  // namespace train::actors
