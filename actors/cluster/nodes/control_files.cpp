#include "actors/cluster/nodes/control_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>
#include <system_error>
#include <thread>

#include "base/text/log.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/private_directory.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 4096;
constexpr std::chrono::milliseconds kBetweenLooksAtFiles{50};

struct ControlNote {
  std::string word;  ///< Kind of record, one line.
  std::string start;
  std::uint32_t number = 0;  ///< The generation, or the record's value.
};

Status write_note(const fs::path& file, const ControlNote& note) {
  return storage::write_private_file(
      file, fmt::format("{}\n{}\n{}\n", note.word, note.start, note.number));
}

Result<ControlNote> read_note(const fs::path& file) {
  const auto text = TRAIN_TRY(storage::read_file(file, kMostBytes));
  std::istringstream lines(text);
  ControlNote note;
  const bool whole = std::getline(lines, note.word) && std::getline(lines, note.start) &&
                     lines >> note.number && lines.get() == '\n';
  return whole ? Result(note) : failure(fmt::format("{}: not complete", file.string()));
}

fs::path exit_record_file(const fs::path& root) { return control_directory(root) / "ended"; }

}  // namespace

fs::path control_directory(const fs::path& root) { return root / "control"; }
fs::path endpoint_file(const fs::path& root) { return control_directory(root) / "endpoint"; }

Status write_endpoint(const fs::path& file, const Endpoint& endpoint, const std::string& start) {
  return write_note(file, {to_string(endpoint), start, endpoint.generation});
}

void forget_endpoint(const fs::path& file) { ::unlink(file.c_str()); }

Result<Endpoint> find_head(const run::NodePosition& position, std::uint32_t from,
                           const fs::path& file, std::chrono::milliseconds timeout,
                           const std::function<bool()>& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto note = read_note(file);
    auto endpoint = note ? parse_endpoint(note->word) : Result<Endpoint>(note.error());
    if (endpoint && note->start == position.start && note->number >= from) {
      endpoint->generation = note->number;
      return endpoint;
    }
    if (std::chrono::steady_clock::now() >= deadline || (give_up && give_up())) {
      return failure(
          fmt::format("the head wrote no endpoint to {} within {} s ({}); is node 0 up, and is the "
                      "run directory on a file system that all nodes share?",
                      file.string(), timeout.count() / 1000,
                      endpoint ? "it belongs to another start" : endpoint.error().message));
    }
    std::this_thread::sleep_for(kBetweenLooksAtFiles);
  }
}

void forget_exit_record(const fs::path& root) { ::unlink(exit_record_file(root).c_str()); }

void leave_exit_record(const fs::path& root, const std::string& start, int exit_code) {
  std::error_code error;
  if (!fs::exists(root / "config.toml", error)) {
    return;  // No run has begun.
  }
  Status left = storage::make_private_directory(control_directory(root));
  if (left) {
    left = write_note(exit_record_file(root),
                      {"exit code", start, static_cast<std::uint32_t>(exit_code)});
  }
  if (!left) {
    log_warning(fmt::format("no_word_to_other_nodes {}", left.error().message));
  }
}

std::optional<int> exit_record(const fs::path& root, const std::string& start) {
  const auto note = read_note(exit_record_file(root));
  return note && note->start == start ? std::optional(static_cast<int>(note->number))
                                      : std::nullopt;
}

}  // namespace train::actors
