#include "actors/cluster/recovery/buddy_link.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/log.hpp"

namespace train::actors {
namespace {

constexpr std::chrono::seconds kPatience{10};  // while nothing moves

void without_buddy(const Error& error) {
  log_warning(fmt::format("no_buddy {}; snapshots stay on this node alone", error.message));
}

}  // namespace

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
    TRAIN_RETURN_IF_ERROR(to ? send_once(credentials_, *to, *memory.buddy(), order.step, kPatience)
                             : Status(to.error()));
  }
  if (order.take) {
    const Status came = receiver_->wait_for(order.step, kPatience);
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
