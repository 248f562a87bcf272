#include "cli/board/board_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <exception>
#include <utility>

#include "base/text/log.hpp"
#include "cli/board/board_news.hpp"

namespace train::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostConnections = 256;
constexpr std::size_t kMostOfOnePeer = 192;
constexpr std::size_t kMostEventStreams = 64;
constexpr std::size_t kSmallBody = 8192;  // Not budgeted: 2 MiB for all connections together.
constexpr int kPiecesPerLook = 8;
constexpr std::string_view kTooMuchUnsent = "too much is not sent yet";
constexpr std::size_t kLargestHeader = 8192;
constexpr auto kRequestTime = 10s;
constexpr auto kWriteTime = 15s;
constexpr auto kSlow = 1s;  // Slower readers may be dropped for others.
constexpr auto kLookEvery = 500ms;
constexpr auto kAliveEvery = 10s;
constexpr auto kForgetAfter = 300s;

constexpr auto kUseTuple = asio::as_tuple(asio::use_awaitable);

asio::awaitable<void> pause(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kUseTuple);
}

asio::awaitable<void> await_turn(Pace& pace) {
  if (const auto wait = pace.take(Clock::now()); wait > Clock::duration::zero()) {
    co_await pause(std::chrono::ceil<std::chrono::milliseconds>(wait));
  }
}

/// Sets `what` to false when its scope ends in any way.
struct Reset {
  bool& what;
  ~Reset() { what = false; }
};

void log_failure(const std::exception_ptr& failed) {
  if (!failed) {
    return;
  }
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& failure) {
    log_warning(fmt::format("board_failed {}", failure.what()));
  }
}

/// Response whose bytes are owned elsewhere.
BoardLoop::Response answer_of(const BoardLoop::Request& request, http::status status,
                              std::string_view type, std::string_view bytes) {
  BoardLoop::Response response{.message = {status, request.version()}};
  auto& message = response.message;
  message.keep_alive(request.keep_alive());
  message.set(http::field::content_type,
              std::string(type) + (type.starts_with("text/") ? "; charset=utf-8" : ""));
  message.set(http::field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  message.set("Referrer-Policy", "no-referrer");
  message.body() = {bytes.data(), bytes.size()};
  message.prepare_payload();
  return response;
}

BoardLoop::Response answer(const BoardLoop::Request& request, http::status status,
                           std::string_view type, std::shared_ptr<BoardLoop::Body> body) {
  BoardLoop::Response response = answer_of(request, status, type, body->text);
  response.body = std::move(body);
  return response;
}

BoardLoop::Response answer(const BoardLoop::Request& request, http::status status,
                           std::string_view type, std::string text) {
  return answer(request, status, type,
                std::make_shared<BoardLoop::Body>(BoardLoop::Body{.text = std::move(text)}));
}

BoardLoop::Response sentence(const BoardLoop::Request& request, http::status status,
                             std::string_view text) {
  return answer(request, status, "text/plain", std::string(text) + "\n");
}

BoardLoop::Response busy(const BoardLoop::Request& request, std::string_view text) {
  BoardLoop::Response response = sentence(request, http::status::service_unavailable, text);
  response.message.set(http::field::retry_after, "1");
  return response;
}

std::string_view view(const boost::string_view& text) { return {text.data(), text.size()}; }

bool has_body(const BoardLoop::Request& request) {
  const auto length = request.find(http::field::content_length);
  return request.chunked() || (length != request.end() && length->value() != "0");
}

}  // namespace

void BoardLoop::begin(asio::ip::tcp::acceptor acceptor) {
  asio::co_spawn(context_, accept(std::move(acceptor)), log_failure);
  asio::co_spawn(context_, look_again_and_again(), log_failure);
}

BoardLoop::Connection::Connection(asio::ip::tcp::socket socket) : stream(std::move(socket)) {
  boost::system::error_code gone;
  peer = stream.socket().remote_endpoint(gone).address();
}

/// Closes the connection (of `peer`, if given) that has been silent or slow for longest. Returns
/// false if there is none.
bool BoardLoop::drop(const asio::ip::address* peer, bool slow) {
  const auto now = Clock::now();
  auto worst = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end(); ++each) {
    if (each->leaving || (peer != nullptr && each->peer != *peer)) {
      continue;
    }
    if (slow ? each->sends && now - *each->sends > kSlow &&
                   (worst == connections_.end() || *each->sends < *worst->sends)
             : each->silent && worst == connections_.end()) {
      worst = each;
    }
  }
  if (worst == connections_.end()) {
    return false;
  }
  worst->leaving = true;
  worst->stream.close();
  return true;
}

/// Needed if the limit of connections, in total or for this peer, is reached.
bool BoardLoop::make_room(const asio::ip::address* peer) {
  const auto here =
      std::count_if(connections_.begin(), connections_.end(), [peer](const Connection& each) {
        return !each.leaving && (peer == nullptr || each.peer == *peer);
      });
  const std::size_t most = peer == nullptr ? kMostConnections : kMostOfOnePeer;
  return static_cast<std::size_t>(here) < most || drop(peer, false) || drop(peer, true);
}

asio::awaitable<void> BoardLoop::accept(asio::ip::tcp::acceptor acceptor) {
  while (true) {
    auto [error, socket] = co_await acceptor.async_accept(kUseTuple);
    if (error) {  // Possibly out of descriptors.
      co_await pause(100ms);
      continue;
    }
    co_await await_turn(connections_pace_);
    boost::system::error_code gone;
    const asio::ip::address peer = socket.remote_endpoint(gone).address();
    if (gone || !make_room(&peer) || !make_room(nullptr)) {
      continue;
    }
    const auto connection = connections_.emplace(connections_.end(), std::move(socket));
    asio::co_spawn(context_, serve(connection),
                   [this, connection](const std::exception_ptr& failed) {
                     connections_.erase(connection);
                     log_failure(failed);
                   });
  }
}

void BoardLoop::look() {
  looked_ = Clock::now();
  runs_.look(surroundings_now());
}

/// Yields to other work between two runs.
asio::awaitable<void> BoardLoop::look_in_turns() {
  looked_ = Clock::now();
  runs_.look_at_folder();
  for (const auto& run : runs_.all()) {
    run->look(surroundings_now());
    co_await asio::post(asio::use_awaitable);
  }
}

asio::awaitable<void> BoardLoop::look_again_and_again() {
  while (true) {
    co_await pause(kLookEvery);
    const auto idle = Clock::now() - asked_;
    if (event_streams_ > 0 || idle < kLookEvery * 4) {
      co_await look_in_turns();
    }
    for (const auto& run : runs_.all()) {
      if (run->metrics() == nullptr) {
        continue;
      }
      if (event_streams_ == 0 && idle > kForgetAfter) {
        run->forget_metrics();
        series_ = {};
        continue;
      }
      for (int piece = 0; piece < kPiecesPerLook && run->read_metrics(); ++piece) {
        co_await asio::post(asio::use_awaitable);
      }
    }
    looked_again_.cancel();
  }
}

asio::awaitable<void> BoardLoop::read_metrics(std::shared_ptr<WatchedRun> run) {
  while (run->read_metrics()) {
    co_await asio::post(asio::use_awaitable);  // Yields to other work between two pieces.
  }
}

BoardLoop::BoardLoop(BoardRuns runs, BoardAccess access, const std::string& frame_ancestors)
    : runs_(std::move(runs)),
      access_(std::move(access)),
      framed_(!frame_ancestors.empty()),
      policy_(
          "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
          "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors " +
          (framed_ ? frame_ancestors : "'none'")) {}

/// Sets what a browser may do with the response, and whose pages may show it in a frame.
void BoardLoop::set_policy(Response& response) const {
  if (!framed_) {
    response.message.set("X-Frame-Options", "DENY");  // This header cannot name origins.
  }
  response.message.set("Content-Security-Policy", policy_);
}

asio::awaitable<void> BoardLoop::serve(std::list<Connection>::iterator connection) {
  beast::flat_buffer buffer(kLargestHeader);
  while (co_await serve_one(*connection, buffer)) {
  }
  beast::error_code ignored;
  connection->stream.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

asio::awaitable<bool> BoardLoop::serve_one(Connection& connection, beast::flat_buffer& buffer) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kLargestHeader);
  connection.stream.expires_after(kRequestTime);
  const auto [unread, bytes] =
      co_await http::async_read_header(connection.stream, buffer, parser, kUseTuple);
  if (unread) {
    co_return false;
  }
  connection.silent = false;
  co_await await_turn(requests_pace_);
  const Request request = parser.release();
  asked_ = Clock::now();
  if (asked_ - looked_ > 2 * kLookEvery) {
    look();
  }
  Response response = co_await respond(request);
  if (response.events) {
    const auto target = parse_board_target(view(request.target()));
    co_await send_events(connection, *target);
    co_return false;
  }
  if (response.body && !co_await afford(*response.body)) {
    response = busy(request, kTooMuchUnsent);
  }
  set_policy(response);
  auto& message = response.message;
  const bool more = message.keep_alive() && !has_body(request);
  message.keep_alive(more);
  if (request.method() == http::verb::head) {
    message.body() = {};
  }
  connection.stream.expires_after(kWriteTime);
  connection.sends = Clock::now();
  const auto [unwritten, sent] = co_await http::async_write(connection.stream, message, kUseTuple);
  connection.sends.reset();
  connection.silent = true;
  co_return !unwritten && more;
}

/// Waits until `body` fits in the budget of unsent bytes. False: other connections hold too much,
/// and none is slow.
asio::awaitable<bool> BoardLoop::afford(Body& body) {
  const std::size_t bytes = body.text.size();
  if (bytes <= kSmallBody || body.claim) {
    co_return true;
  }
  if (affording_) {
    co_return false;  // The waiting response is not counted: it is at most one.
  }
  affording_ = true;
  const Reset done{affording_};
  while (!(body.claim = unsent_.claim(bytes))) {
    if (std::exchange(series_, {}).json) {
      continue;
    }
    if (!drop(nullptr, true)) {
      co_return false;
    }
    // Until the coroutine has released it.
    const std::size_t before = unsent_.used_bytes();
    for (int wait = 0; wait < 100 && unsent_.used_bytes() >= before; ++wait) {
      co_await pause(1ms);
    }
  }
  co_return true;
}

asio::awaitable<BoardLoop::Response> BoardLoop::respond(const Request& request) {
  if (has_body(request)) {
    co_return sentence(request, http::status::payload_too_large, "a request here has no body");
  }
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Response response = sentence(request, http::status::method_not_allowed, "only GET and HEAD");
    response.message.set(http::field::allow, "GET, HEAD");
    co_return response;
  }
  const auto target = parse_board_target(view(request.target()));
  if (!target) {
    co_return sentence(request, http::status::bad_request, "not a path of this server");
  }
  switch (access_.judge({.host = view(request[http::field::host]),
                         .authorization = view(request[http::field::authorization]),
                         .cookie = view(request[http::field::cookie]),
                         .query_token = target->text("token")})) {
    case BoardAccess::Verdict::refused:
      co_return sentence(request, http::status::forbidden,
                         "open it by its address, with ?token=... once if it needs a token");
    case BoardAccess::Verdict::granted_by_query: {
      if (!is_board_path(target->path)) {
        break;
      }
      Response response = sentence(request, http::status::see_other, "");
      response.message.set(http::field::location, target->path);
      response.message.set(http::field::set_cookie,
                           access_.cookie(view(request[http::field::host])));
      co_return response;
    }
    case BoardAccess::Verdict::granted:
      break;
  }
  if (const BoardFile* file = find_board_file(target->path)) {
    co_return answer_of(request, http::status::ok, file->type, file->content);
  }
  co_return co_await respond_of_runs(request, *target);
}

asio::awaitable<BoardLoop::Response> BoardLoop::respond_of_runs(const Request& request,
                                                                const BoardTarget& target) {
  constexpr std::string_view kJson = "application/json";
  if (target.path == "/runs.json") {
    co_return answer(request, http::status::ok, kJson, runs_.json());
  }
  if (target.path == "/metrics") {
    co_return answer(request, http::status::ok,
                     "application/openmetrics-text; version=1.0.0; charset=utf-8",
                     runs_.open_metrics());
  }
  if (!is_board_path(target.path)) {
    co_return sentence(request, http::status::not_found, "nothing of this name is here");
  }
  const auto run = runs_.find(target.text("run"));
  if (!run) {
    co_return sentence(request, http::status::not_found,
                       "no such run; /runs.json has their names, ?run=NAME chooses one");
  }
  if (target.path == "/status.json") {
    co_return answer(request, http::status::ok, kJson, run->status_json());
  }
  if (target.path == "/series.json") {
    co_return co_await respond_series(request, target, run);
  }
  if (target.path == "/experts.json") {
    co_await read_metrics(run);
    co_return answer(request, http::status::ok, kJson,
                     expert_loads_json(run->metrics()->experts(), target.integer("step")));
  }
  if (event_streams_ == kMostEventStreams) {
    co_return sentence(request, http::status::service_unavailable, "too many streams of events");
  }
  co_return Response{.message = {}, .events = true};
}

asio::awaitable<BoardLoop::Response> BoardLoop::respond_series(const Request& request,
                                                               const BoardTarget& target,
                                                               std::shared_ptr<WatchedRun> run) {
  constexpr std::string_view kJson = "application/json";
  const auto from = target.integer("from");
  const auto to = target.integer("to");
  if (!from || !to) {
    co_await read_metrics(run);
    const RunMetrics& metrics = *run->metrics();
    const bool known = target.integer("reading").value_or(metrics.reading()) == metrics.reading();
    const SeriesRequest since = {.since = known ? target.integer("since").value_or(0) : 0,
                                 .since_width = known ? target.integer("width").value_or(0) : 0};
    if (const std::string of =
            fmt::format("{} {} {} {} {}", metrics.reading(), metrics.version(), since.since,
                        since.since_width, run->directory().path().string());
        of != series_.of) {
      if (affording_) {
        co_return busy(request, kTooMuchUnsent);
      }
      const std::string more =
          fmt::format(",\"damaged_lines\":{},\"expert_steps\":{},\"reading\":{}",
                      metrics.damaged_lines(), metrics.experts().steps().size(), metrics.reading());
      auto body = std::make_shared<Body>(Body{.text = series_json(metrics.history(), since, more)});
      if (!co_await afford(*body)) {
        co_return busy(request, kTooMuchUnsent);
      }
      series_ = {.of = of, .json = std::move(body)};
    }
    co_return answer(request, http::status::ok, kJson, series_.json);
  }
  if (reading_range_) {
    co_return busy(request, "another range is read");
  }
  reading_range_ = true;
  const Reset done{reading_range_};
  RunMetrics metrics(run->directory(), {.from = *from, .to = *to});
  while (metrics.read_on()) {
    co_await asio::post(asio::use_awaitable);
  }
  co_return answer(request, http::status::ok, kJson, series_json(metrics.history(), {}, ""));
}

asio::awaitable<void> BoardLoop::send_events(Connection& connection, const BoardTarget& target) {
  constexpr std::string_view kHeader =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
  ++event_streams_;
  const struct Leave {
    std::size_t& streams;
    ~Leave() { --streams; }
  } leave{event_streams_};
  BoardNews news;
  bool begun = false;
  Body body{.text = std::string(kHeader)};
  auto sent_at = Clock::now();
  while (true) {
    const auto run = runs_.find(target.text("run"));
    BoardNews told = news;
    body.text += run ? told.of(*run) : BoardNews::gone();
    if (body.text.empty() && Clock::now() - sent_at > kAliveEvery) {
      body.text = ": alive\n\n";
    }
    // If over budget now, the next look sends the state of that time.
    if (!body.text.empty() && co_await afford(body)) {
      news = told;
      connection.stream.expires_after(kWriteTime);
      connection.sends = Clock::now();
      const auto [unwritten, bytes] =
          co_await asio::async_write(connection.stream, asio::buffer(body.text), kUseTuple);
      connection.sends.reset();
      if (unwritten || !run) {
        co_return;
      }
      begun = true;
      sent_at = Clock::now();
    }
    body = {.text = begun ? std::string() : std::string(kHeader)};
    co_await looked_again_.async_wait(kUseTuple);
  }
}

}  // namespace train::cli
