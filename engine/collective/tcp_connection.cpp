#include "engine/collective/tcp_connection.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace train::engine {
namespace {

/// Moved at a time, so that both ways, and all peers, take turns.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;
/// Room for the longest of the short messages, and more: it is never full of a part of one.
constexpr std::size_t kArrivedBytes = 8192;
static_assert(sizeof(ExchangeHeader) + kSmallBytes + 1024 <= kArrivedBytes);

constexpr const char* kClosed = "Connection closed by peer";

}  // namespace

TcpConnection::TcpConnection(Descriptor socket)
    : socket_(std::move(socket)), arrived_(kArrivedBytes) {}

void TcpConnection::queue(Kind kind, std::uint64_t bytes) {
  const Frame frame = {.kind = kind, .bytes = bytes};
  const auto of_frame = std::as_bytes(std::span(&frame, 1));
  queued_.insert(queued_.end(), of_frame.begin(), of_frame.end());
}

void TcpConnection::send_header(const ExchangeHeader& header, std::span<const std::byte> small) {
  const auto of_header = std::as_bytes(std::span(&header, 1));
  queue(Kind::header, of_header.size() + small.size());
  queued_.insert(queued_.end(), of_header.begin(), of_header.end());
  queued_.insert(queued_.end(), small.begin(), small.end());
}

void TcpConnection::exchange_data(std::span<const std::byte> sent, std::span<std::byte> place) {
  header_.reset();
  data_ = sent;
  place_ = place;
  if (sent.empty() && peer_ready_) {
    lose("it is ready for nothing");
  }
  if (!place.empty()) {
    queue(Kind::ready, 0);
  }
  if (std::exchange(blocked_, false)) {
    parse();
  }
}

bool TcpConnection::is_sent() const { return queued_.empty() && data_.empty(); }

void TcpConnection::say_farewell() { queue(Kind::farewell, 0); }

bool TcpConnection::waits_to_read() const { return state_ == State::open && !blocked_; }

bool TcpConnection::waits_to_write() const {
  return state_ == State::open && (!queued_.empty() || (!data_.empty() && peer_ready_));
}

bool TcpConnection::move_bytes() {
  const bool read = waits_to_read() && read_some();
  const bool written = waits_to_write() && write_some();
  return read || written;
}

void TcpConnection::end() {
  while (waits_to_read() && read_some()) {
  }
  if (state_ == State::open && blocked_) {
    lose(kClosed);  // in the middle of an exchange: there is no farewell behind its header
  }
}

void TcpConnection::release() {
  data_ = {};
  place_ = {};
  in_data_ = false;
  if (state_ == State::open) {
    lose("given up");
  }
}

void TcpConnection::lose(const std::string& why) {
  state_ = State::lost;
  why_ = why;
}

bool TcpConnection::write_some() {
  if (!data_.empty() && peer_ready_ && !data_announced_) {
    queue(Kind::data, data_.size());
    data_announced_ = true;
  }
  const std::size_t turn = data_announced_ ? std::min(data_.size(), kTurnBytes) : 0;
  std::array<iovec, 2> parts = {
      {{queued_.data() + queued_sent_, queued_.size() - queued_sent_},
       {const_cast<std::byte*>(data_.data()), turn}}};  // NOLINT: sendmsg reads it only
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EINTR) {
      const std::string why = std::strerror(errno);
      end();  // what came before counts
      if (state_ == State::open) {
        lose(why);
      }
    }
    return false;
  }
  const auto bytes = static_cast<std::size_t>(sent);
  const std::size_t of_queued = std::min(bytes, queued_.size() - queued_sent_);
  queued_sent_ += of_queued;
  if (queued_sent_ == queued_.size()) {
    queued_.clear();
    queued_sent_ = 0;
  }
  data_ = data_.subspan(bytes - of_queued);
  if (data_announced_ && data_.empty()) {
    data_announced_ = false;
    peer_ready_ = false;
  }
  return bytes > 0;
}

bool TcpConnection::read_some() {
  if (arrived_begin_ > 0) {
    std::copy(arrived_.begin() + static_cast<std::ptrdiff_t>(arrived_begin_),
              arrived_.begin() + static_cast<std::ptrdiff_t>(arrived_end_), arrived_.begin());
    arrived_end_ -= std::exchange(arrived_begin_, 0);
  }
  const std::span<std::byte> room = in_data_ ? place_.first(std::min(place_.size(), kTurnBytes))
                                             : std::span(arrived_).subspan(arrived_end_);
  const ssize_t got = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return false;
  }
  if (got <= 0) {
    lose(got == 0 ? kClosed : std::strerror(errno));
    return false;
  }
  if (!in_data_) {
    arrived_end_ += static_cast<std::size_t>(got);
    parse();
    return true;
  }
  place_ = place_.subspan(static_cast<std::size_t>(got));
  in_data_ = !place_.empty();
  return true;
}

std::span<const std::byte> TcpConnection::unparsed() const {
  return std::span(arrived_).subspan(arrived_begin_, arrived_end_ - arrived_begin_);
}

void TcpConnection::parse() {
  while (state_ == State::open && !blocked_ && !in_data_ && parse_frame()) {
  }
}

bool TcpConnection::parse_frame() {
  const std::span<const std::byte> bytes = unparsed();
  Frame frame;
  if (bytes.size() < sizeof(frame)) {
    return false;
  }
  std::memcpy(&frame, bytes.data(), sizeof(frame));
  if (frame.kind == Kind::header) {
    blocked_ = header_.has_value();
    const bool fits = frame.bytes >= sizeof(ExchangeHeader) &&
                      frame.bytes <= sizeof(ExchangeHeader) + kSmallBytes;
    if (!fits) {
      lose(fmt::format("it sends a header of {} bytes", frame.bytes));
    }
    if (!fits || blocked_ || bytes.size() < sizeof(frame) + frame.bytes) {
      return false;
    }
  }
  arrived_begin_ += sizeof(frame);
  if (frame.kind == Kind::header) {
    take_header(frame);
  } else if (frame.kind == Kind::data) {
    begin_data(frame);
  } else if (frame.kind == Kind::ready && frame.bytes == 0 && !peer_ready_) {
    peer_ready_ = true;
  } else if (frame.kind == Kind::farewell && frame.bytes == 0) {
    state_ = State::left;
  } else {
    lose("it sent an invalid message");
  }
  return true;
}

void TcpConnection::take_header(const Frame& frame) {
  const std::span<const std::byte> bytes = unparsed().first(frame.bytes);
  header_ = read_header(bytes.data());
  const auto small = bytes.subspan(sizeof(ExchangeHeader));
  small_.assign(small.begin(), small.end());
  arrived_begin_ += frame.bytes;
}

void TcpConnection::begin_data(const Frame& frame) {
  if (frame.bytes != place_.size() || place_.empty()) {
    lose(fmt::format("it sends {} bytes where {} are awaited", frame.bytes, place_.size()));
    return;
  }
  const std::span<const std::byte> first =
      unparsed().first(std::min(unparsed().size(), place_.size()));
  std::copy(first.begin(), first.end(), place_.begin());
  place_ = place_.subspan(first.size());
  arrived_begin_ += first.size();
  in_data_ = !place_.empty();
}

}  // namespace train::engine
