#include "storage/files/digest.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

using namespace train;
using namespace train::storage;

TEST_CASE("digest: bytes in pieces have the digest of the whole", "[storage][digest]") {
  const std::string text = "one text, in any pieces";
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    StreamingDigest first;
    first.update(bytes.first(cut));
    StreamingDigest moved;
    moved = std::move(first);
    moved.update(bytes.subspan(cut));
    REQUIRE(moved.finish() == digest_text(text));
  }
  CHECK(digest_bytes(bytes) == digest_text(text));
  CHECK(digest_text("one text, in any piece") != digest_text(text));
  CHECK(short_digest(bytes) != short_digest(bytes.first(bytes.size() - 1)));
}

TEST_CASE("digest: only its own form is one", "[storage][digest]") {
  const std::string digest = digest_text("x");
  CHECK(is_digest(digest));
  CHECK_FALSE(is_digest(digest + "0"));
  CHECK_FALSE(is_digest(digest.substr(1)));
  CHECK_FALSE(is_digest("xxh3-129:" + digest.substr(9)));
  CHECK_FALSE(is_digest(digest.substr(0, digest.size() - 1) + "G"));
}
