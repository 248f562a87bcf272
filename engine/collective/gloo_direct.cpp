#include "engine/collective/gloo_direct.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "engine/collective/gloo_header.hpp"
#include "engine/collective/gloo_link.hpp"
#include "engine/collective/gloo_text.hpp"

namespace train::engine {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{16} << 20;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

std::uint64_t random_word() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// 0, or the error number.
int read_memory(pid_t process, std::uint64_t address, std::span<std::byte> place) {
  while (!place.empty()) {
    const iovec local = {place.data(), place.size()};
    const iovec remote = {reinterpret_cast<void*>(address), place.size()};  // NOLINT: not ours
    const ssize_t got = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      return got == 0 ? EFAULT : errno;
    }
    // Less than was asked for ends at a page that is not there: the next call says so.
    address += static_cast<std::uint64_t>(got);
    place = place.subspan(static_cast<std::size_t>(got));
  }
  return 0;
}

int read_word(pid_t process, std::uint64_t address, std::uint64_t& word) {
  return read_memory(process, address, std::as_writable_bytes(std::span(&word, 1)));
}

DirectNote note_of(const std::uint64_t& probe) {
  DirectNote note;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (!(file >> machine) || machine.size() >= note.machine.size()) {
    return {};  // nothing to tell machines apart by: the connection is always right
  }
#ifdef PR_SET_PTRACER
  // Without Yama there is nothing to permit, and this fails: the probe shows what is possible.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
  std::copy(machine.begin(), machine.end(), note.machine.begin());
  note.process = ::getpid();
  note.address = reinterpret_cast<std::uintptr_t>(&probe);
  note.value = probe;
  return note;
}

bool can_read(const DirectNote& own, const DirectNote& theirs) {
  std::uint64_t word = 0;
  return own.machine[0] != '\0' && own.machine == theirs.machine &&
         read_word(static_cast<pid_t>(theirs.process), theirs.address, word) == 0 &&
         word == theirs.value;
}

/// Everybody's `Word`, by rank.
template <class Word>
Status tell_all(GlooLink& link, const CollectiveIdentity& identity, const std::vector<Word>& told,
                std::vector<Word>& heard) {
  Transfer transfer;
  for (std::size_t peer = 0; peer < told.size(); ++peer) {
    transfer.send.push_back(std::as_bytes(std::span(&told[peer], 1)));
    transfer.receive.push_back(std::as_writable_bytes(std::span(&heard[peer], 1)));
  }
  return link.run(identity, transfer);
}

}  // namespace

Result<std::vector<DirectPeer>> agree_on_direct(GlooLink& link, std::uint64_t generation,
                                                bool wanted) {
  const std::size_t ranks = as_index(link.world_size());
  CollectiveIdentity identity = {.generation = generation, .command = -1, .index = 1};
  const std::uint64_t probe = random_word();
  const DirectNote own = wanted ? note_of(probe) : DirectNote();
  std::vector<DirectNote> notes(ranks);
  TRAIN_RETURN_IF_ERROR(tell_all(link, identity, std::vector(ranks, own), notes));

  std::vector<std::uint8_t> can(ranks, 0);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    can[peer] = peer != as_index(link.rank()) && can_read(own, notes[peer]) ? 1 : 0;
  }
  std::vector<std::uint8_t> lent(ranks, 0);
  identity.index = 2;  // ends when all have read, so the probe lives long enough
  TRAIN_RETURN_IF_ERROR(tell_all(link, identity, can, lent));
  std::vector<DirectPeer> peers(ranks);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    peers[peer] = {static_cast<pid_t>(notes[peer].process), can[peer] != 0, lent[peer] != 0};
  }
  return peers;
}

GlooDirect::GlooDirect(int world_size)
    : peers_(as_index(world_size)), next_ticket_(random_word()) {}

bool GlooDirect::reads(int peer, std::size_t bytes) const {
  return bytes > kSmallBytes && peers_[as_index(peer)].read;
}

bool GlooDirect::lends(int peer, std::size_t bytes) const {
  return bytes > kSmallBytes && peers_[as_index(peer)].lent;
}

void GlooDirect::begin() {
  next_ticket_ += next_ticket_ + 1 == 0 ? 2 : 1;  // never 0, which means that there is none
  ticket_.store(next_ticket_);
}

DirectOffer GlooDirect::offer(std::span<const std::byte> bytes) const {
  return {.address = reinterpret_cast<std::uintptr_t>(bytes.data()),
          .ticket_address = reinterpret_cast<std::uintptr_t>(&ticket_),
          .ticket = ticket_.load()};
}

void GlooDirect::revoke() {
  ticket_.store(0);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::optional<std::string> GlooDirect::read(int peer, const DirectOffer& offer,
                                            std::span<std::byte> place,
                                            const std::function<bool()>& stop) const {
  const pid_t process = peers_[as_index(peer)].process;
  const auto lost = [&](const char* why) { return fmt::format("lost rank {} ({})", peer, why); };
  for (std::size_t begin = 0; begin < place.size(); begin += kChunkBytes) {
    const std::size_t bytes = std::min(kChunkBytes, place.size() - begin);
    std::uint64_t ticket = 0;
    int error = read_memory(process, offer.address + begin, place.subspan(begin, bytes));
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the bytes, then the ticket
    error = error == 0 ? read_word(process, offer.ticket_address, ticket) : error;
    if (error != 0) {
      return lost(std::strerror(error));
    }
    if (ticket != offer.ticket) {
      return lost("it has given up");
    }
    if (stop()) {
      return "stopped";
    }
  }
  return std::nullopt;
}

}  // namespace train::engine
