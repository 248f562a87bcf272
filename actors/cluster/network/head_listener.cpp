#include "actors/cluster/network/head_listener.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <set>
#include <utility>

#include "actors/cluster/network/listen.hpp"
#include "actors/cluster/network/secure_scribe.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {

Status HeadListener::check(const Options& options) {
  const auto listening = listen_on(options.address, options.port);
  return listening ? Status() : Status(listening.error());
}

Result<std::unique_ptr<HeadListener>> HeadListener::open(caf::actor_system& system,
                                                         const caf::actor& published,
                                                         const CredentialFiles& credentials,
                                                         const Options& options) {
  auto context = TlsContext::load(credentials, TlsEnd::head);
  if (!context) {
    return context.error();
  }
  auto listening = listen_on(options.address, options.port);
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
  auto acceptor = std::make_unique<TlsAcceptor>(
      std::move(listening->first), std::move(context).value(), options.acceptor, std::move(admit));
  if (!options.endpoint_file.empty()) {
    TRAIN_RETURN_IF_ERROR(storage::write_private_file(
        options.endpoint_file, fmt::format("{}\n{}\n", to_string(endpoint), endpoint.start)));
  }
  return std::unique_ptr<HeadListener>(
      new HeadListener(std::move(endpoint), options.endpoint_file, std::move(acceptor)));
}

HeadListener::~HeadListener() {
  acceptor_.reset();
  if (!file_.empty()) {
    ::unlink(file_.c_str());  // a courtesy: who reads it later learns at once that nobody is there
  }
}

}  // namespace train::actors
