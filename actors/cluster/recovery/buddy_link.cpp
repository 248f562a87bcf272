#include "actors/cluster/recovery/buddy_link.hpp"

#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "actors/cluster/network/peer_acceptor.hpp"
#include "base/text/log.hpp"
#include "checkpoint/memory/snapshot_stream.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using checkpoint::MemorySnapshots;
using checkpoint::SnapshotOutflow;
using Clock = std::chrono::steady_clock;

constexpr auto kConnectTime = 2s;
constexpr auto kBetweenLinkTries = 200ms;
constexpr auto kBetweenLooksAtSnapshots = 10ms;  // Interval of checks for the next snapshot, or for
                                                 // the result of one.
constexpr auto kLinkPatience = 5s;
constexpr auto kRestorePatience = 10s;  // Limit without progress.
constexpr int kMissesToSay = 3;

/// False: a rank has begun to overwrite it. Errors: those of send_all().
asio::awaitable<Result<bool>> send_snapshot(SecureStream& stream, const MemorySnapshots& memory,
                                            std::int64_t step, std::chrono::milliseconds patience) {
  SnapshotOutflow outflow(memory, step);
  while (const auto part = outflow.next()) {
    const Status sent = co_await send_all(stream, part->frame, patience, part->bytes);
    TRAIN_CO_RETURN_IF_ERROR(sent);
  }
  co_return outflow.complete();
}

/// Sends each sealed snapshot until the connection is lost.
asio::awaitable<void> send_sealed(SecureStream& stream, const MemorySnapshots& memory,
                                  const Endpoint& to) {
  std::int64_t last = -1;
  int missed = 0;  // Consecutive misses.
  for (;;) {
    const auto steps = memory.sealed_steps();
    if (steps.empty() || steps.front() == last) {
      if (!co_await rest(stream, kBetweenLooksAtSnapshots)) {
        co_return;
      }
      continue;
    }
    last = steps.front();
    const auto sent = co_await send_snapshot(stream, memory, last, kLinkPatience);
    if (!sent) {
      co_return;
    }
    missed = *sent ? 0 : missed + 1;
    if (missed == kMissesToSay) {
      log_warning(
          fmt::format("buddy_behind snapshots are written over before {} has them: a node that is "
                      "lost now costs the steps since the last checkpoint; raise "
                      "recovery.snapshot_interval_steps, or see to the network",
                      to_string(to)));
    }
  }
}

/// Opens a connection and sends the memory's layout. Errors: those of connect_securely() and
/// send_all().
asio::awaitable<Result<std::unique_ptr<SecureStream>>> begin_sending(
    const Endpoint& to, Identity identity, const MemorySnapshots& memory,
    std::chrono::milliseconds patience) {
  auto stream = co_await connect_securely(to, std::move(identity), Clock::now() + patience);
  if (!stream) {
    co_return failure(fmt::format("{}: {}", to_string(to), stream.error().message));
  }
  const auto layout = checkpoint::layout_frame(memory.layout());
  const Status begun = co_await send_all(**stream, layout, patience);
  co_return begun ? std::move(stream) : begun.error();
}

asio::awaitable<void> keep_sending(Identity identity, Endpoint to, run::SharedSnapshots memory) {
  for (;;) {
    if (const auto stream = co_await begin_sending(to, identity, *memory, kConnectTime)) {
      co_await send_sealed(**stream, *memory, to);
    }
    co_await pause(kBetweenLinkTries);
  }
}

}  // namespace

/// State of receiving, on the loop's thread.
struct SnapshotReceiver::Inflow {
  explicit Inflow(const EventLoop& own) : loop(own), arrival(own.context()) {}

  void admit(std::unique_ptr<SecureStream> stream) {
    arrived = std::move(stream);
    arrival.cancel();
    if (current) {
      boost::system::error_code ignored;
      current->next_layer().close(ignored);
    }
  }

  asio::awaitable<void> receive() {
    for (;;) {
      while (!arrived) {
        arrival.expires_at(asio::steady_timer::time_point::max());
        co_await arrival.async_wait(kUseTuple);
      }
      current = std::move(arrived);
      const std::shared_ptr<void> over(nullptr, [this](void*) { current.reset(); });
      co_await follow(*current);
    }
  }

  /// Runs until the connection is lost, is malformed, or is replaced.
  asio::awaitable<void> follow(SecureStream& stream) {
    checkpoint::SnapshotInflow inflow(*memory);
    checkpoint::FrameBytes frame;
    while (co_await receive_all(stream, frame)) {
      const auto position = inflow.take(frame);
      if (!position || !co_await receive_all(stream, *position)) {
        co_return;
      }
      ++frames;
    }
  }

  const EventLoop& loop;
  run::SharedSnapshots memory = {};  // Used on the receiver's thread while nothing is received.
  asio::steady_timer arrival;
  std::unique_ptr<SecureStream> arrived = {}, current = {};
  std::atomic<std::uint64_t> frames = 0;  // Number of frames received.
  std::optional<Task> receiving = {};     // Uses the members above,
  std::optional<Task> accepting = {};     // and so does this.
};

Result<std::unique_ptr<SnapshotReceiver>> SnapshotReceiver::open(const EventLoop& loop,
                                                                 const CredentialFiles& credentials,
                                                                 const std::string& interface) {
  const auto address = TRAIN_TRY(interface_address(interface));
  auto identity = TRAIN_TRY(load_identity(credentials, StreamEnd::head));
  auto listening = TRAIN_TRY(open_port(loop.context(), address, 0));
  const Endpoint endpoint{.host = address, .port = listening.local_endpoint().port()};
  auto inflow = std::make_shared<Inflow>(loop);
  inflow->accepting.emplace(
      loop, accept_peers(std::move(listening), std::move(identity),
                         [to = inflow.get()](auto stream) { to->admit(std::move(stream)); }));
  return std::unique_ptr<SnapshotReceiver>(new SnapshotReceiver(endpoint, std::move(inflow)));
}

void SnapshotReceiver::receive_into(const run::SharedSnapshots& memory) {
  inflow_->receiving.reset();
  inflow_->memory = memory;
  if (memory) {
    inflow_->receiving.emplace(inflow_->loop, inflow_->receive());
  }
}

Status SnapshotReceiver::wait_for(std::int64_t step, std::chrono::milliseconds patience) {
  const MemorySnapshots& memory = *inflow_->memory;
  std::optional<std::uint64_t> seen;
  auto deadline = Clock::now() + patience;
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kBetweenLooksAtSnapshots)) {
    if (const std::uint64_t frames = inflow_->frames; seen != frames) {
      if (memory.has_sealed(step) && run::has_step(memory.whole_steps(), step)) {
        return {};
      }
      seen = frames;
      deadline = Clock::now() + patience;
    }
  }
  return failure(memory.has_sealed(step) ? fmt::format("what came of step {} is damaged", step)
                                         : std::string("nothing came"));
}

std::shared_ptr<Task> start_sending(const EventLoop& loop, const Identity& identity,
                                    const Endpoint& to,
                                    std::shared_ptr<const MemorySnapshots> memory) {
  return std::make_shared<Task>(loop, keep_sending(identity, to, std::move(memory)));
}

Status send_once(const EventLoop& loop, const Identity& identity, const Endpoint& to,
                 const MemorySnapshots& memory, std::int64_t step,
                 std::chrono::milliseconds patience) {
  const auto send = [&]() -> asio::awaitable<Status> {
    const auto stream = co_await begin_sending(to, identity, memory, patience);
    TRAIN_CO_RETURN_IF_ERROR(stream);
    const auto sent = co_await send_snapshot(**stream, memory, step, patience);
    TRAIN_CO_RETURN_IF_ERROR(sent);
    co_return *sent ? Status() : failure(fmt::format("no snapshot of step {}", step));
  };
  return run_on(loop, send());
}

std::unique_ptr<BuddyLink> BuddyLink::open(const EventLoop& loop,
                                           const CredentialFiles& credentials,
                                           const run::RunPlan& plan) {
  if (!run::has_buddies(plan)) {
    return nullptr;
  }
  auto identity = load_identity(credentials, StreamEnd::worker);
  auto receiver = SnapshotReceiver::open(loop, credentials, plan.config.parallel.interface);
  if (!identity || !receiver) {
    log_warning(fmt::format("no_buddy {}; snapshots stay on this node alone",
                            (identity ? receiver.error() : identity.error()).message));
    return nullptr;
  }
  return std::unique_ptr<BuddyLink>(
      new BuddyLink(loop, std::move(identity).value(), std::move(receiver).value()));
}

Status BuddyLink::restore(const RestoreMemory& order, run::NodeMemory& memory) {
  memory.keep_only(order.step);
  if (order.take) {
    memory.discard_damaged();  // Otherwise it would count as newly received.
    receiver_->receive_into(memory.current());
  }
  if (!order.give_to.empty()) {
    const auto to = TRAIN_TRY(parse_endpoint(order.give_to));
    TRAIN_RETURN_IF_ERROR(
        send_once(loop_, identity_, to, *memory.buddy(), order.step, kRestorePatience));
  }
  if (order.take) {
    Status came = receiver_->wait_for(order.step, kRestorePatience);
    receiver_->receive_into(nullptr);
    return came;
  }
  return {};
}

void BuddyLink::keep(const std::string& buddy, const run::NodeMemory& memory) {
  receiver_->receive_into(memory.buddy());
  // Otherwise the next node has no room or no port, and has logged that.
  if (const auto to = parse_endpoint(buddy)) {
    sending_ = start_sending(loop_, identity_, *to, memory.current());
  }
}

}  // namespace train::actors
