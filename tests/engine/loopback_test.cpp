#include <array>
#include <catch2/catch.hpp>
#include <optional>

#include "base/check.hpp"
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
  Bytes received{};
  int finished = 0;
  const auto done = [&](const Status& status) {
    CHECK(status.ok());
    ++finished;
  };
  loopback->exchange({}, {{kSent}, {received}}, done);
  loopback->exchange({}, {{std::span<const std::byte>()}, {std::span<std::byte>()}}, done);
  loopback->exchange({}, {{received}, {received}}, done);
  CHECK(finished == 3);
  CHECK(received == kSent);
  CHECK(Transfer{{kSent}, {received}}.sent_bytes(0) == 0);
}

TEST_CASE("loopback: a transfer of the wrong shape is a defect", "[engine][collective]") {
  const auto loopback = make_loopback();
  Bytes received{};
  const auto never = [](const Status&) { FAIL("done"); };
  CHECK_THROWS_AS(loopback->exchange({}, {{}, {}}, never), CheckFailed);
  CHECK_THROWS_AS(loopback->exchange({}, {{std::span(kSent).first(2)}, {received}}, never),
                  CheckFailed);
}

TEST_CASE("loopback: after cancel every exchange fails with the reason", "[engine][collective]") {
  const auto loopback = make_loopback();
  loopback->cancel("rank 3 is lost");
  loopback->cancel("a later reason");
  Bytes received{};
  std::optional<std::string> message;
  loopback->exchange({}, {{kSent}, {received}},
                     [&](const Status& status) { message = status.error().message; });
  REQUIRE(message.has_value());
  CHECK_THAT(*message, Catch::Contains("rank 3 is lost"));
  CHECK(received == Bytes{});
}

}  // namespace train::engine
