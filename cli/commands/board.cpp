#include <condition_variable>
#include <mutex>

#include "base/process/stop_signals.hpp"
#include "cli/board/board_server.hpp"
#include "cli/command.hpp"

namespace train::cli {
namespace {

Status show_board(const BoardCommandOptions& options) {
  const auto server = TRAIN_TRY(BoardServer::start({.root = options.directory,
                                                    .listen = options.listen,
                                                    .token_file = options.token_file,
                                                    .frame_ancestors = options.frame_ancestors}));
  std::mutex mutex;
  std::condition_variable stopped;
  bool stop = false;
  const SignalListener signals([&](int /*signal*/) {
    const std::lock_guard lock(mutex);
    stop = true;
    stopped.notify_one();
  });
  print(fmt::format("{}\n", server->url()));
  std::unique_lock lock(mutex);
  stopped.wait(lock, [&stop] { return stop; });
  return {};
}

}  // namespace

void describe_board(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "board", "Show running and finished runs in a browser until Ctrl-C; only reads files.");
  BoardCommandOptions& options = command.runs(show_board);
  command.app
      .add_option("directory", options.directory,
                  "Directory of a run, or of several, for example runs/")
      ->required()
      ->type_name("DIRECTORY");
  command
      .text("--listen", options.listen, "Address and port; port 0: any free port", "ADDRESS:PORT")
      ->capture_default_str();
  command.text("--token-file", options.token_file,
               "File whose first line is the access token; required unless the address is a "
               "loopback address",
               "FILE");
  command.text("--frame-ancestors", options.frame_ancestors,
               "Pages that may show the board in a frame, by their origins, for example "
               "\"http://localhost:* https://hub.example.org\"; without it none may",
               "ORIGINS");
}

}  // namespace train::cli
