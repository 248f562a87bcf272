#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process/descriptor.hpp"
#include "engine/collective/exchange_header.hpp"

namespace train::engine {

/// One connection with a peer, as messages of the exchange protocol. Nothing here blocks.
///
/// Each way the messages are, for each exchange of the pair: a header with the bytes that are few;
/// "ready" from a side that gets many, when their place is there; then these, in one message. At
/// the end a farewell. So data is on its way only while it is awaited: a peer that is held up
/// elsewhere leaves nothing unread, which the kernel would take for a link that was cut.
///
/// Sizes that a peer sends are never trusted: a header fits its buffer, data has the length that
/// both sides have agreed on, and anything else breaks the connection.
///
/// Threading: one owner.
class TcpConnection {
 public:
  enum class State : std::uint8_t {
    open,
    left,  ///< The peer has said farewell.
    lost,  ///< Broken, or closed without a farewell.
  };

  /// Takes over a non-blocking socket.
  explicit TcpConnection(Descriptor socket);

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] State state() const { return state_; }
  /// Reason of State::lost.
  [[nodiscard]] const std::string& why() const { return why_; }

  // One exchange.

  /// Begins an exchange. `small`, at most kSmallBytes, is copied.
  void send_header(const ExchangeHeader& header, std::span<const std::byte> small);
  /// Header of the peer; null until it has arrived.
  [[nodiscard]] const ExchangeHeader* header() const { return header_ ? &*header_ : nullptr; }
  /// Small data that arrived with the peer's header.
  [[nodiscard]] std::span<const std::byte> small() const { return small_; }
  /// When header and small are not looked at any more: sends `sent` as soon as the peer is ready,
  /// and receives into `place`; empty: nothing. Both are borrowed until is_sent(), has_received().
  void exchange_data(std::span<const std::byte> sent, std::span<std::byte> place);
  /// All that this side has to say in the exchange is with the kernel.
  [[nodiscard]] bool is_sent() const;
  /// All of `place` has come.
  [[nodiscard]] bool has_received() const { return place_.empty(); }

  void say_farewell();

  /// Reads and writes what it can without waiting. True: something has moved.
  bool move_bytes();
  /// The peer has closed the connection, or it broke: reads what has come before that.
  void end();
  /// Socket events that move_bytes() waits for.
  [[nodiscard]] bool waits_to_read() const;
  [[nodiscard]] bool waits_to_write() const;

  /// No borrowed memory is touched any more, and nothing moves.
  void release();

 private:
  enum class Kind : std::uint32_t {
    header = 0x68647231,
    ready = 0x72647931,
    data = 0x64617431,
    farewell = 0x66617231,
  };
  struct Frame {
    Kind kind = Kind::header;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;  ///< Bytes that follow.
  };

  void queue(Kind kind, std::uint64_t bytes);
  bool write_some();
  bool read_some();
  void parse();
  /// Takes one message out of `arrived_`. False: it is not whole, or has to wait for its place.
  [[nodiscard]] bool parse_frame();
  void take_header(const Frame& frame);
  void begin_data(const Frame& frame);
  void lose(const std::string& why);
  [[nodiscard]] std::span<const std::byte> unparsed() const;

  Descriptor socket_;
  State state_ = State::open;
  std::string why_;

  std::vector<std::byte> queued_;  ///< Short messages, before `data_`.
  std::size_t queued_sent_ = 0;
  std::span<const std::byte> data_;  ///< Bytes left to send.
  bool peer_ready_ = false;
  bool data_announced_ = false;  ///< The frame of `data_` is queued.

  std::vector<std::byte> arrived_;  ///< Short messages, up to `arrived_end_`.
  std::size_t arrived_begin_ = 0;   ///< First byte that is not parsed yet.
  std::size_t arrived_end_ = 0;
  bool blocked_ = false;  ///< `arrived_` begins with the header of the next exchange.
  std::optional<ExchangeHeader> header_;
  std::vector<std::byte> small_;
  std::span<std::byte> place_;  ///< Bytes left to receive.
  bool in_data_ = false;        ///< The frame of the data for `place_` has arrived.
};

}  // namespace train::engine
