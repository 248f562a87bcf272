#include <array>
#include <catch2/catch.hpp>
#include <optional>

#include "engine/collective/collective.hpp"

namespace train::engine {
namespace {

using Bytes = std::array<std::byte, 3>;

constexpr Bytes kSent = {std::byte{1}, std::byte{2}, std::byte{250}};

}  // namespace

TEST_CASE("loopback: a world of one gets its own bytes", "[engine][collective]") {
  const auto loopback = make_loopback();
  CHECK(loopback->rank() == 0);
  CHECK(loopback->world_size() == 1);
  Bytes gathered{};
  Bytes exchanged{};
  int finished = 0;
  const auto done = [&](const Status& status) {
    CHECK(status.ok());
    ++finished;
  };
  loopback->all_gather(kSent, gathered, done);
  loopback->all_to_all({kSent}, {exchanged}, done);
  CHECK(finished == 2);
  CHECK(gathered == kSent);
  CHECK(exchanged == kSent);
}

TEST_CASE("loopback: after cancel every collective fails with the reason", "[engine][collective]") {
  const auto loopback = make_loopback();
  loopback->cancel("rank 3 is lost");
  loopback->cancel("a later reason");
  Bytes gathered{};
  std::optional<std::string> message;
  loopback->all_gather(kSent, gathered,
                       [&](const Status& status) { message = status.error().message; });
  REQUIRE(message.has_value());
  CHECK_THAT(*message, Catch::Contains("rank 3 is lost"));
  CHECK(gathered == Bytes{});
}

}  // namespace train::engine
