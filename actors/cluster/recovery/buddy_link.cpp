#include "actors/cluster/recovery/buddy_link.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

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

constexpr auto kRestorePatience = 10s;  // while nothing moves

void without_buddy(const Error& error) {
  log_warning(fmt::format("no_buddy {}; snapshots stay on this node alone", error.message));
}

}  // namespace

Result<std::unique_ptr<SnapshotReceiver>> SnapshotReceiver::open(const CredentialFiles& credentials,
                                                                 const std::string& address) {
  auto context = TlsContext::load(credentials, TlsEnd::head);
  TRAIN_RETURN_IF_ERROR(context);
  auto listening = listen_on(address, 0);
  TRAIN_RETURN_IF_ERROR(listening);
  std::unique_ptr<SnapshotReceiver> receiver(new SnapshotReceiver);
  receiver->endpoint_ = {.host = address, .port = listening->second};
  receiver->acceptor_ =
      std::make_unique<TlsAcceptor>(std::move(listening->first), std::move(context).value(),
                                    [me = receiver.get()](Descriptor socket, TlsSession session) {
                                      me->admit({std::move(socket), std::move(session)});
                                    });
  return receiver;
}

SnapshotReceiver::~SnapshotReceiver() {
  acceptor_.reset();
  stop();
}

void SnapshotReceiver::admit(TlsConnection connection) {
  const std::lock_guard lock(mutex_);
  arrived_ = std::move(connection);
  wake_.set();
}

void SnapshotReceiver::stop() {
  if (thread_.joinable()) {
    stopping_ = true;
    wake_.set();
    thread_.join();
    stopping_ = false;
  }
}

void SnapshotReceiver::receive_into(Memory memory) {
  stop();
  memory_ = std::move(memory);
  if (memory_) {
    wake_.set();  // for who has come already
    thread_ = std::thread([this] { serve(*memory_); });
  }
}

std::optional<TlsConnection> SnapshotReceiver::next() {
  const std::lock_guard lock(mutex_);
  wake_.clear();
  return std::exchange(arrived_, std::nullopt);
}

void SnapshotReceiver::serve(const checkpoint::MemorySnapshots& memory) {
  while (!stopping_) {
    if (auto connection = next()) {
      follow(*std::move(connection), memory);
    } else if (!stopping_) {
      wait_ready(wake_.descriptor(), POLLIN,
                 std::chrono::steady_clock::now() + std::chrono::hours(24));
    }
  }
}

/// Until it is lost, talks nonsense, or another one comes.
void SnapshotReceiver::follow(TlsConnection connection, const checkpoint::MemorySnapshots& memory) {
  TlsStream stream(std::move(connection), wake_.descriptor());
  checkpoint::SnapshotInflow inflow(memory);
  checkpoint::FrameBytes frame;
  while (!stopping_ && stream.receive(frame)) {
    const auto position = inflow.take(frame);
    if (!position || !stream.receive(*position)) {
      return;
    }
    const std::lock_guard lock(mutex_);
    ++frames_;
    came_.notify_all();
  }
}

Status SnapshotReceiver::wait_for(std::int64_t step, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint64_t before = frames_;
    const bool sealed = memory_->has_sealed(step);
    if (sealed) {
      lock.unlock();  // the bytes are many
      if (whole_step(*memory_, step)) {
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

Result<std::unique_ptr<SnapshotSender>> SnapshotSender::start(const CredentialFiles& credentials,
                                                              Endpoint to, Memory memory) {
  auto context = TlsContext::load(credentials, TlsEnd::worker);
  TRAIN_RETURN_IF_ERROR(context);
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
  TRAIN_RETURN_IF_ERROR(context);
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

std::unique_ptr<BuddyLink> BuddyLink::open(const CredentialFiles& credentials,
                                           const RunPlan& plan) {
  if (!has_buddies(plan)) {
    return nullptr;
  }
  auto receiver = [&]() -> Result<std::unique_ptr<SnapshotReceiver>> {
    const auto address = interface_address(plan.config.parallel.interface);
    return address ? SnapshotReceiver::open(credentials, *address) : address.error();
  }();
  if (!receiver) {
    without_buddy(receiver.error());
    return nullptr;
  }
  return std::unique_ptr<BuddyLink>(new BuddyLink(credentials, std::move(receiver).value()));
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
        to ? send_once(credentials_, *to, *memory.buddy(), order.step, kRestorePatience)
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
  auto sender = SnapshotSender::start(credentials_, *to, memory.current());
  if (!sender) {
    return without_buddy(sender.error());
  }
  sender_ = std::move(sender).value();
}

}  // namespace train::actors
