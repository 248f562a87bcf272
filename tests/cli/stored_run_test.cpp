#include "cli/checkpoints/stored_run.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::stored_run_test {

TEST_CASE("stored run: the configuration of another person's run is not waited for", "[run]") {
  const test::TempDirectory home;
  const auto path = home / "config.toml";
  const auto message = [&] {
    const auto config = load_run_config(home.path());
    REQUIRE_FALSE(config);
    CHECK(config.error().message.find('\n') == std::string::npos);
    return config.error().message;
  };
  CHECK_THAT(message(), Catch::Contains("not a run directory"));
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THAT(message(), Catch::Contains("not a regular file"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  CHECK_THAT(message(), Catch::Contains("a link leads out of"));
  std::filesystem::remove(path);
  test::write_bytes(path, std::string(std::size_t{2} << 20U, '['));
  CHECK_THAT(message(), Catch::Contains("above its limit of"));
  test::write_bytes(path, std::string(std::size_t{1} << 19U, '['));
  CHECK_THAT(message(), Catch::Contains("config.toml:1"));
}

}  // namespace train::cli::stored_run_test
