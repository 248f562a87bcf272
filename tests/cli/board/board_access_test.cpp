#include "cli/board/board_access.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "cli/board/board_request.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::board_access_test {

TEST_CASE("board access: addresses", "[board]") {
  for (const auto& [text, host, port, loopback] :
       {std::tuple{"127.0.0.1:8080", "127.0.0.1", 8080, true},
        {"[::1]:0", "::1", 0, true},
        {"localhost:7", "127.0.0.1", 7, true},
        {"0.0.0.0:80", "0.0.0.0", 80, false},
        {"10.1.2.3:65535", "10.1.2.3", 65535, false}}) {
    const auto address = parse_board_address(text, "status.listen");
    INFO(text);
    REQUIRE(address);
    CHECK(address->host == host);
    CHECK(address->port == port);
    CHECK(address->loopback == loopback);
  }
  for (const char* text : {"", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                           "example.org:80", "[::1:80", "127.0.0.1:80x"}) {
    const auto address = parse_board_address(text, "status.listen");
    INFO(text);
    REQUIRE_FALSE(address);
    CHECK(address.error().exit_code() == 2);
    CHECK(address.error().message.find("status.listen must be an address") == 0);
    CHECK(address.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("board access: origins of pages with the board in a frame", "[board]") {
  for (const auto& [text, origins] :
       {std::tuple{"", ""},
        {"http://localhost:* https://*.example.org", "http://localhost:* https://*.example.org"},
        {" vscode-webview:  https://127.0.0.1:8888 ", "vscode-webview: https://127.0.0.1:8888"}}) {
    const auto parsed = parse_frame_ancestors(text, "--frame-ancestors");
    INFO(text);
    REQUIRE(parsed);
    CHECK(*parsed == origins);
  }
  // Nothing of them may end the header or the policy's part.
  for (const char* text :
       {"*", "localhost", "http:localhost", "http://", "http://a:", "http://a:x", "http://a:123456",
        "http://a/b", "http://a;", "http://a,http://b", "'self'", "http://a\r\nX-Other: 1",
        "http://a\nb", "http://a\tb", "http://user@a", "http://*", "http://a:1:2", "ht tp://a"}) {
    const auto parsed = parse_frame_ancestors(text, "--frame-ancestors");
    INFO(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().exit_code() == 2);
    CHECK(parsed.error().message.starts_with("--frame-ancestors must be origins"));
    CHECK(parsed.error().message.find_first_of("\r\n") == std::string::npos);
  }
}

TEST_CASE("board access: a token is its owner's alone", "[board]") {
  const test::TempDirectory home;
  const auto file = home / "token";
  test::write_bytes(file, "0123456789abcdef\nmore\n");
  namespace fs = std::filesystem;
  fs::permissions(file, fs::perms::owner_read | fs::perms::group_read);
  REQUIRE_FALSE(read_board_token(file));
  CHECK(read_board_token(file).error().message.find("chmod 600") != std::string::npos);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  CHECK(*read_board_token(file) == "0123456789abcdef");
  test::write_bytes(file, "short\n");
  CHECK_FALSE(read_board_token(file));
  test::write_bytes(file, "0123456789 abcdef\n");
  CHECK_FALSE(read_board_token(file));
  CHECK_FALSE(read_board_token(home / "absent"));
}

TEST_CASE("board access: who may look", "[board]") {
  using Verdict = BoardAccess::Verdict;
  const BoardAccess open(std::nullopt);
  for (const char* host :
       {"127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "10.0.0.1"}) {
    INFO(host);
    CHECK(open.judge({.host = host}) == Verdict::granted);
  }
  // A page of a stranger whose name points to the loopback comes with that name.
  for (const char* host : {"evil.example", "evil.example:8080", "", "localhost.evil.example"}) {
    INFO(host);
    CHECK(open.judge({.host = host}) == Verdict::refused);
  }
  const std::string token = "0123456789abcdef";
  const BoardAccess closed(token);
  CHECK(closed.judge({.host = "127.0.0.1"}) == Verdict::refused);
  CHECK(closed.judge({.host = "any.name", .authorization = "Bearer 0123456789abcdef"}) ==
        Verdict::granted);
  CHECK(closed.judge({.host = "x", .authorization = "Bearer 0123456789abcdeX"}) ==
        Verdict::refused);
  CHECK(closed.judge({.host = "x", .authorization = "Bearer "}) == Verdict::refused);
  CHECK(closed.judge({.host = "x", .query_token = token}) == Verdict::granted_by_query);
  CHECK(closed.judge({.host = "x", .cookie = "a=b; actortrain_token_80=0123456789abcdef; c=d"}) ==
        Verdict::granted);
  CHECK(closed.judge({.host = "x", .cookie = "actortrain_token_80=0123456789abcde"}) ==
        Verdict::refused);
}

TEST_CASE("board access: boards side by side have a cookie each", "[board]") {
  using Verdict = BoardAccess::Verdict;
  const std::string first = "0123456789abcdef";
  const std::string second = "fedcba9876543210";
  const BoardAccess one(first);
  const BoardAccess other(second);
  const std::string both = one.cookie("127.0.0.1:8080").substr(0, one.cookie("x:8080").find(';')) +
                           "; " + other.cookie("[::1]:8081").substr(0, 38);
  CHECK(both == "actortrain_token_8080=0123456789abcdef; actortrain_token_8081=fedcba9876543210");
  CHECK(one.judge({.host = "127.0.0.1:8080", .cookie = both}) == Verdict::granted);
  CHECK(other.judge({.host = "localhost:8081", .cookie = both}) == Verdict::granted);
  CHECK(other.judge({.host = "localhost:8080", .cookie = both}) == Verdict::refused);
  CHECK(one.cookie("node7") ==
        "actortrain_token_80=0123456789abcdef; Path=/; HttpOnly; SameSite=Strict");
  for (const char* host : {"", "[::1]", "x:", "x:99999999", "x:80; Domain=evil", "x:8\r\nA: b"}) {
    INFO(host);
    CHECK(one.cookie(host).starts_with("actortrain_token_80="));
  }
}

TEST_CASE("board request: a browser is sent to paths of the board alone", "[board]") {
  for (const char* path : {"/", "/board.js", "/runs.json", "/status.json", "/events", "/metrics"}) {
    INFO(path);
    CHECK(is_board_path(path));
  }
  for (const char* path :
       {"", "//host/", "/\\host", "/%2f/host", "//", "/host", "/../", "/runs.json/"}) {
    INFO(path);
    CHECK_FALSE(is_board_path(path));
  }
}

TEST_CASE("board request: targets", "[board]") {
  const auto target = parse_board_target("/series.json?run=a%20b%2Fc&from=12&to=-3&flag");
  REQUIRE(target);
  CHECK(target->path == "/series.json");
  CHECK(target->text("run") == "a b/c");
  CHECK(target->integer("from") == 12);
  CHECK_FALSE(target->integer("to"));
  CHECK_FALSE(target->integer("flag"));
  CHECK_FALSE(target->integer("absent"));
  for (const char* wrong : {"", "http://x/", "*", "/?a=%4", "/?a=%zz", "/?%=1"}) {
    INFO(wrong);
    CHECK_FALSE(parse_board_target(wrong));
  }
  CHECK(find_board_file("/"));
  CHECK(find_board_file("/dygraph.min.js")->content.size() > 100'000);
  CHECK_FALSE(find_board_file("/../board.js"));
}

}  // namespace train::cli::board_access_test
