#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace train::cli {

struct BoardOptions {
  std::filesystem::path root = {};  ///< Directory of a run, or a folder of runs.
  std::string listen = "127.0.0.1:0";
  std::string token_file = {};             ///< Empty: no token, allowed only on a loopback address.
  std::string frame_ancestors = {};        ///< For parse_frame_ancestors().
  std::string key = "--listen";            ///< The user's name for `listen` ...
  std::string token_key = "--token-file";  ///< ... and for `token_file` ...
  std::string frame_key = "--frame-ancestors";  ///< ... and for `frame_ancestors`.
};

/// Serves runs to browsers and programs over HTTP, read-only:
///
///   /                the page, with its files
///   /runs.json       all runs, one per line
///   /status.json     ?run=NAME       status of the run
///   /series.json     ?run=NAME       metrics over the steps (series_json()), at most
///                    [&since=S&width=W&reading=R |        2,048 bins; from .. to is read anew.
///                    &from=S&to=S]                        `reading`: RunMetrics::reading(), so
///                                                         that steps taken back are sent anew
///   /events          ?run=NAME       server-sent events: `status`, `metrics` (there are new
///                                    numbers), `log` (a line of events.jsonl), `restart`
///                                    (lines before are void), as they come
///   /metrics         all runs in the OpenMetrics format
///
/// Limits, so that no client can slow training: 256 connections, 192 of them from one address; a
/// new
/// one replaces the one that has been silent longest, or otherwise the slowest reader; 8 KiB of
/// header; no bodies; 10 s for a request and 15 s for its response; 64 event streams; one range
/// being read at a time; 32 MiB of unsent responses, beyond which the slowest readers are dropped
/// and streams skip to the newest state.
///
/// Without a token it warns at the start if the machine has other users: they can read everything.
///
/// Threading: one thread of its own, of low priority. Errors there are logged; it continues.
/// Ownership: stops when destroyed.
class BoardServer {
 public:
  /// Errors (user): an address of another machine, a port in use, no token file for a non-loopback
  /// address, and those of parse_board_address(), parse_frame_ancestors(), read_board_token() and
  /// BoardRuns::open().
  [[nodiscard]] static Result<std::unique_ptr<BoardServer>> start(const BoardOptions& options);
  ~BoardServer();
  BoardServer(const BoardServer&) = delete;
  BoardServer& operator=(const BoardServer&) = delete;

  /// "http://127.0.0.1:41233/".
  [[nodiscard]] const std::string& url() const { return url_; }

 private:
  class Loop;
  BoardServer(std::unique_ptr<Loop> loop, std::string url);

  std::unique_ptr<Loop> loop_;
  std::string url_;
};

}  // namespace train::cli
