#include "engine/collective/tcp_transport.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/process/descriptor.hpp"
#include "engine/collective/connection_watch.hpp"
#include "engine/collective/link_channel.hpp"
#include "engine/collective/nccl_link.hpp"
#include "engine/collective/peer_mesh.hpp"
#include "engine/collective/tcp_link.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

namespace {

/// The IPv4 address of a network interface.
Result<std::string> address_of(const std::string& interface) {
  if (interface.empty()) {
    return std::string("127.0.0.1");
  }
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    return failure(fmt::format("network interfaces cannot be listed: {}", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (interface == entry->ifa_name && entry->ifa_addr != nullptr &&
        entry->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address = {};
      std::memcpy(&address, entry->ifa_addr, sizeof(address));
      char text[INET_ADDRSTRLEN] = {};
      ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
      return std::string(text);
    }
  }
  return user_error(fmt::format(
      "parallel.interface: there is no network interface \"{}\" with an IPv4 address: name one "
      "that `ip address` lists",
      interface));
}

/// A channel of which all ranks have said that they are connected.
Result<std::unique_ptr<TcpLink>> open_link(Channel channel, std::vector<Descriptor> sockets,
                                           const std::shared_ptr<ConnectionWatch>& watch,
                                           const TcpOptions& options) {
  const TcpLink::Place place = {.rank = options.rank, .world_size = options.world_size};
  auto link = std::make_unique<TcpLink>(place, std::move(sockets), watch, options.timeout);
  TRAIN_RETURN_IF_ERROR(link->open());
  // Connecting is no barrier: a rank that went on and closed would fail a slower one.
  TRAIN_RETURN_IF_ERROR(link->barrier({.generation = options.generation,
                                       .command = -1,
                                       .channel = channel,
                                       .index = 0,
                                       .hash = static_cast<std::uint64_t>(options.world_size)}));
  return link;
}

/// Takes a channel over for memory of devices: one id for all, from rank 0.
Result<std::unique_ptr<ChannelLink>> join_devices(RendezvousStore& store, Channel channel,
                                                  std::unique_ptr<TcpLink> link,
                                                  const TcpOptions& options) {
  const std::string key = fmt::format("g{}.{}.nccl", options.generation, channel_name(channel));
  kernels::NcclId id{};
  if (options.rank == 0) {
    id = kernels::make_nccl_id();
    TRAIN_RETURN_IF_ERROR(store.set(key, {id.begin(), id.end()}));
  } else {
    const std::vector<char> made = TRAIN_TRY(store.get(key, options.timeout));
    TRAIN_CHECK(made.size() == id.size(), "an id of {} bytes", made.size());
    std::copy(made.begin(), made.end(), id.begin());
  }
  auto joined = std::make_unique<NcclLink>(std::move(link), id, options.timeout);
  joined->set_limit(options.exchange_limit);
  return std::unique_ptr<ChannelLink>(std::move(joined));
}

Result<ChannelTransports> connect_all(RendezvousStore& store, const std::string& address,
                                      const TcpOptions& options) {
  PeerSockets mesh = TRAIN_TRY(connect_mesh(store, {.rank = options.rank,
                                                    .world_size = options.world_size,
                                                    .generation = options.generation,
                                                    .address = address,
                                                    .timeout = options.timeout,
                                                    .cut_after = options.cut_after}));
  const std::shared_ptr<ConnectionWatch> watch = TRAIN_TRY(ConnectionWatch::make());
  std::array<std::unique_ptr<TcpLink>, kChannelCount> links;
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    auto link = TRAIN_TRY(open_link(static_cast<Channel>(i), std::move(mesh[i]), watch, options));
    links[i] = std::move(link);
  }
  const LocalRanks local = TRAIN_TRY(agree_on_local(*links[0], options.generation, options.direct));
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    links[i]->set_local(i, local);
    links[i]->set_limit(options.exchange_limit);
  }
  ChannelTransports channels;
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    const auto channel = static_cast<Channel>(i);
    if (!options.nccl || channel == Channel::control) {
      channels[i] = std::make_unique<LinkChannel>(std::move(links[i]));
      continue;
    }
    auto joined = TRAIN_TRY(join_devices(store, channel, std::move(links[i]), options));
    channels[i] = std::make_unique<LinkChannel>(std::move(joined));
  }
  return channels;
}

}  // namespace

Result<ChannelTransports> make_tcp(RendezvousStore& store, const TcpOptions& options) {
  TRAIN_CHECK(options.rank >= 0 && options.rank < options.world_size, "rank {} of {}", options.rank,
              options.world_size);
  if (options.world_size == 1) {
    ChannelTransports alone;
    for (std::unique_ptr<Collectives>& channel : alone) {
      channel = std::move(make_inproc(1).front());
    }
    return alone;
  }
  const std::string address = TRAIN_TRY(address_of(options.interface));
  const auto cannot = [&](const std::string& why) {
    return failure(fmt::format("generation {}: rank {} cannot connect to the others: {}",
                               options.generation, options.rank, why));
  };
  try {
    auto channels = connect_all(store, address, options);
    return channels.ok() ? std::move(channels) : cannot(channels.error().message);
  } catch (const kernels::DeviceError& error) {
    return cannot(error.what());
  }
}

}  // namespace train::engine
