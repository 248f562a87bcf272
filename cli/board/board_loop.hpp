#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/span_body.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "cli/board/board_access.hpp"
#include "cli/board/board_request.hpp"
#include "cli/board/board_runs.hpp"
#include "cli/board/pace.hpp"
#include "cli/board/send_budget.hpp"

namespace train::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

/// Event loop of the server's thread, as coroutines of one io_context.
///
/// Threading: everything on the thread that runs context().
class BoardLoop {
 public:
  /// `frame_ancestors`: see parse_frame_ancestors().
  BoardLoop(BoardRuns runs, BoardAccess access, const std::string& frame_ancestors);

  [[nodiscard]] asio::io_context& context() { return context_; }
  /// Starts to accept on `acceptor`, and to watch the runs.
  void begin(asio::ip::tcp::acceptor acceptor);

  using Request = http::request<http::empty_body>;
  /// Body of a response, which several connections may share.
  struct Body {
    std::string text;
    std::optional<SendBudget::Claim> claim = {};  ///< Empty for a small body.
  };
  struct Response {
    http::response<http::span_body<const char>> message;
    std::shared_ptr<Body> body = {};  ///< Owns the message's bytes; null: they belong to the
                                      ///< program.
    bool events = false;              ///< Starts a stream of a run's events instead.
  };

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Connection {
    explicit Connection(asio::ip::tcp::socket socket);
    beast::tcp_stream stream;
    asio::ip::address peer;
    bool silent = true;              ///< Waiting for a request.
    bool leaving = false;            ///< To be closed as soon as its coroutine notices.
    std::optional<Time> sends = {};  ///< Time since which a response is being sent.
  };

  asio::awaitable<void> accept(asio::ip::tcp::acceptor acceptor);
  asio::awaitable<void> look_again_and_again();
  asio::awaitable<void> read_metrics(std::shared_ptr<WatchedRun> run);
  asio::awaitable<void> serve(std::list<Connection>::iterator connection);
  asio::awaitable<bool> serve_one(Connection& connection, beast::flat_buffer& buffer);
  asio::awaitable<void> send_events(Connection& connection, const BoardTarget& target);
  asio::awaitable<Response> respond(const Request& request);
  asio::awaitable<Response> respond_of_runs(const Request& request, const BoardTarget& target);
  asio::awaitable<Response> respond_series(const Request& request, const BoardTarget& target,
                                           std::shared_ptr<WatchedRun> run);
  asio::awaitable<bool> afford(Body& body);
  void set_policy(Response& response) const;
  bool make_room(const asio::ip::address* peer);
  bool drop(const asio::ip::address* peer, bool slow);
  void look();
  asio::awaitable<void> look_in_turns();

  /// Last response to series.json: browsers that watch a run request the same, one by one.
  struct Series {
    std::string of;  ///< Request, and version of the data.
    std::shared_ptr<Body> json;
  };
  SendBudget unsent_{std::size_t{32} << 20U};  // Outlives its claims.
  Series series_;
  /// Limits floods, which wait in the system's queue or for their turn instead of slowing training;
  /// far above the needs of a few dozen browsers and scrapers.
  Pace connections_pace_{/*per_second=*/50, /*burst=*/150};
  Pace requests_pace_{/*per_second=*/100, /*burst=*/300};
  std::size_t event_streams_ = 0;
  bool reading_range_ = false;
  bool affording_ = false;  ///< A response waits for its budget.
  Time looked_ = {}, asked_ = {};
  BoardRuns runs_;
  BoardAccess access_;
  bool framed_;                  ///< Some pages may show the board in a frame.
  std::string policy_;           ///< Content-Security-Policy of every response.
  asio::io_context context_{1};  // Destroying it ends coroutines, which use the members above,
  std::list<Connection> connections_;  // but these must outlive it.
  /// Never expires: event streams wait on it, and every look at the runs wakes all of them.
  asio::steady_timer looked_again_{context_, asio::steady_timer::time_point::max()};
};

}  // namespace train::cli
