#include "engine/collective/link_channel.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "engine/collective/collective.hpp"

namespace train::engine {

LinkChannel::LinkChannel(std::unique_ptr<ChannelLink> link)
    : link_(std::move(link)), thread_([this] { loop(); }) {}

LinkChannel::~LinkChannel() {
  end("the transport was closed", true);
  thread_.join();
}

void LinkChannel::exchange(const CollectiveIdentity& identity, Transfer transfer, Done done) {
  check_transfer(transfer, rank(), world_size());
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({identity, std::move(transfer), std::move(done)});
  }
  changed_.notify_one();  // without the lock: the thread it wakes wants it
}

void LinkChannel::cancel(const std::string& reason) { end(reason, false); }

void LinkChannel::end(const std::string& reason, bool closing) {
  const std::lock_guard lock(mutex_);
  closing_ = closing_ || closing;
  if (!cancelled_) {
    cancelled_ = reason;
    in_order_ = closing;
    link_->abort(reason);
  }
  changed_.notify_one();
}

bool LinkChannel::next(std::optional<Request>& request) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !queue_.empty() || closing_ || (cancelled_ && !failed_); });
  request.reset();
  if (!queue_.empty()) {
    request = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }
  if (cancelled_ && !failed_) {
    failed_ = "cancelled: " + *cancelled_;
    const bool in_order = in_order_;
    lock.unlock();
    link_->disconnect(in_order);  // now, so that the others need not wait for an exchange to notice
  }
  return !closing_;
}

Status LinkChannel::serve(const Request& request) {
  if (failed_) {
    return failure(
        fmt::format("{}: the transport has failed: {}", to_string(request.identity), *failed_));
  }
  return link_->run(request.identity, request.transfer);
}

void LinkChannel::loop() {
  std::optional<Request> request;
  while (next(request)) {
    if (!request) {
      continue;
    }
    const Status status = serve(*request);
    std::string why = status.ok() ? std::string() : status.error().message;
    try {
      request->done(status);
    } catch (const std::exception& error) {
      why = fmt::format("what was to follow {} failed: {}", to_string(request->identity),
                        error.what());
    }
    if (!why.empty() && !failed_) {
      failed_ = why;
      link_->disconnect(false);
    }
  }
}

}  // namespace train::engine
