#include "tests/cuda_emulation/block.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/emulated_thread.hpp"

// Leaves in `from` where this stack goes on, and goes on with the stack `to`. What a call has to
// keep are the registers that it pushes; the C library's jumps also look for handlers to call, and
// swapcontext() asks the kernel for the mask of signals, which took most of the emulation's time.
extern "C" void cuda_emulation_switch(void** from, void* to);
asm(R"(
  .pushsection .text
  .p2align 4
  .type cuda_emulation_switch, @function
cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size cuda_emulation_switch, . - cuda_emulation_switch
  .popsection
)");

namespace cuda_emulation {
namespace {

constexpr unsigned warp = 32;
constexpr unsigned warpgroup = 128;

bool& backwards() {
  static const char* const order = std::getenv("CUDA_EMULATION_ORDER");
  static bool set = order != nullptr && std::string_view(order) == "backwards";
  return set;
}

std::map<const void*, std::size_t>& allowed_shared() {
  static std::map<const void*, std::size_t> bytes;
  return bytes;
}

std::mutex one_grid;
std::int64_t grids = 0;  // Under the mutex.

/// Words that the threads of a warp show to each other. Turns alternate between two places: a quick
/// thread shows its next word before all others have read this one.
struct Warp {
  struct Shown {
    std::array<WarpWords::Words, warp> words{};
    std::array<int, warp> instructions{};
  };
  std::array<Shown, 2> places;
  std::array<unsigned, warp> turns{};  // That each of its threads has had.
  unsigned turn_checked = 0;
};

constexpr std::size_t most_bytes = 227 << 10;

/// A barrier in shared memory.
struct Barrier {
  unsigned arrivals = 0;  ///< That end a phase.
  unsigned arrived = 0;
  unsigned phase = 0;  ///< That is under way.
  std::int64_t missing_bytes = 0;
  std::vector<std::function<void()>> copies;

  void end_if_over() {
    if (arrived < arrivals || missing_bytes != 0) {
      return;
    }
    for (const auto& copy : std::exchange(copies, {})) {
      copy();
    }
    arrived = 0;
    ++phase;
  }
  [[nodiscard]] bool over(unsigned parity) const { return phase % 2 != parity; }
};

/// The block that runs; its threads' stacks are kept for the next one.
class Block {
 public:
  void run(const std::function<void()>& body, const Index& block, const Extent& threads,
           const Extent& blocks) {
    body_ = &body;
    place_ = {.thread = {}, .block = block, .threads = threads, .blocks = blocks};
    count_ = threads.x * threads.y * threads.z;
    while (threads_.size() < count_) {
      threads_.push_back(std::make_unique<Thread>());
    }
    while (warps_.size() * warp < count_) {
      warps_.push_back(std::make_unique<Warp>());
    }
    unpublished_.assign(unpublished_.size(), false);
    barriers_.clear();
    for (unsigned i = 0; i < count_; ++i) {
      start(i);
    }
    while (step()) {
    }
    check_warpgroups();
  }

  /// Gives the turn back until `state` is over.
  void wait(Thread::State state) {
    Thread& me = *threads_[current_];
    me.state = state;
    give_turn_back(me);
  }

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] unsigned current() const { return current_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] Thread& thread(unsigned i) { return *threads_[i]; }
  [[nodiscard]] Warp& warp_of_thread() { return *warps_[current_ / warp]; }
  [[nodiscard]] std::byte* shared() { return shared_.data(); }
  /// Of each 16 bytes of shared memory: a copy has brought what nobody has published.
  [[nodiscard]] std::vector<bool>& unpublished() { return unpublished_; }
  void make_barrier(std::uint32_t address, unsigned arrivals) {
    barriers_[address] = Barrier();
    barriers_[address].arrivals = arrivals;
  }
  [[nodiscard]] Barrier& barrier(std::uint32_t address) {
    const auto found = barriers_.find(address);
    if (found == barriers_.end()) {
      fail("a barrier that nobody has made");
    }
    return found->second;
  }
  /// Ends the grid with this error. Called by a thread, which goes no further.
  [[noreturn]] void fail(const char* what) {
    failure_ = what;
    while (true) {
      wait(Thread::State::at_block);
    }
  }
  void forget_shared() { std::memset(shared_.data(), 0xff, shared_.size()); }

 private:
  static void enter();

  void start(unsigned i) {
    Thread& thread = *threads_[i];
    if (thread.state != Thread::State::done) {
      thread.goes_on = nullptr;  // Its grid failed.
    }
    const Extent& size = place_.threads;
    thread.index = {.x = i % size.x, .y = i / size.x % size.y, .z = i / size.x / size.y};
    thread.state = Thread::State::ready;
    warps_[i / warp]->turns.fill(0);
    warps_[i / warp]->turn_checked = 0;
    thread.begun.clear();
    thread.unpublished.clear();
    thread.products.clear();
    thread.products_begun = 0;
    // A deque and a map take time to clear though they be empty, here for each thread of each
    // block.
    if (!thread.committed.empty() || !thread.product_groups.empty() ||
        !thread.sums_before.empty()) {
      thread.committed.clear();
      thread.product_groups.clear();
      thread.sums_before.clear();
    }
  }

  void take_turn(Thread& thread) {
    if (thread.goes_on == nullptr) {
      thread.goes_on = first_turn(thread);
    }
    cuda_emulation_switch(&scheduler_, thread.goes_on);
  }
  void give_turn_back(Thread& thread) { cuda_emulation_switch(&thread.goes_on, scheduler_); }

  /// The end of the thread's stack as cuda_emulation_switch() leaves one: registers, and where to
  /// return to. A function begins where a call would have left the stack. The stack is a new one,
  /// because a sanitizer remembers what lay in one that a failed grid has left.
  static void* first_turn(Thread& thread) {
    constexpr std::size_t kRegisters = 6;
    thread.stack = std::make_unique_for_overwrite<std::byte[]>(Thread::stack_bytes);
    const auto end = reinterpret_cast<std::uintptr_t>(thread.stack.get() + Thread::stack_bytes);
    auto* const words = reinterpret_cast<void**>(end / 16 * 16) - (kRegisters + 2);
    std::fill_n(words, kRegisters + 2, nullptr);
    words[kRegisters] = reinterpret_cast<void*>(&enter);
    return words;
  }

  void check_warpgroups() const {
    for (unsigned i = 0; i < count_; ++i) {
      const Thread& thread = *threads_[i];
      if (thread.products_begun != threads_[i / warpgroup * warpgroup]->products_begun) {
        throw std::logic_error("a product of a warpgroup that not all of its threads have begun");
      }
      if (!thread.products.empty() || !thread.product_groups.empty()) {
        throw std::logic_error("a product of a warpgroup that nobody has waited for");
      }
    }
  }

  /// Lets every thread that can go on do so. False when all have ended.
  bool step() {
    bool moved = false;
    const bool from_last = backwards();
    for (unsigned turn = 0; turn < count_; ++turn) {
      const unsigned i = from_last ? count_ - 1 - turn : turn;
      if (threads_[i]->state == Thread::State::ready) {
        current_ = i;
        place_.thread = threads_[i]->index;
        take_turn(*threads_[i]);
        moved = true;
        if (const char* failure = std::exchange(failure_, nullptr); failure != nullptr) {
          throw std::logic_error(failure);
        }
      }
    }
    for (unsigned first = 0; first < count_; first += warp) {
      moved |= release(first, std::min(count_, first + warp), Thread::State::at_warp);
    }
    moved |= release(0, count_, Thread::State::at_block);
    moved |= release_at_barriers();
    if (moved) {
      return true;
    }
    for (unsigned i = 0; i < count_; ++i) {
      if (threads_[i]->state != Thread::State::done) {
        throw std::logic_error("a thread of a block waits for others that never come");
      }
    }
    return false;
  }

  /// Threads [begin, end) go on when all of them that still run are in `state`.
  bool release(unsigned begin, unsigned end, Thread::State state) {
    unsigned waiting = 0;
    for (unsigned i = begin; i < end; ++i) {
      const Thread::State now = threads_[i]->state;
      if (now != state && now != Thread::State::done) {
        return false;
      }
      waiting += now == state ? 1 : 0;
    }
    for (unsigned i = begin; i < end; ++i) {
      if (threads_[i]->state == state) {
        threads_[i]->state = Thread::State::ready;
      }
    }
    return waiting > 0;
  }

  /// Threads go on whose phase is over.
  bool release_at_barriers() {
    bool moved = false;
    for (unsigned i = 0; i < count_; ++i) {
      Thread& thread = *threads_[i];
      if (thread.state == Thread::State::at_barrier &&
          barriers_.at(thread.barrier).over(thread.parity)) {
        thread.state = Thread::State::ready;
        moved = true;
      }
    }
    return moved;
  }

  const std::function<void()>* body_ = nullptr;
  const char* failure_ = nullptr;
  Place place_;
  unsigned count_ = 0;
  unsigned current_ = 0;
  void* scheduler_ = nullptr;  // Where it goes on.
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::unique_ptr<Warp>> warps_;
  alignas(1024) std::array<std::byte, most_bytes> shared_{};
  std::vector<bool> unpublished_ = std::vector<bool>(most_bytes / 16);
  std::map<std::uint32_t, Barrier> barriers_;
};

Block running;

Block& block() { return running; }

// The same stack for the thread of this number in every block that comes: it is left only where a
// grid has failed.
void Block::enter() {
  Block& me = block();
  while (true) {
    (*me.body_)();
    me.wait(Thread::State::done);
  }
}

/// What a device refuses.
void check_launch(const Extent& blocks, const Extent& threads, std::size_t shared_bytes) {
  constexpr unsigned most_x = 0x7fffffff;
  constexpr unsigned most_yz = 65535;
  if (threads.x * threads.y * threads.z > 1024 || threads.z > 64 ||
      shared_bytes > static_cast<std::size_t>(most_shared_bytes())) {
    throw std::logic_error("no device has room for a block of this size");
  }
  if (blocks.x > most_x || blocks.y > most_yz || blocks.z > most_yz) {
    throw std::logic_error("no device takes a grid of this size");
  }
}

}  // namespace

int capability() {
  static const char* const major = std::getenv("CUDA_EMULATION_CAPABILITY");
  return major != nullptr && std::string_view(major) == "9" ? 9 : 8;
}

int most_shared_bytes() { return (capability() == 9 ? 227 : 163) << 10; }

void run_backwards(bool on) { backwards() = on; }

void allow_shared(const void* kernel, std::size_t size_bytes) {
  const std::lock_guard lock(one_grid);
  if (size_bytes > static_cast<std::size_t>(most_shared_bytes())) {
    throw std::logic_error("no device has so much shared memory");
  }
  allowed_shared()[kernel] = size_bytes;
}

void check_shared(const void* kernel, std::size_t size_bytes) {
  constexpr std::size_t without_asking = 48 << 10;
  const std::lock_guard lock(one_grid);
  const auto allowed = allowed_shared().find(kernel);
  if (size_bytes > (allowed == allowed_shared().end() ? without_asking : allowed->second)) {
    throw std::logic_error("the kernel was not allowed so much shared memory");
  }
}

const Place& here() { return block().place(); }

void run_grid(const Extent& blocks, const Extent& threads, std::size_t shared_bytes,
              const std::function<void()>& body) {
  const std::lock_guard lock(one_grid);
  check_launch(blocks, threads, shared_bytes);
  ++grids;
  block().forget_shared();
  const unsigned count = blocks.x * blocks.y * blocks.z;
  for (unsigned turn = 0; turn < count; ++turn) {
    const unsigned i = backwards() ? count - 1 - turn : turn;
    const Index index = {
        .x = i % blocks.x, .y = i / blocks.x % blocks.y, .z = i / blocks.x / blocks.y};
    block().run(body, index, threads, blocks);
  }
}

std::int64_t grids_run() {
  const std::lock_guard lock(one_grid);
  return grids;
}

void wait_for_block() { block().wait(Thread::State::at_block); }

void wait_for_warp() { block().wait(Thread::State::at_warp); }

unsigned lane_index() { return block().current() % warp; }

namespace {

/// Shows `words` to the other lanes, and waits until all that still run have shown theirs.
Warp::Shown& show_to_warp(int instruction, const WarpWords::Words& words) {
  Warp& mine = block().warp_of_thread();
  const unsigned lane = lane_index();
  Warp::Shown& place = mine.places[mine.turns[lane]++ % 2];
  place.words[lane] = words;
  place.instructions[lane] = instruction;
  wait_for_warp();
  return place;
}

constexpr int shuffle = 0;  // Which some of a warp may leave out: those that have ended.

WarpWords::Words words_of(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32U)};
}

/// Bit i: thread i of this warp shows `expected`, when all that still run have shown `bits`.
std::uint32_t lanes_that_show(std::uint64_t bits, std::uint64_t expected) {
  const Warp::Shown& shown = show_to_warp(shuffle, words_of(bits));
  const Warp& mine = block().warp_of_thread();
  const unsigned turn = mine.turns[lane_index()];
  const WarpWords::Words words = words_of(expected);
  std::uint32_t lanes = 0;
  for (unsigned lane = 0; lane < warp; ++lane) {
    // Who had ended before has not had this turn; who ends sooner than this one reads has.
    lanes |= mine.turns[lane] >= turn && shown.words[lane] == words ? 1U << lane : 0U;
  }
  return lanes;
}

}  // namespace

std::uint64_t exchange(std::uint64_t bits, unsigned lane) {
  const WarpWords::Words words = show_to_warp(shuffle, words_of(bits)).words[lane];
  return words[0] | static_cast<std::uint64_t>(words[1]) << 32U;
}

std::uint32_t ballot(bool value) { return lanes_that_show(value ? 1 : 0, 1); }

std::uint32_t lanes_with(std::uint64_t bits) { return lanes_that_show(bits, bits); }

WarpWords WarpWords::show(int instruction, std::initializer_list<std::uint32_t> words) {
  Words mine{};
  std::copy(words.begin(), words.end(), mine.begin());
  const Warp::Shown& shown = show_to_warp(instruction, mine);
  Warp& of = block().warp_of_thread();
  const unsigned turn = of.turns[lane_index()];
  if (std::exchange(of.turn_checked, turn) != turn) {  // By the first that goes on.
    for (unsigned lane = 0; lane < warp; ++lane) {
      // Who is a turn ahead has shown its next in the other place; who has ended is not there.
      if (of.turns[lane] < turn || shown.instructions[lane] != instruction) {
        block().fail("an instruction of a whole warp that not all of its threads have come to");
      }
    }
  }
  WarpWords all;
  all.lanes_ = shown.words.data();
  return all;
}

std::byte* shared_chunk(std::uint32_t address) {
  if (address % 16 != 0 || address + 16 > static_cast<std::uint32_t>(most_shared_bytes())) {
    block().fail("an address of shared memory that is not aligned to 16 bytes, or outside");
  }
  return block().shared() + address;
}

void copy_later(std::uint32_t to, const void* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    block().fail("a copy of 16 bytes from where it is not aligned to them");
  }
  std::memset(shared_chunk(to), 0xff, 16);
  block().thread(block().current()).begun.push_back({to, from});
}

void commit_copies() {
  Thread& me = block().thread(block().current());
  me.committed.push_back(std::move(me.begun));
  me.begun.clear();
}

void wait_for_copies(unsigned pending) {
  Thread& me = block().thread(block().current());
  for (; me.committed.size() > pending; me.committed.pop_front()) {
    for (const Thread::Copy& copy : me.committed.front()) {
      block().unpublished()[copy.to / 16] = true;
      me.unpublished.push_back(copy.to / 16);
      if (copy.from == nullptr) {
        std::memset(shared_chunk(copy.to), 0, 16);
      } else {
        std::memcpy(shared_chunk(copy.to), copy.from, 16);
      }
    }
  }
}

void multiply_later(float* sums, std::size_t count, std::function<void()> run) {
  Thread& me = block().thread(block().current());
  ++me.products_begun;
  if (me.sums_before.try_emplace(sums, sums, sums + count).second) {
    std::fill_n(sums, count, std::numeric_limits<float>::quiet_NaN());
  }
  me.products.push_back({sums, std::move(run)});
}

void commit_products() {
  Thread& me = block().thread(block().current());
  me.product_groups.push_back(std::exchange(me.products, {}));
}

void wait_for_products(unsigned pending) {
  Thread& me = block().thread(block().current());
  for (; me.product_groups.size() > pending; me.product_groups.pop_front()) {
    for (const Thread::Product& product : me.product_groups.front()) {
      if (const auto before = me.sums_before.extract(product.sums); !before.empty()) {
        std::copy(before.mapped().begin(), before.mapped().end(), product.sums);
      }
      product.run();
    }
  }
}

void publish_shared() {
  Thread& me = block().thread(block().current());
  for (const std::uint32_t chunk : std::exchange(me.unpublished, {})) {
    block().unpublished()[chunk] = false;
  }
}

const std::byte* product_chunk(std::uint32_t address) {
  const std::byte* chunk = shared_chunk(address);
  if (block().unpublished()[address / 16]) {
    block().fail("a product reads what was copied to shared memory and not published");
  }
  return chunk;
}

void make_barrier(std::uint32_t address, unsigned arrivals) {
  block().make_barrier(address, arrivals);
}

void arrive(std::uint32_t address, std::uint32_t expected_bytes) {
  Barrier& barrier = block().barrier(address);
  if (barrier.arrived == barrier.arrivals) {
    block().fail("a barrier at which more arrive than it was made for");
  }
  barrier.missing_bytes += expected_bytes;
  ++barrier.arrived;
  barrier.end_if_over();
}

void wait_for_barrier(std::uint32_t address, unsigned parity) {
  if (!block().barrier(address).over(parity)) {
    Thread& me = block().thread(block().current());
    me.barrier = address;
    me.parity = parity;
    block().wait(Thread::State::at_barrier);
  }
}

void copy_to_barrier(std::uint32_t address, std::uint32_t to, std::uint32_t size_bytes,
                     std::function<void()> run) {
  if (to % 1024 != 0) {
    block().fail("a box that does not begin at a multiple of 1024 bytes");
  }
  for (std::uint32_t at = 0; at < size_bytes; at += 16) {
    std::memset(shared_chunk(to + at), 0xff, 16);
  }
  Barrier& barrier = block().barrier(address);
  barrier.copies.push_back(std::move(run));
  barrier.missing_bytes -= size_bytes;
  barrier.end_if_over();
}

void wait_for_threads(unsigned id, unsigned count) {
  unsigned waiting = 1;
  for (unsigned i = 0; i < block().count(); ++i) {
    const Thread& thread = block().thread(i);
    waiting += thread.state == Thread::State::at_threads && thread.id == id ? 1 : 0;
  }
  if (waiting == count) {
    for (unsigned i = 0; i < block().count(); ++i) {
      Thread& thread = block().thread(i);
      if (thread.state == Thread::State::at_threads && thread.id == id) {
        thread.state = Thread::State::ready;
      }
    }
    return;
  }
  block().thread(block().current()).id = id;
  block().wait(Thread::State::at_threads);
}

std::byte* dynamic_shared_memory() { return block().shared(); }

}  // namespace cuda_emulation
