#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace train::cli {

struct BoardOptions {
  std::filesystem::path root = {};  ///< Of a run, or of a folder of runs.
  std::string listen = "127.0.0.1:0";
  std::string token_file = {};             ///< Empty: none, which only a loopback address may.
  std::string key = "--listen";            ///< What the user calls `listen` ...
  std::string token_key = "--token-file";  ///< ... and `token_file`.
};

/// Shows runs to browsers and programs over HTTP, and only reads:
///
///   /                the page, with what it is made of
///   /runs.json       all runs, a line each
///   /status.json     ?run=NAME       what the run says of itself
///   /series.json     ?run=NAME       its numbers over the steps (series_json()), at most
///                    [&since=S&width=W | &from=S&to=S]    2,048 bins; from .. to is read anew
///   /events          ?run=NAME       server-sent events: `status`, `metrics` (there are new
///                                    numbers), `log` (a line of events.jsonl), as they come
///   /metrics         all runs in the OpenMetrics format
///
/// Bounds, so that nobody who can connect costs training anything: 256 connections, 192 of them of
/// one address, of which the one that is silent longest, or else reads slowest, makes room for a
/// new one; 8 KiB of header; no bodies; 10 s for a request and 15 s for its answer; 64 streams of
/// events; one reading of a range at a time; 32 MiB of answers that are not sent yet, beyond which
/// the slowest readers go and streams pass over to the newest state.
///
/// Without a token, it warns at the start if other people use the machine: they can read it all.
///
/// Threading: one thread of its own, of low priority. Errors there are logged; it goes on.
/// Ownership: stops when destroyed.
class BoardServer {
 public:
  /// Errors (user): an address that is not of this machine, a port that is taken, no token file on
  /// an address that others reach, and those of parse_board_address(), read_board_token() and
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
