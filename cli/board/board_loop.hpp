#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <list>
#include <string>

#include "cli/board/board_access.hpp"
#include "cli/board/board_request.hpp"
#include "cli/board/board_runs.hpp"
#include "cli/board/pace.hpp"

namespace train::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

/// What the server's thread does, as coroutines of one io_context.
///
/// Threading: all of it on the thread that runs context().
class BoardLoop {
 public:
  BoardLoop(BoardRuns runs, BoardAccess access)
      : runs_(std::move(runs)), access_(std::move(access)) {}

  [[nodiscard]] asio::io_context& context() { return context_; }
  /// Begins to accept on `acceptor`, and to look at the runs.
  void begin(asio::ip::tcp::acceptor acceptor);

  using Request = http::request<http::empty_body>;
  using Response = http::response<http::string_body>;

 private:
  struct Connection {
    explicit Connection(asio::ip::tcp::socket socket) : stream(std::move(socket)) {}
    beast::tcp_stream stream;
    bool silent = true;  ///< Between requests, or before the first.
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
  bool make_room();
  void look();

  /// The last answer of series.json: browsers that watch a run ask for the same, one by one.
  struct Series {
    std::string of;  ///< What was asked for, of which version of the numbers.
    std::string json;
  };
  Series series_;
  /// A flood waits in the system's queue or for its turn, not in the way of training: many more
  /// than a few dozen browsers and scrapers need.
  Pace connections_pace_{/*per_second=*/50, /*burst=*/150};
  Pace requests_pace_{/*per_second=*/100, /*burst=*/300};
  std::size_t event_streams_ = 0;
  bool reading_range_ = false;
  std::chrono::steady_clock::time_point looked_ = {}, asked_ = {};
  BoardRuns runs_;
  BoardAccess access_;
  asio::io_context context_{1};        // ends coroutines, which use what is above,
  std::list<Connection> connections_;  // and outlives these
  /// Never runs out: streams of events wait for it, and a look at the runs lets all of them go on.
  asio::steady_timer looked_again_{context_, asio::steady_timer::time_point::max()};
};

}  // namespace train::cli
