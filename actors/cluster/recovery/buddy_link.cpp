#include "actors/cluster/recovery/buddy_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/cluster/network/peer_acceptor.hpp"
#include "base/log.hpp"
#include "checkpoint/memory/snapshot_stream.hpp"

namespace train::actors {
namespace {

bool whole_step(const checkpoint::MemorySnapshots& memory, std::int64_t step) {
  const auto steps = memory.whole_steps();
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

using namespace std::chrono_literals;
using checkpoint::MemorySnapshots;
using checkpoint::SnapshotOutflow;
using Clock = std::chrono::steady_clock;
using Memory = std::shared_ptr<const MemorySnapshots>;

constexpr auto kConnectTime = 2s;
constexpr auto kBetweenTries = 200ms;
constexpr auto kBetweenLooks = 10ms;  // for the next snapshot
constexpr auto kPatience = 5s;
constexpr auto kRestorePatience = 10s;  // while nothing moves
constexpr int kMissesToSay = 3;

void without_buddy(const Error& error) {
  log_warning(fmt::format("no_buddy {}; snapshots stay on this node alone", error.message));
}

/// False: a rank has begun to write over it. Errors: send_all()'s.
asio::awaitable<Result<bool>> send_snapshot(SecureStream& stream, const MemorySnapshots& memory,
                                            std::int64_t step, std::chrono::milliseconds patience) {
  SnapshotOutflow outflow(memory, step);
  while (const auto part = outflow.next()) {
    Status sent = co_await send_all(stream, part->frame, patience);
    if (sent && !part->bytes.empty()) {
      sent = co_await send_all(stream, part->bytes, patience);
    }
    if (!sent) {
      co_return sent.error();
    }
  }
  co_return outflow.complete();
}

/// Each that is sealed, until the connection is lost.
asio::awaitable<void> send_sealed(SecureStream& stream, const MemorySnapshots& memory,
                                  const Endpoint& to) {
  std::int64_t last = -1;
  int missed = 0;  // in a row
  const auto layout = checkpoint::layout_frame(memory.layout());
  Status good = co_await send_all(stream, layout, kPatience);
  while (good) {
    const auto steps = memory.sealed_steps();
    if (steps.empty() || steps.front() == last) {
      if (!co_await rest(stream, kBetweenLooks)) {
        co_return;
      }
      continue;
    }
    last = steps.front();
    const auto sent = co_await send_snapshot(stream, memory, last, kPatience);
    good = sent ? Status() : Status(sent.error());
    missed = sent && *sent ? 0 : missed + 1;
    if (missed == kMissesToSay) {
      log_warning(
          fmt::format("buddy_behind snapshots are written over before {} has them: a node that is "
                      "lost now costs the steps since the last checkpoint; raise "
                      "recovery.snapshot_interval_steps, or see to the network",
                      to_string(to)));
    }
  }
}

asio::awaitable<void> keep_sending(Identity identity, Endpoint to, Memory memory) {
  for (;;) {
    const auto connected = co_await connect_securely(to, identity, Clock::now() + kConnectTime);
    if (connected.stream) {
      co_await send_sealed(*connected.stream, *memory, to);
    }
    co_await pause(kBetweenTries);
  }
}

asio::awaitable<Status> connect_and_send(const Endpoint& to, Identity identity,
                                         const MemorySnapshots& memory, std::int64_t step,
                                         std::chrono::milliseconds patience) {
  const auto connected = co_await connect_securely(to, identity, Clock::now() + patience);
  if (!connected.stream) {
    co_return failure(fmt::format("{}: {}", to_string(to), connected.why));
  }
  SecureStream& stream = *connected.stream;
  const auto layout = checkpoint::layout_frame(memory.layout());
  if (const Status begun = co_await send_all(stream, layout, patience); !begun) {
    co_return begun.error();
  }
  const auto sent = co_await send_snapshot(stream, memory, step, patience);
  if (!sent) {
    co_return sent.error();
  }
  co_return *sent ? Status() : Status(failure(fmt::format("no snapshot of step {}", step)));
}

}  // namespace

/// What comes, on the loop's thread.
class SnapshotReceiver::Inflow {
 public:
  explicit Inflow(const EventLoop& loop) : loop_(loop), arrival_(loop.context()) {}

  void listen(tcp::acceptor port, Identity identity) {
    acceptor_.emplace(loop_, std::move(port), std::move(identity),
                      [this](std::unique_ptr<SecureStream> stream) { admit(std::move(stream)); });
  }

  void receive_into(const Memory& memory) {
    receiving_.reset();
    memory_ = memory;
    if (memory) {
      receiving_.emplace(loop_, receive(memory));
    }
  }

  Status wait_for(std::int64_t step, std::chrono::milliseconds patience) {
    const MemorySnapshots& memory = *memory_;
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::uint64_t before = frames_;
      const bool sealed = memory.has_sealed(step);
      if (sealed) {
        lock.unlock();  // the bytes are many
        if (whole_step(memory, step)) {
          return {};
        }
        lock.lock();
      }
      if (!came_.wait_for(lock, patience, [&] { return frames_ != before; })) {
        return failure(sealed ? fmt::format("what came of step {} is damaged", step)
                              : std::string("nothing came"));
      }
    }
  }

 private:
  void admit(std::unique_ptr<SecureStream> stream) {
    arrived_ = std::move(stream);
    arrival_.cancel();
    if (current_) {
      boost::system::error_code ignored;
      current_->next_layer().close(ignored);
    }
  }

  asio::awaitable<void> receive(Memory memory) {
    for (;;) {
      while (!arrived_) {
        arrival_.expires_at(asio::steady_timer::time_point::max());
        co_await arrival_.async_wait(use_tuple);
      }
      current_ = std::move(arrived_);
      const std::shared_ptr<void> over(nullptr, [this](void*) { current_.reset(); });
      co_await follow(*current_, *memory);
    }
  }

  /// Until it is lost, talks nonsense, or another one comes.
  asio::awaitable<void> follow(SecureStream& stream, const MemorySnapshots& memory) {
    checkpoint::SnapshotInflow inflow(memory);
    checkpoint::FrameBytes frame;
    while (co_await receive_all(stream, frame)) {
      const auto position = inflow.take(frame);
      if (!position || !co_await receive_all(stream, *position)) {
        co_return;
      }
      const std::lock_guard lock(mutex_);
      ++frames_;
      came_.notify_all();
    }
  }

  const EventLoop& loop_;
  Memory memory_;
  asio::steady_timer arrival_;
  std::unique_ptr<SecureStream> arrived_, current_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::uint64_t frames_ = 0;              // guarded by mutex_: that have come
  std::optional<Task> receiving_;         // uses all of the above,
  std::optional<PeerAcceptor> acceptor_;  // and so does this
};

Result<std::unique_ptr<SnapshotReceiver>> SnapshotReceiver::open(const EventLoop& loop,
                                                                 const CredentialFiles& credentials,
                                                                 const std::string& address) {
  auto identity = load_identity(credentials, StreamEnd::head);
  TRAIN_RETURN_IF_ERROR(identity);
  auto listening = open_port(loop.context(), address, 0);
  TRAIN_RETURN_IF_ERROR(listening);
  const Endpoint endpoint{.host = address, .port = listening->local_endpoint().port()};
  auto inflow = std::make_shared<Inflow>(loop);
  inflow->listen(std::move(listening).value(), std::move(identity).value());
  return std::unique_ptr<SnapshotReceiver>(new SnapshotReceiver(endpoint, std::move(inflow)));
}

void SnapshotReceiver::receive_into(const Memory& memory) { inflow_->receive_into(memory); }

Status SnapshotReceiver::wait_for(std::int64_t step, std::chrono::milliseconds patience) {
  return inflow_->wait_for(step, patience);
}

Result<std::shared_ptr<Task>> start_sending(const EventLoop& loop,
                                            const CredentialFiles& credentials, const Endpoint& to,
                                            std::shared_ptr<const MemorySnapshots> memory) {
  const auto identity = load_identity(credentials, StreamEnd::worker);
  TRAIN_RETURN_IF_ERROR(identity);
  return std::make_shared<Task>(loop, keep_sending(*identity, to, std::move(memory)));
}

Status send_once(const EventLoop& loop, const CredentialFiles& credentials, const Endpoint& to,
                 const MemorySnapshots& memory, std::int64_t step,
                 std::chrono::milliseconds patience) {
  const auto identity = load_identity(credentials, StreamEnd::worker);
  TRAIN_RETURN_IF_ERROR(identity);
  return run_on(loop, connect_and_send(to, *identity, memory, step, patience));
}

std::unique_ptr<BuddyLink> BuddyLink::open(const EventLoop& loop,
                                           const CredentialFiles& credentials,
                                           const RunPlan& plan) {
  if (!has_buddies(plan)) {
    return nullptr;
  }
  auto receiver = [&]() -> Result<std::unique_ptr<SnapshotReceiver>> {
    const auto address = interface_address(plan.config.parallel.interface);
    return address ? SnapshotReceiver::open(loop, credentials, *address) : address.error();
  }();
  if (!receiver) {
    without_buddy(receiver.error());
    return nullptr;
  }
  return std::unique_ptr<BuddyLink>(new BuddyLink(loop, credentials, std::move(receiver).value()));
}

Status BuddyLink::restore(const RestoreMemory& order, NodeMemory& memory) {
  memory.keep_only(order.step);
  if (order.take) {
    memory.give_up_damaged();  // or it would pass for what is to come
    receiver_->receive_into(memory.current());
  }
  if (!order.give_to.empty()) {
    const auto to = parse_endpoint(order.give_to);
    TRAIN_RETURN_IF_ERROR(
        to ? send_once(loop_, credentials_, *to, *memory.buddy(), order.step, kRestorePatience)
           : Status(to.error()));
  }
  if (order.take) {
    const Status came = receiver_->wait_for(order.step, kRestorePatience);
    receiver_->receive_into(nullptr);
    return came;
  }
  return {};
}

void BuddyLink::keep(const std::string& buddy, const NodeMemory& memory) {
  receiver_->receive_into(memory.buddy());
  const auto to = parse_endpoint(buddy);
  if (!to) {
    return;  // the next node has no room, or no port: it has said so
  }
  auto sending = start_sending(loop_, credentials_, *to, memory.current());
  if (!sending) {
    return without_buddy(sending.error());
  }
  sending_ = std::move(sending).value();
}

}  // namespace train::actors
