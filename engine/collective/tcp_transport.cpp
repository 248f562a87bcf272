#include "engine/collective/tcp_transport.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "engine/collective/link_channel.hpp"
#include "engine/collective/nccl_link.hpp"
#include "engine/collective/tcp_link.hpp"

namespace train::engine {

namespace {

constexpr int kProbes = 3;  // that go unanswered within the limit, after as long a silence each

bool is_connected_tcp(int descriptor) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 ||
      protocol != IPPROTO_TCP) {
    return false;
  }
  sockaddr_storage peer = {};
  size = sizeof(peer);
  return ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

std::set<int> tcp_sockets() {
  std::set<int> sockets;
  std::error_code error;  // one that was closed meanwhile is none of them
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor >= 0 && is_connected_tcp(descriptor)) {
      sockets.insert(descriptor);
    }
  }
  return sockets;
}

Status find_cut(int socket, std::chrono::seconds limit) {
  const auto seconds = static_cast<int>(limit.count());
  const int between = std::max(1, seconds / (kProbes + 1));
  const std::array<std::pair<std::pair<int, int>, int>, 5> options = {{
      {{SOL_SOCKET, SO_KEEPALIVE}, 1},
      {{IPPROTO_TCP, TCP_KEEPIDLE}, between},
      {{IPPROTO_TCP, TCP_KEEPINTVL}, between},
      {{IPPROTO_TCP, TCP_KEEPCNT}, kProbes},
      {{IPPROTO_TCP, TCP_USER_TIMEOUT}, seconds * 1000},  // of what was sent and not received
  }};
  for (const auto& [option, value] : options) {
    if (::setsockopt(socket, option.first, option.second, &value, sizeof(value)) != 0) {
      if (errno == EBADF || errno == ENOTSOCK) {
        return {};  // closed since it was seen: there is nothing to watch
      }
      return failure(fmt::format("a connection cannot be watched: {}", std::strerror(errno)));
    }
  }
  return {};
}

namespace {

/// Gloo writes to sockets whose other end may be gone, which raises SIGPIPE in the writing thread.
/// While this lives it is blocked in the calling thread, and for good in threads started meanwhile.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    const timespec at_once = {};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_ = {};
  sigset_t before_ = {};
  bool was_pending_ = false;
};

/// Our store as Gloo wants it: under a prefix, with our time limit, failures thrown. Gloo asks
/// twice for every key; the second answer is remembered.
class StoreOfChannel final : public gloo::rendezvous::Store {
 public:
  StoreOfChannel(RendezvousStore& store, std::string prefix, std::chrono::milliseconds timeout)
      : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    if (const Status written = store_.set(prefix_ + key, data); !written) {
      throw std::runtime_error(written.error().message);
    }
  }

  std::vector<char> get(const std::string& key) override {
    const auto known = known_.find(key);
    if (known != known_.end()) {
      return known->second;
    }
    Result<std::vector<char>> found = store_.get(prefix_ + key, timeout_);
    if (!found) {
      // Gloo's keys are "rank_3" and "3".
      const std::string rank = key.substr(key.find('_') + 1);
      throw std::runtime_error(
          fmt::format("rank {} has not appeared: {}", rank, found.error().message));
    }
    return known_[key] = std::move(found).value();
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      get(key);
    }
  }

  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  RendezvousStore& store_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, std::vector<char>> known_;
};

using Device = std::shared_ptr<gloo::transport::Device>;

/// The IPv4 address of a network interface. Gloo's own search forgets memory when it fails.
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

Device make_device(const std::string& address) {
  gloo::transport::tcp::attr where;
  where.hostname = address;
  return gloo::transport::tcp::CreateDevice(where);
}

Result<std::unique_ptr<TcpLink>> connect(RendezvousStore& store, Device& device, Channel channel,
                                         const TcpOptions& options) {
  StoreOfChannel keys(store, fmt::format("g{}.{}.", options.generation, channel_name(channel)),
                      options.timeout);
  const auto context =
      std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
  // While it connects, Gloo waits five times as long as it is told.
  context->setTimeout(std::max(options.timeout / 5, std::chrono::milliseconds(1)));
  const std::set<int> before = tcp_sockets();
  context->connectFullMesh(keys, device);
  for (const int socket : tcp_sockets()) {
    if (!before.contains(socket)) {
      TRAIN_RETURN_IF_ERROR(find_cut(socket, options.cut_after));
    }
  }
  auto link = std::make_unique<TcpLink>(device, context, options.timeout);
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
    const Result<std::vector<char>> made = store.get(key, options.timeout);
    TRAIN_RETURN_IF_ERROR(made);
    TRAIN_CHECK(made->size() == id.size(), "an id of {} bytes", made->size());
    std::copy(made->begin(), made->end(), id.begin());
  }
  auto joined = std::make_unique<NcclLink>(std::move(link), id, options.timeout);
  joined->set_limit(options.exchange_limit);
  return std::unique_ptr<ChannelLink>(std::move(joined));
}

Result<ChannelTransports> connect_all(RendezvousStore& store, Device& device,
                                      const TcpOptions& options) {
  std::array<std::unique_ptr<TcpLink>, kChannelCount> links;
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    Result<std::unique_ptr<TcpLink>> link =
        connect(store, device, static_cast<Channel>(i), options);
    TRAIN_RETURN_IF_ERROR(link);
    links[i] = std::move(link).value();
  }
  const Result<LocalRanks> local = agree_on_local(*links[0], options.generation, options.direct);
  TRAIN_RETURN_IF_ERROR(local);
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    links[i]->set_local(i, *local);
    links[i]->set_limit(options.exchange_limit);
  }
  ChannelTransports channels;
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    const auto channel = static_cast<Channel>(i);
    if (!options.nccl || channel == Channel::control) {
      channels[i] = std::make_unique<LinkChannel>(std::move(links[i]));
      continue;
    }
    auto joined = join_devices(store, channel, std::move(links[i]), options);
    TRAIN_RETURN_IF_ERROR(joined);
    channels[i] = std::make_unique<LinkChannel>(std::move(joined).value());
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
  const Result<std::string> address = address_of(options.interface);
  TRAIN_RETURN_IF_ERROR(address);
  const WithoutSigpipe without_sigpipe;
  try {
    Device device = make_device(*address);
    return connect_all(store, device, options);
  } catch (const std::exception& error) {
    return failure(fmt::format("generation {}: rank {} cannot connect to the others: {}",
                               options.generation, options.rank, error.what()));
  }
}

}  // namespace train::engine
