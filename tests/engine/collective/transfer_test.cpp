#include "engine/collective/collective.hpp"

#include <catch2/catch.hpp>

namespace train::engine::transfer_test {
namespace {

TEST_CASE("transfer: two sides agree only if each sends what the other expects",
          "[engine][collective][EX-2]") {
  const CollectiveIdentity identity{.generation = 1, .command = 7, .index = 2, .hash = 5};
  const PairClaim own{.rank = 0, .identity = identity, .sent_bytes = 8, .received_bytes = 20};
  const PairClaim peer{.rank = 1, .identity = identity, .sent_bytes = 20, .received_bytes = 8};
  CHECK(agree(own, peer));
  PairClaim other = peer;
  SECTION("it sends more") { other.sent_bytes = 21; }
  SECTION("it sends less") { other.sent_bytes = 0; }
  SECTION("it expects more") { other.received_bytes = 9; }
  SECTION("it expects less") { other.received_bytes = 0; }
  SECTION("another generation") { ++other.identity.generation; }
  SECTION("another command") { ++other.identity.command; }
  SECTION("another collective") { ++other.identity.index; }
  SECTION("another plan") { ++other.identity.hash; }
  CHECK_FALSE(agree(own, other));
  CHECK_FALSE(agree(other, own));
}

}  // namespace
}  // namespace train::engine::transfer_test
