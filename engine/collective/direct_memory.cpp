#include "engine/collective/direct_memory.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/process/host_name.hpp"
#include "engine/collective/exchange_header.hpp"
#include "engine/collective/tcp_link.hpp"

namespace train::engine {
namespace {

constexpr std::size_t kDirectChunkBytes = std::size_t{16} << 20;

static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

std::uint64_t random_word() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// Reads `place`, then the word at `word_address` if there is a `word`, in one call unless the
/// kernel stops early. 0, or the error number.
int read_memory(pid_t process, std::uint64_t address, std::span<std::byte> place,
                std::uint64_t word_address, std::uint64_t* word) {
  const std::size_t word_bytes = word == nullptr ? 0 : sizeof(*word);
  while (true) {
    const std::array<iovec, 2> local = {{{place.data(), place.size()}, {word, word_bytes}}};
    const std::array<iovec, 2> remote = {
        {{reinterpret_cast<void*>(address), place.size()},       // NOLINT: not ours
         {reinterpret_cast<void*>(word_address), word_bytes}}};  // NOLINT: not ours
    const ssize_t got = ::process_vm_readv(process, local.data(), 2, remote.data(), 2, 0);
    if (got <= 0) {
      return got == 0 ? EFAULT : errno;
    }
    const auto bytes = static_cast<std::size_t>(got);
    if (bytes == place.size() + word_bytes) {
      return 0;
    }
    // A short read ends at an unmapped page: the next call returns the error.
    address += std::min(bytes, place.size());
    place = place.subspan(std::min(bytes, place.size()));
  }
}

DirectNote note_of(const std::uint64_t& probe, int inbox) {
  DirectNote note;
  const std::string machine = boot_id();
  if (machine.empty() || machine.size() >= note.machine.size()) {
    return {};  // nothing to tell machines apart by: the connection is always right
  }
#ifdef PR_SET_PTRACER
  // Without Yama this call fails, as no permission is needed: the probe shows what is possible.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
  std::copy(machine.begin(), machine.end(), note.machine.begin());
  note.process = ::getpid();
  note.address = reinterpret_cast<std::uintptr_t>(&probe);
  note.value = probe;
  note.inbox = inbox;
  return note;
}

bool can_read(const DirectNote& own, const DirectNote& theirs) {
  std::uint64_t word = 0;
  return own.machine[0] != '\0' && own.machine == theirs.machine &&
         read_memory(static_cast<pid_t>(theirs.process), theirs.address,
                     std::as_writable_bytes(std::span(&word, 1)), 0, nullptr) == 0 &&
         word == theirs.value;
}

/// Everybody's `Word`, by rank.
template <class Word>
Status tell_all(TcpLink& link, const CollectiveIdentity& identity, const std::vector<Word>& told,
                std::vector<Word>& heard) {
  Transfer transfer;
  for (std::size_t peer = 0; peer < told.size(); ++peer) {
    transfer.send.push_back(std::as_bytes(std::span(&told[peer], 1)));
    transfer.receive.push_back(std::as_writable_bytes(std::span(&heard[peer], 1)));
  }
  return link.run(identity, transfer);
}

}  // namespace

Result<LocalRanks> agree_on_local(TcpLink& link, std::uint64_t generation, bool wanted) {
  const std::size_t ranks = as_index(link.world_size());
  CollectiveIdentity identity = {.generation = generation, .command = -1, .index = 1};
  const std::uint64_t probe = random_word();
  LocalRanks local;
  local.own = wanted ? InboxMemory::make(link.world_size(), probe) : nullptr;
  const DirectNote own = local.own ? note_of(probe, local.own->descriptor()) : DirectNote();
  std::vector<DirectNote> notes(ranks);
  TRAIN_RETURN_IF_ERROR(tell_all(link, identity, std::vector(ranks, own), notes));

  std::vector<std::uint8_t> reached(ranks, 0);
  local.inboxes.resize(ranks);
  local.processes.resize(ranks);
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    local.processes[peer] = static_cast<pid_t>(notes[peer].process);
    if (peer != as_index(link.rank()) && can_read(own, notes[peer])) {
      local.inboxes[peer] = InboxMemory::of(local.processes[peer], notes[peer].inbox,
                                            link.world_size(), notes[peer].value);
      reached[peer] = local.inboxes[peer] ? 1 : 0;
    }
  }
  std::vector<std::uint8_t> reaches(ranks, 0);
  identity.index = 2;  // ends when all have looked, so probe and descriptor live long enough
  TRAIN_RETURN_IF_ERROR(tell_all(link, identity, reached, reaches));
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    if (reaches[peer] == 0) {
      local.inboxes[peer] = nullptr;
    }
  }
  if (local.own) {
    local.own->close_descriptor();
  }
  return local;
}

DirectMemory::DirectMemory() : next_ticket_(random_word()) {}

void DirectMemory::set(std::atomic<std::uint64_t>& own,
                       std::vector<const std::atomic<std::uint64_t>*> peers,
                       std::vector<pid_t> processes) {
  ticket_ = &own;
  tickets_ = std::move(peers);
  processes_ = std::move(processes);
}

void DirectMemory::begin() {
  next_ticket_ += next_ticket_ + 1 == 0 ? 2 : 1;  // never 0, which means that there is none
  if (ticket_ != nullptr) {
    ticket_->store(next_ticket_);
  }
}

DirectOffer DirectMemory::offer(std::span<const std::byte> bytes) const {
  return {.address = reinterpret_cast<std::uintptr_t>(bytes.data()),
          .ticket_address = reinterpret_cast<std::uintptr_t>(ticket_),
          .ticket = next_ticket_};
}

void DirectMemory::revoke() {
  if (ticket_ != nullptr) {
    ticket_->store(0);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::optional<std::string> DirectMemory::read(int peer, const DirectOffer& offer,
                                              std::span<std::byte> place,
                                              const std::function<bool()>& stop) const {
  const auto lost = [&](const char* why) { return fmt::format("lost rank {} ({})", peer, why); };
  for (std::size_t begin = 0; begin < place.size(); begin += kDirectChunkBytes) {
    const std::size_t bytes = std::min(kDirectChunkBytes, place.size() - begin);
    std::uint64_t ticket = 0;
    const int error = read_memory(processes_[as_index(peer)], offer.address + begin,
                                  place.subspan(begin, bytes), offer.ticket_address, &ticket);
    if (error != 0) {
      return lost(std::strerror(error));
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the bytes, then the ticket
    if (ticket != offer.ticket || tickets_[as_index(peer)]->load() != offer.ticket) {
      return lost("it has given up");
    }
    if (stop()) {
      return "stopped";
    }
  }
  return std::nullopt;
}

}  // namespace train::engine
