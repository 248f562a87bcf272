#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/collective/collective.hpp"
#include "tests/engine/collective/exchange_fixture.hpp"

namespace train::engine::inproc_test {
namespace {

using test::end_of;
using test::identity_of;
using test::Parcel;
using test::start;

std::size_t uneven(int from, int to) {
  return static_cast<std::size_t>(from * 1000 + to * 17) * static_cast<std::size_t>(from != 1);
}

std::vector<Parcel> parcels_of(int world_size, const test::SizeOf& size_of) {
  std::vector<Parcel> parcels;
  for (int rank = 0; rank < world_size; ++rank) {
    parcels.emplace_back(rank, world_size, size_of);
  }
  return parcels;
}

/// Ends of one exchange that every rank asks for, from this thread, in the order of ranks.
std::vector<std::string> exchange_all(std::vector<std::unique_ptr<Collectives>>& ranks,
                                      std::vector<Parcel>& parcels, std::int64_t command) {
  std::vector<std::future<Status>> ends;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ends.push_back(start(*ranks[rank], identity_of(command), parcels[rank].transfer()));
  }
  std::vector<std::string> texts;
  for (std::future<Status>& end : ends) {
    texts.push_back(end_of(end, std::chrono::milliseconds(0)));
  }
  return texts;
}

}  // namespace

TEST_CASE("inproc: every byte finds its rank, all from one thread", "[engine][collective]") {
  const int world_size = GENERATE(1, 2, 3, 4);
  auto ranks = make_inproc(world_size);
  REQUIRE(ranks.size() == static_cast<std::size_t>(world_size));
  CHECK(ranks.back()->rank() == world_size - 1);
  CHECK(ranks.back()->world_size() == world_size);
  for (const test::SizeOf& size_of :
       {test::SizeOf(uneven), test::SizeOf([](int, int) { return 1; }),
        test::SizeOf([](int, int) { return 0; }),
        test::SizeOf([](int from, int) { return from; })}) {
    auto parcels = parcels_of(world_size, size_of);
    for (const std::string& text : exchange_all(ranks, parcels, 1)) {
      CHECK(text.empty());
    }
    for (const Parcel& parcel : parcels) {
      CHECK(parcel.whole());
    }
  }
}

TEST_CASE("inproc: nothing moves before all that hang together are there", "[engine][collective]") {
  auto ranks = make_inproc(4);
  // 0 and 1 exchange, 2 and 3 do: two pairs that do not wait for each other.
  auto parcels = parcels_of(4, [](int from, int to) { return from / 2 == to / 2 ? 5U : 0U; });
  auto first = start(*ranks[0], identity_of(1), parcels[0].transfer());
  auto third = start(*ranks[2], identity_of(1), parcels[2].transfer());
  CHECK(end_of(first, std::chrono::milliseconds(0)) == "has not ended");
  auto second = start(*ranks[1], identity_of(1), parcels[1].transfer());
  CHECK(end_of(first).empty());
  CHECK(end_of(second).empty());
  CHECK(parcels[0].whole());
  CHECK(end_of(third, std::chrono::milliseconds(0)) == "has not ended");
  CHECK(parcels[2].untouched());
  auto fourth = start(*ranks[3], identity_of(1), parcels[3].transfer());
  CHECK(end_of(third).empty());
  CHECK(end_of(fourth).empty());
}

TEST_CASE("inproc: ranks on threads of their own keep the order", "[engine][collective]") {
  constexpr int kRanks = 4;
  static constexpr int kExchanges = 1000;
  auto ranks = make_inproc(kRanks);
  std::vector<int> ended_in_order(kRanks, 0);
  std::vector<int> whole(kRanks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<Parcel> parcels;
      std::vector<std::future<Status>> ends;
      int& count = ended_in_order[static_cast<std::size_t>(rank)];
      for (int i = 0; i < kExchanges; ++i) {
        parcels.emplace_back(
            rank, kRanks, [](int from, int to) { return from + to; }, i);
      }
      std::promise<void> all;
      for (int i = 0; i < kExchanges; ++i) {
        ranks[static_cast<std::size_t>(rank)]->exchange(
            identity_of(i), parcels[static_cast<std::size_t>(i)].transfer(),
            [&count, &all, i](const Status& status) {
              count += status.ok() && count == i ? 1 : 0;
              if (i == kExchanges - 1) {
                all.set_value();
              }
            });
      }
      all.get_future().wait();
      for (const Parcel& parcel : parcels) {
        whole[static_cast<std::size_t>(rank)] += parcel.whole() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(ended_in_order == std::vector<int>(kRanks, kExchanges));
  CHECK(whole == std::vector<int>(kRanks, kExchanges));
}

TEST_CASE("inproc: an end may ask for the next exchange", "[engine][collective]") {
  auto ranks = make_inproc(2);
  auto parcels = parcels_of(2, [](int, int) { return 3; });
  std::vector<int> ended(2, 0);
  constexpr int kChain = 20000;  // would not fit the stack if each nested in the one before
  std::function<void(std::size_t)> go_on = [&](std::size_t rank) {
    ranks[rank]->exchange(identity_of(ended[rank]), parcels[rank].transfer(),
                          [&, rank](const Status& status) {
                            REQUIRE(status.ok());
                            if (++ended[rank] < kChain) {
                              go_on(rank);
                            }
                          });
  };
  go_on(0);
  go_on(1);
  CHECK(ended == std::vector<int>(2, kChain));
}

TEST_CASE("inproc: two that differ fail both, with both names, and move nothing",
          "[engine][collective][EX-2]") {
  auto ranks = make_inproc(3);
  auto parcels = parcels_of(3, [](int from, int to) { return from < 2 && to < 2 ? 8U : 0U; });
  CollectiveIdentity other = identity_of(7, 3);
  SECTION("index") { other = identity_of(7, 4); }
  SECTION("command") { other = identity_of(8, 3); }
  SECTION("channel") { other = identity_of(7, 3, Channel::gather); }
  SECTION("hash") { other.hash = 0xdef; }
  SECTION("generation") { other.generation = 2; }
  auto first = start(*ranks[0], identity_of(7, 3), parcels[0].transfer());
  auto second = start(*ranks[1], other, parcels[1].transfer());
  auto third = start(*ranks[2], identity_of(7, 3), parcels[2].transfer());
  for (const std::string& text : {end_of(first), end_of(second)}) {
    CHECK_THAT(text, Catch::Contains("rank 0 is at " + to_string(identity_of(7, 3))));
    CHECK_THAT(text, Catch::Contains("rank 1 is at " + to_string(other)));
  }
  CHECK(parcels[0].untouched());
  CHECK(parcels[1].untouched());
  CHECK(end_of(third).empty());
}

TEST_CASE("inproc: ranges of different length are a difference", "[engine][collective]") {
  auto ranks = make_inproc(2);
  Parcel small(0, 2, [](int, int) { return 8; });
  Parcel large(1, 2, [](int, int) { return 9; });
  auto first = start(*ranks[0], identity_of(1), small.transfer());
  auto second = start(*ranks[1], identity_of(1), large.transfer());
  CHECK_THAT(end_of(first), Catch::Contains("8 bytes") && Catch::Contains("9 bytes"));
  CHECK_THAT(end_of(second), Catch::Contains("8 bytes") && Catch::Contains("9 bytes"));
  CHECK(small.untouched());
  CHECK(large.untouched());
}

TEST_CASE("inproc: cancel of one rank reaches those who wait for it", "[engine][collective]") {
  auto ranks = make_inproc(3);
  auto parcels = parcels_of(3, [](int, int) { return 8; });
  auto first = start(*ranks[0], identity_of(1), parcels[0].transfer());
  auto third = start(*ranks[2], identity_of(1), parcels[2].transfer());
  ranks[2]->cancel("a disk failed");
  CHECK_THAT(end_of(first), Catch::Contains("rank 2") && Catch::Contains("a disk failed"));
  CHECK_THAT(end_of(third), Catch::Contains("a disk failed"));
  // Later ones, too.
  auto second = start(*ranks[1], identity_of(1), parcels[1].transfer());
  CHECK_THAT(end_of(second), Catch::Contains("a disk failed"));
  auto later = start(*ranks[2], identity_of(2), parcels[2].transfer());
  CHECK_THAT(end_of(later), Catch::Contains("a disk failed"));
}

TEST_CASE("inproc: a rank that is destroyed fails its own and its peers", "[engine][collective]") {
  auto ranks = make_inproc(2);
  auto parcels = parcels_of(2, [](int, int) { return 8; });
  auto first = start(*ranks[0], identity_of(1), parcels[0].transfer());
  ranks[0].reset();
  CHECK_THAT(end_of(first, std::chrono::milliseconds(0)), Catch::Contains("closed"));
  auto second = start(*ranks[1], identity_of(1), parcels[1].transfer());
  CHECK_THAT(end_of(second), Catch::Contains("rank 0"));
}

namespace {

using ThreeBytes = std::array<std::byte, 3>;

constexpr ThreeBytes kOwnBytes = {std::byte{1}, std::byte{2}, std::byte{250}};

}  // namespace

TEST_CASE("inproc: a world of one gets its own bytes", "[engine][collective]") {
  const std::unique_ptr<Collectives> alone = std::move(make_inproc(1).front());
  CHECK(alone->rank() == 0);
  CHECK(alone->world_size() == 1);
  ThreeBytes received{};
  int finished = 0;
  const auto done = [&](const Status& status) {
    CHECK(status.ok());
    ++finished;
  };
  alone->exchange({}, {{kOwnBytes}, {received}}, done);
  alone->exchange({}, {{std::span<const std::byte>()}, {std::span<std::byte>()}}, done);
  alone->exchange({}, {{received}, {received}}, done);
  CHECK(finished == 3);
  CHECK(received == kOwnBytes);
  CHECK(Transfer{{kOwnBytes}, {received}}.sent_bytes(0) == 0);
}

TEST_CASE("inproc: a transfer of the wrong shape is a defect", "[engine][collective]") {
  const std::unique_ptr<Collectives> alone = std::move(make_inproc(1).front());
  ThreeBytes received{};
  const auto never = [](const Status&) { FAIL("done"); };
  CHECK_THROWS_AS(alone->exchange({}, {{}, {}}, never), CheckFailed);
  CHECK_THROWS_AS(alone->exchange({}, {{std::span(kOwnBytes).first(2)}, {received}}, never),
                  CheckFailed);
}

TEST_CASE("inproc: after cancel every exchange fails with the reason", "[engine][collective]") {
  const std::unique_ptr<Collectives> alone = std::move(make_inproc(1).front());
  alone->cancel("rank 3 is lost");
  alone->cancel("a later reason");
  ThreeBytes received{};
  std::optional<std::string> message;
  alone->exchange({}, {{kOwnBytes}, {received}},
                  [&](const Status& status) { message = status.error().message; });
  REQUIRE(message.has_value());
  CHECK_THAT(*message, Catch::Contains("rank 3 is lost"));
  CHECK(received == ThreeBytes{});
}

}  // namespace train::engine::inproc_test
