#include "tests/cuda_emulation/block.hpp"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

namespace cuda_emulation {
namespace {

TEST_CASE("emulation: every thread of every block runs once", "[cuda][emulation]") {
  std::vector<int> runs(3 * 2 * 40 * 2);
  run_grid({3, 2}, {40, 2}, 0, [&] {
    const Place& place = here();
    const unsigned block = place.block.y * place.blocks.x + place.block.x;
    const unsigned thread = place.thread.y * place.threads.x + place.thread.x;
    ++runs[block * 80 + thread];
  });
  CHECK(runs == std::vector<int>(runs.size(), 1));
}

TEST_CASE("emulation: a barrier lets none pass before the last has come", "[cuda][emulation]") {
  int arrived = 0;
  bool early = false;
  run_grid({1}, {100}, 0, [&] {
    ++arrived;
    wait_for_block();
    early |= arrived != 100;
  });
  CHECK_FALSE(early);
}

TEST_CASE("emulation: a barrier of shared memory counts arrivals and bytes, phase by phase",
          "[cuda][emulation]") {
  constexpr std::uint32_t barrier = 2048;
  constexpr std::uint32_t size_bytes = 32;
  std::vector<int> found;
  const auto pass = [&](bool order) {
    run_backwards(order);
    run_grid({1}, {64}, 4096, [&] {
      const unsigned me = here().thread.x;
      if (me == 0) {
        make_barrier(barrier, 2);
      }
      wait_for_block();
      const auto first_byte = [] { return std::to_integer<int>(*shared_chunk(0)); };
      for (unsigned phase = 0; phase < 3; ++phase) {
        if (me == 0) {
          arrive(barrier, size_bytes);
          copy_to_barrier(barrier, 0, size_bytes,
                          [phase] { *shared_chunk(0) = std::byte(phase + 1); });
          found.push_back(first_byte());  // Garbage, until the other one has come too.
        } else if (me == 63) {
          arrive(barrier, 0);
        }
        wait_for_barrier(barrier, phase % 2);
        if (me == 7) {
          found.push_back(first_byte());
        }
        wait_for_block();
      }
    });
    run_backwards(false);
  };
  pass(false);
  CHECK(found == std::vector<int>{255, 1, 255, 2, 255, 3});
  found.clear();
  pass(true);  // The bytes come last, and end the phase at once.
  CHECK(found == std::vector<int>{1, 1, 2, 2, 3, 3});
}

TEST_CASE("emulation: a barrier of shared memory that nobody can end is an error",
          "[cuda][emulation]") {
  constexpr std::uint32_t barrier = 64;
  const auto run = [](const auto& body) {
    run_grid({1}, {32}, 128, [&] {
      if (here().thread.x == 0) {
        make_barrier(barrier, 32);
      }
      wait_for_warp();
      body();
    });
  };
  CHECK_NOTHROW(run([] {
    arrive(barrier, 0);
    wait_for_barrier(barrier, 0);
  }));
  CHECK_THROWS_AS(run([] { wait_for_barrier(barrier, 0); }), std::logic_error);
  CHECK_THROWS_AS(run([] {
                    arrive(barrier, 16);  // Bytes that nobody copies.
                    wait_for_barrier(barrier, 0);
                  }),
                  std::logic_error);
  CHECK_THROWS_AS(run([] { wait_for_barrier(8, 0); }), std::logic_error);
  CHECK_THROWS_AS(run([] { copy_to_barrier(barrier, 16, 16, [] {}); }), std::logic_error);
}

TEST_CASE("emulation: some threads of a block wait for each other alone", "[cuda][emulation]") {
  std::vector<int> arrived(2);
  bool early = false;
  run_grid({1}, {128}, 0, [&] {
    const unsigned group = here().thread.x / 64;
    ++arrived[group];
    wait_for_threads(1 + group, 64);
    early |= arrived[group] != 64;
  });
  CHECK_FALSE(early);
  CHECK_THROWS_AS(run_grid({1}, {64}, 0, [] { wait_for_threads(1, 65); }), std::logic_error);
}

TEST_CASE("emulation: what lacks a barrier gives another result backwards", "[cuda][emulation]") {
  const auto sum_without_barrier = [](bool order) {
    run_backwards(order);
    std::vector<int> shared(64, -1);
    int sum = 0;
    run_grid({2}, {32}, 0, [&] {
      const unsigned me = here().thread.x;
      shared[me] = static_cast<int>(me);
      sum += shared[me ^ 1U];
    });
    run_backwards(false);
    return sum;
  };
  CHECK(sum_without_barrier(false) != sum_without_barrier(true));
}

TEST_CASE("emulation: a launch that a device would refuse is an error", "[cuda][emulation]") {
  const auto nothing = [] {};
  CHECK_THROWS_AS(run_grid({1}, {1025}, 0, nothing), std::logic_error);
  CHECK_THROWS_AS(run_grid({1, 65536}, {1}, 0, nothing), std::logic_error);
  CHECK_THROWS_AS(run_grid({1}, {1}, std::size_t{1} << 20U, nothing), std::logic_error);
  const int kernel = 0;
  CHECK_NOTHROW(check_shared(&kernel, 48 << 10));
  CHECK_THROWS_AS(check_shared(&kernel, (48 << 10) + 1), std::logic_error);
  allow_shared(&kernel, 100 << 10);
  CHECK_NOTHROW(check_shared(&kernel, 100 << 10));
  CHECK_THROWS_AS(allow_shared(&kernel, std::size_t{1} << 20U), std::logic_error);
}

TEST_CASE("emulation: threads see each other's values, and not those of who has ended",
          "[cuda][emulation]") {
  std::vector<std::uint64_t> seen(64);
  std::vector<std::uint32_t> votes(64);
  std::vector<std::uint32_t> like_me(64);
  run_grid({1}, {64}, 0, [&] {
    const unsigned me = here().thread.x;
    if (me == 40) {
      return;
    }
    seen[me] = exchange(100 + me, lane_index() ^ 1U);
    votes[me] = ballot(me % 32 < 2);
    like_me[me] = lanes_with(me % 16);
  });
  CHECK(seen[6] == 107);
  CHECK(seen[63] == 162);
  CHECK(votes[5] == 3);
  CHECK(votes[33] == 3);
  CHECK(like_me[5] == 0x00200020U);
  CHECK(like_me[56] == 0x01000000U);
}

TEST_CASE("emulation: a barrier that some never reach is an error", "[cuda][emulation]") {
  CHECK_THROWS_AS(
      run_grid({1}, {64}, 0, [] { here().thread.x == 5 ? wait_for_block() : wait_for_warp(); }),
      std::logic_error);
  CHECK_THROWS_AS(run_grid({1}, {2048}, 0, [] {}), std::logic_error);
  CHECK_THROWS_AS(run_grid({1}, {1}, static_cast<std::size_t>(most_shared_bytes()) + 1, [] {}),
                  std::logic_error);
}

}  // namespace
}  // namespace cuda_emulation
