#include "cli/board/board_server.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "base/process/joined_thread.hpp"
#include "base/text/log.hpp"
#include "cli/board/board_loop.hpp"
#include "cli/board/other_users.hpp"

namespace train::cli {
namespace {

constexpr int kLowPriority = 10;
constexpr int kBacklog = 256;  // Connections that would wait for more than seconds are refused.
// Kernel send buffer of a connection, whose default grows to megabytes.
constexpr int kUnsent = 64 << 10;
constexpr int kUnread = 16 << 10;

Result<asio::ip::tcp::acceptor> listen(asio::io_context& context,
                                       const configs::BoardAddress& address,
                                       const BoardOptions& options) {
  const asio::ip::tcp::endpoint endpoint(asio::ip::make_address(address.host), address.port);
  asio::ip::tcp::acceptor acceptor(context);
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) {
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    boost::system::error_code ignored;  // Only sets limits; connections inherit them.
    acceptor.set_option(asio::socket_base::send_buffer_size(kUnsent), ignored);
    acceptor.set_option(asio::socket_base::receive_buffer_size(kUnread), ignored);
    acceptor.bind(endpoint, error);
  }
  if (!error) {
    acceptor.listen(kBacklog, error);
  }
  if (error) {
    return user_error(fmt::format("{} = \"{}\": {}; choose another, port 0 takes any free one",
                                  options.key, options.listen, error.message()));
  }
  return acceptor;
}

Result<std::optional<std::string>> token_of(const configs::BoardAddress& address,
                                            const BoardOptions& options) {
  if (options.token_file.empty()) {
    if (address.loopback) {
      return std::optional<std::string>();
    }
    return user_error(
        fmt::format("{} = \"{}\": others can reach this address; name a file with a token in {}",
                    options.key, options.listen, options.token_key));
  }
  auto token = TRAIN_TRY(read_board_token(options.token_file));
  return std::optional(std::move(token));
}

}  // namespace

class BoardServer::Loop {
 public:
  Loop(BoardRuns runs, BoardAccess access, const std::string& frame_ancestors)
      : loop_(std::move(runs), std::move(access), frame_ancestors) {}
  ~Loop() { loop_.context().stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  asio::io_context& context() { return loop_.context(); }
  void run(asio::ip::tcp::acceptor acceptor) {
    loop_.begin(std::move(acceptor));
    thread_ = JoinedThread([this] {
      // Applies to this thread only, on Linux: training has priority.
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowPriority);
      try {
        loop_.context().run();
      } catch (const std::exception& failure) {
        log_warning(fmt::format("board_over {}; training continues", failure.what()));
      }
    });
  }

 private:
  BoardLoop loop_;
  JoinedThread thread_;  // Declared last, as it uses the loop.
};

BoardServer::BoardServer(std::unique_ptr<Loop> loop, std::string url)
    : loop_(std::move(loop)), url_(std::move(url)) {}
BoardServer::~BoardServer() = default;

Result<std::unique_ptr<BoardServer>> BoardServer::start(const BoardOptions& options) {
  const auto address = TRAIN_TRY(parse_board_address(options.listen, options.key));
  const auto ancestors =
      TRAIN_TRY(parse_frame_ancestors(options.frame_ancestors, options.frame_key));
  auto token = TRAIN_TRY(token_of(address, options));
  auto runs = TRAIN_TRY(BoardRuns::open(options.root));
  const bool open = !token.has_value();
  auto loop = std::make_unique<Loop>(std::move(runs), BoardAccess(std::move(token)), ancestors);
  auto acceptor = TRAIN_TRY(listen(loop->context(), address, options));
  const auto endpoint = acceptor.local_endpoint();
  const std::string host = endpoint.address().is_v6()
                               ? fmt::format("[{}]", endpoint.address().to_string())
                               : endpoint.address().to_string();
  std::string url = fmt::format("http://{}:{}/", host, endpoint.port());
  if (open && other_people_here()) {
    log_warning(fmt::format(
        "board_open every user of this machine can read {}; name a file with a token in {} to "
        "keep it to yourself",
        url, options.token_key));
  }
  loop->run(std::move(acceptor));
  return std::unique_ptr<BoardServer>(new BoardServer(std::move(loop), std::move(url)));
}

}  // namespace train::cli
