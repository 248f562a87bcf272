#include "actors/cluster/network/snapshot_receiver.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "actors/cluster/network/listen.hpp"
#include "actors/cluster/network/tls_stream.hpp"
#include "checkpoint/memory/snapshot_stream.hpp"

namespace train::actors {
namespace {

bool whole_step(const checkpoint::MemorySnapshots& memory, std::int64_t step) {
  const auto steps = memory.whole_steps();
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

}  // namespace

Result<std::unique_ptr<SnapshotReceiver>> SnapshotReceiver::open(const CredentialFiles& credentials,
                                                                 const std::string& address) {
  auto context = TlsContext::load(credentials, TlsEnd::head);
  if (!context) {
    return context.error();
  }
  auto listening = listen_on(address, 0);
  if (!listening) {
    return listening.error();
  }
  std::unique_ptr<SnapshotReceiver> receiver(new SnapshotReceiver);
  receiver->endpoint_ = {.host = address, .port = listening->second};
  receiver->acceptor_ = std::make_unique<TlsAcceptor>(
      std::move(listening->first), std::move(context).value(), TlsAcceptor::Options{},
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
    const auto place = inflow.take(frame);
    if (!place || !stream.receive(*place)) {
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

}  // namespace train::actors
