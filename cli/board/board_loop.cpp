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

#include "base/log.hpp"
#include "cli/board/board_news.hpp"

namespace train::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostConnections = 256;
constexpr std::size_t kMostEventStreams = 64;
constexpr std::size_t kLargestHeader = 8192;
constexpr auto kRequestTime = 10s;
constexpr auto kWriteTime = 15s;
constexpr auto kLookEvery = 500ms;
constexpr auto kAliveEvery = 10s;
constexpr auto kForgetAfter = 300s;

constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable);

asio::awaitable<void> pause(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(use_tuple);
}

asio::awaitable<void> await_turn(Pace& pace) {
  if (const auto wait = pace.take(Clock::now()); wait > Clock::duration::zero()) {
    co_await pause(std::chrono::ceil<std::chrono::milliseconds>(wait));
  }
}

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

BoardLoop::Response answer(const BoardLoop::Request& request, http::status status,
                           std::string_view type, std::string body) {
  BoardLoop::Response response(status, request.version());
  response.keep_alive(request.keep_alive());
  response.set(http::field::content_type,
               std::string(type) + (type.starts_with("text/") ? "; charset=utf-8" : ""));
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("X-Frame-Options", "DENY");
  response.set("Referrer-Policy", "no-referrer");
  response.set("Content-Security-Policy",
               "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
               "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'");
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

BoardLoop::Response sentence(const BoardLoop::Request& request, http::status status,
                             std::string_view text) {
  return answer(request, status, "text/plain", std::string(text) + "\n");
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

bool BoardLoop::make_room() {
  const auto silent = std::find_if(connections_.begin(), connections_.end(),
                                   [](const Connection& each) { return each.silent; });
  if (silent == connections_.end()) {
    return false;
  }
  silent->silent = false;  // it goes as soon as its coroutine hears of this
  silent->stream.close();
  connections_.splice(connections_.end(), connections_, silent);
  return true;
}

asio::awaitable<void> BoardLoop::accept(asio::ip::tcp::acceptor acceptor) {
  while (true) {
    auto [error, socket] = co_await acceptor.async_accept(use_tuple);
    if (error) {  // no descriptor is left, perhaps
      co_await pause(100ms);
      continue;
    }
    co_await await_turn(connections_pace_);
    if (connections_.size() >= kMostConnections && !make_room()) {
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

asio::awaitable<void> BoardLoop::look_again_and_again() {
  while (true) {
    co_await pause(kLookEvery);
    const auto idle = Clock::now() - asked_;
    if (event_streams_ > 0 || idle < kLookEvery * 4) {
      look();
    }
    for (const auto& run : runs_.all()) {
      if (run->metrics() == nullptr) {
        continue;
      }
      if (event_streams_ == 0 && idle > kForgetAfter) {
        run->forget_metrics();
        series_ = {};
      } else {
        co_await read_metrics(run);
      }
    }
    looked_again_.cancel();
  }
}

asio::awaitable<void> BoardLoop::read_metrics(std::shared_ptr<WatchedRun> run) {
  while (run->read_metrics()) {
    co_await asio::post(asio::use_awaitable);  // others have their turn between two pieces
  }
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
      co_await http::async_read_header(connection.stream, buffer, parser, use_tuple);
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
  if (response.result() == http::status::ok && response.body() == kEventStream) {
    const auto target = parse_board_target(view(request.target()));
    co_await send_events(connection, *target);
    co_return false;
  }
  const bool more = response.keep_alive() && !has_body(request);
  response.keep_alive(more);
  if (request.method() == http::verb::head) {
    response.body().clear();
  }
  connection.stream.expires_after(kWriteTime);
  const auto [unwritten, sent] = co_await http::async_write(connection.stream, response, use_tuple);
  connection.silent = true;
  co_return !unwritten && more;
}

asio::awaitable<BoardLoop::Response> BoardLoop::respond(const Request& request) {
  if (has_body(request)) {
    co_return sentence(request, http::status::payload_too_large, "a request here has no body");
  }
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Response response = sentence(request, http::status::method_not_allowed, "only GET and HEAD");
    response.set(http::field::allow, "GET, HEAD");
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
                         "open it by its address, with ?token=... once if it wants a token");
    case BoardAccess::Verdict::granted_by_query: {
      if (!is_board_path(target->path)) {
        break;
      }
      Response response = sentence(request, http::status::see_other, "");
      response.set(http::field::location, target->path);
      response.set(http::field::set_cookie, access_.cookie(view(request[http::field::host])));
      co_return response;
    }
    case BoardAccess::Verdict::granted:
      break;
  }
  if (const BoardFile* file = find_board_file(target->path)) {
    co_return answer(request, http::status::ok, file->type, std::string(file->content));
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
  if (event_streams_ == kMostEventStreams) {
    co_return sentence(request, http::status::service_unavailable, "too many streams of events");
  }
  co_return answer(request, http::status::ok, "text/event-stream", std::string(kEventStream));
}

asio::awaitable<BoardLoop::Response> BoardLoop::respond_series(const Request& request,
                                                               const BoardTarget& target,
                                                               std::shared_ptr<WatchedRun> run) {
  constexpr std::string_view kJson = "application/json";
  const auto from = target.integer("from");
  const auto to = target.integer("to");
  if (!from || !to) {
    co_await read_metrics(run);
    const SeriesRequest since = {.since = target.integer("since").value_or(0),
                                 .since_width = target.integer("width").value_or(0)};
    const RunMetrics& metrics = *run->metrics();
    if (const std::string of = fmt::format("{} {} {} {}", metrics.version(), since.since,
                                           since.since_width, run->directory().path().string());
        of != series_.of) {
      const std::string more = fmt::format(",\"damaged_lines\":{}", metrics.damaged_lines());
      series_ = {.of = of, .json = series_json(metrics.history(), since, more)};
    }
    co_return answer(request, http::status::ok, kJson, series_.json);
  }
  if (reading_range_) {
    Response busy = sentence(request, http::status::service_unavailable, "another range is read");
    busy.set(http::field::retry_after, "1");
    co_return busy;
  }
  reading_range_ = true;
  RunMetrics metrics(run->directory(), {.from = *from, .to = *to});
  while (metrics.read_on()) {
    co_await asio::post(asio::use_awaitable);
  }
  reading_range_ = false;
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
  std::string text(kHeader);
  auto sent_at = Clock::now();
  while (true) {
    const auto run = runs_.find(target.text("run"));
    text += run ? news.of(*run) : BoardNews::gone();
    if (text.empty() && Clock::now() - sent_at > kAliveEvery) {
      text = ": alive\n\n";
    }
    if (!text.empty()) {
      connection.stream.expires_after(kWriteTime);
      const auto [unwritten, bytes] =
          co_await asio::async_write(connection.stream, asio::buffer(text), use_tuple);
      if (unwritten || !run) {
        co_return;
      }
      sent_at = Clock::now();
      text.clear();
    }
    co_await looked_again_.async_wait(use_tuple);
  }
}

}  // namespace train::cli
