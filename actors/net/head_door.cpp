#include "actors/net/head_door.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <cerrno>
#include <set>
#include <system_error>
#include <utility>

#include "actors/net/private_file.hpp"
#include "actors/net/secure_scribe.hpp"

namespace train::actors {
namespace {

constexpr int kBacklog = 1024;

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

Error cannot_listen(const HeadDoor::Options& options, int error_number) {
  const std::string where = fmt::format("{}:{}", options.address, options.port);
  switch (error_number) {
    case EADDRINUSE:
      return user_error(
          fmt::format("parallel.port = {}: {} is taken; choose another, or 0 for any free one",
                      options.port, where));
    case EACCES:
      return user_error(
          fmt::format("parallel.port = {}: not allowed to listen there; choose one above 1023, or "
                      "0 for any free one",
                      options.port));
    case EADDRNOTAVAIL:
      return user_error(
          fmt::format("parallel.interface: {} is no address of this node; leave it "
                      "empty for one node",
                      options.address));
    default:
      return failure(fmt::format("cannot listen on {}: {}", where, text_of(error_number)));
  }
}

/// A listening socket and its port.
Result<std::pair<Descriptor, std::uint16_t>> listen_on(const HeadDoor::Options& options) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (::inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1) {
    return user_error(fmt::format("parallel.interface: '{}' is no IPv4 address", options.address));
  }
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), generic, size) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    return cannot_listen(options, errno);
  }
  return std::pair(std::move(socket), ntohs(address.sin_port));
}

}  // namespace

Status HeadDoor::check(const Options& options) {
  const auto listening = listen_on(options);
  return listening ? Status() : Status(listening.error());
}

Result<std::unique_ptr<HeadDoor>> HeadDoor::open(caf::actor_system& system,
                                                 const caf::actor& published,
                                                 const CredentialFiles& credentials,
                                                 const Options& options) {
  auto context = TlsContext::load(credentials, TlsEnd::head);
  if (!context) {
    return context.error();
  }
  auto listening = listen_on(options);
  if (!listening) {
    return listening.error();
  }
  const std::uint16_t port = listening->second;
  auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  // Published on every connection by itself: the framework listens nowhere.
  auto admit = [&system, broker, published, port](Descriptor socket, TlsSession session) {
    auto scribe = make_secure_scribe(system, std::move(socket), std::move(session));
    caf::anon_send(broker, caf::publish_atom_v, std::move(scribe), port,
                   caf::actor_cast<caf::strong_actor_ptr>(published), std::set<std::string>());
  };
  Endpoint endpoint{.host = options.address, .port = port, .start = options.start};
  auto gate = std::make_unique<Gate>(std::move(listening->first), std::move(context).value(),
                                     options.gate, std::move(admit));
  if (!options.endpoint_file.empty()) {
    TRAIN_RETURN_IF_ERROR(write_private_file(
        options.endpoint_file, fmt::format("{}\n{}\n", to_string(endpoint), endpoint.start)));
  }
  return std::unique_ptr<HeadDoor>(
      new HeadDoor(std::move(endpoint), options.endpoint_file, std::move(gate)));
}

HeadDoor::~HeadDoor() {
  gate_.reset();
  if (!file_.empty()) {
    ::unlink(file_.c_str());  // a courtesy: who reads it later learns at once that nobody is there
  }
}

}  // namespace train::actors
