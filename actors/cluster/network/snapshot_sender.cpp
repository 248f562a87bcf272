#include "actors/cluster/network/snapshot_sender.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "base/log.hpp"
#include "checkpoint/memory/snapshot_stream.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using checkpoint::MemorySnapshots;
using Clock = std::chrono::steady_clock;

constexpr auto kConnectTime = 2s;
constexpr auto kBetweenTries = 200ms;
constexpr auto kBetweenLooks = 10ms;  // for the next snapshot
constexpr auto kPatience = 5s;
constexpr int kMissesToSay = 3;

checkpoint::ByteSink sink_of(TlsStream& stream, std::chrono::milliseconds patience) {
  return [&stream, patience](std::span<const std::byte> bytes) {
    return stream.send(bytes, patience);
  };
}

}  // namespace

Result<std::unique_ptr<SnapshotSender>> SnapshotSender::start(const CredentialFiles& credentials,
                                                              Endpoint to, Memory memory) {
  auto context = TlsContext::load(credentials, TlsEnd::worker);
  if (!context) {
    return context.error();
  }
  return std::unique_ptr<SnapshotSender>(
      new SnapshotSender(std::move(context).value(), std::move(to), std::move(memory)));
}

SnapshotSender::SnapshotSender(TlsContext context, Endpoint to, Memory memory)
    : context_(std::move(context)), to_(std::move(to)), memory_(std::move(memory)) {
  thread_ = std::thread([this] { serve(); });
}

SnapshotSender::~SnapshotSender() {
  stopping_ = true;
  stop_.set();
  thread_.join();
}

void SnapshotSender::serve() {
  while (!stopping_) {
    TlsRefusal refusal;
    auto connection =
        connect_tls(to_, context_, Clock::now() + kConnectTime, refusal, stop_.descriptor());
    if (connection) {
      TlsStream stream(std::move(connection).value(), stop_.descriptor());
      follow(stream);
    }
    wait_ready(stop_.descriptor(), POLLIN, Clock::now() + kBetweenTries);
  }
}

/// Until the connection is lost.
void SnapshotSender::follow(TlsStream& stream) {
  const auto sink = [this, send = sink_of(stream, kPatience)](std::span<const std::byte> bytes) {
    return stopping_ ? Status(failure("stopped")) : send(bytes);
  };
  std::int64_t last = -1;
  Status good = checkpoint::send_layout(memory_->layout(), sink);
  while (good && !stopping_) {
    const auto steps = memory_->sealed_steps();
    if (steps.empty() || steps.front() == last) {
      good = stream.rest(kBetweenLooks);
      continue;
    }
    last = steps.front();
    const auto sent = checkpoint::send_snapshot(*memory_, last, sink);
    good = sent ? Status() : Status(sent.error());
    missed_ = sent && *sent ? 0 : missed_ + 1;
    if (missed_ == kMissesToSay) {
      log_warning(
          fmt::format("buddy_behind snapshots are written over before {} has them: a node that is "
                      "lost now costs the steps since the last checkpoint; raise "
                      "recovery.snapshot_interval_steps, or see to the network",
                      to_string(to_)));
    }
  }
}

Status send_once(const CredentialFiles& credentials, const Endpoint& to,
                 const MemorySnapshots& memory, std::int64_t step,
                 std::chrono::milliseconds patience) {
  const auto context = TlsContext::load(credentials, TlsEnd::worker);
  if (!context) {
    return context.error();
  }
  TlsRefusal refusal;
  auto connection = connect_tls(to, *context, Clock::now() + patience, refusal);
  if (!connection) {
    return failure(fmt::format("{}: {}", to_string(to), connection.error().message));
  }
  TlsStream stream(std::move(connection).value(), -1);
  const auto sink = sink_of(stream, patience);
  TRAIN_RETURN_IF_ERROR(checkpoint::send_layout(memory.layout(), sink));
  const auto sent = checkpoint::send_snapshot(memory, step, sink);
  if (!sent || !*sent) {
    return sent ? failure(fmt::format("no snapshot of step {}", step)) : sent.error();
  }
  return {};
}

}  // namespace train::actors
