#include "actors/cluster/network/secure_scribe.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <utility>

namespace train::actors {
namespace {

namespace network = caf::io::network;

/// What a stream of the framework asks of its transport.
class TlsPolicy {
 public:
  explicit TlsPolicy(TlsSession session) : session_(std::move(session)) {}

  network::rw_state read_some(std::size_t& moved, network::native_socket, void* bytes,
                              std::size_t size) {
    return verdict(session_.read(bytes, size, moved));
  }
  network::rw_state write_some(std::size_t& moved, network::native_socket, const void* bytes,
                               std::size_t size) {
    moved = 0;
    return size == 0 ? network::rw_state::indeterminate
                     : verdict(session_.write(bytes, size, moved));
  }
  // Decrypted bytes do not make the socket readable again.
  bool must_read_more(network::native_socket, std::size_t wanted) const {
    return wanted > 0 && session_.pending() >= wanted;
  }

 private:
  static network::rw_state verdict(TlsSession::State state) {
    return state == TlsSession::State::failed ? network::rw_state::failure
                                              : network::rw_state::success;
  }

  TlsSession session_;
};

class SecureScribe : public caf::io::scribe {
 public:
  SecureScribe(network::default_multiplexer& multiplexer, int socket, TlsSession session)
      : scribe(network::conn_hdl_from_socket(socket)),
        stream_(multiplexer, socket, std::move(session)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!std::exchange(started_, true)) {
      stream_.start(this);
    }
  }
  void flush() override { stream_.flush(this); }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  std::string addr() const override {
    const auto address = network::remote_addr_of_fd(stream_.fd());
    return address ? *address : std::string();
  }
  std::uint16_t port() const override {
    const auto port = network::remote_port_of_fd(stream_.fd());
    return port ? *port : std::uint16_t{0};
  }

 private:
  bool started_ = false;
  network::stream_impl<TlsPolicy> stream_;
};

}  // namespace

caf::io::scribe_ptr make_secure_scribe(caf::actor_system& system, Descriptor socket,
                                       TlsSession session) {
  auto* multiplexer = dynamic_cast<network::default_multiplexer*>(&system.middleman().backend());
  TRAIN_CHECK(multiplexer != nullptr, "the system has no sockets");
  return caf::make_counted<SecureScribe>(*multiplexer, socket.release(), std::move(session));
}

}  // namespace train::actors
