#include "run/report/machine_rates.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

namespace train::run {
namespace {

/// A user with an empty cache directory.
struct EmptyCache {
  EmptyCache() { ::setenv("XDG_CACHE_HOME", (home.path() / "cache").c_str(), 1); }
  EmptyCache(const EmptyCache&) = delete;
  EmptyCache& operator=(const EmptyCache&) = delete;
  ~EmptyCache() { ::unsetenv("XDG_CACHE_HOME"); }
  test::TempDirectory home;
};

}  // namespace

TEST_CASE("machine rates: the highest peak and the newest rate of each work stay", "[run][rates]") {
  const EmptyCache cache;
  configs::RunConfig config;
  config.runtime.device = "cpu";
  CHECK(kept_rates(config, "a").peak_flops == 0.0);
  CHECK(keep_rates(config, {.peak_flops = 5e9}).peak_flops == 5e9);
  CHECK(keep_rates(config, {.peak_flops = 3e9}).peak_flops == 5e9);
  CHECK(kept_rates(config, "a").run_flops == 0.0);
  CHECK(keep_rates(config, {.run_flops = 2e9, .run_work = "a"}).peak_flops == 5e9);
  CHECK(keep_rates(config, {.run_flops = 1e9, .run_work = "a"}).run_flops == 1e9);
  CHECK(keep_rates(config, {.run_flops = 7e9, .run_work = "b"}).run_flops == 7e9);
  CHECK(kept_rates(config, "a").run_flops == 1e9);
  CHECK(kept_rates(config, "a").run_work == "a");
  CHECK(kept_rates(config, "c").run_flops == 7e9);  // No run of c: the newest of another.
  CHECK(kept_rates(config, "c").run_work == "b");
  CHECK(keep_rates(config, {.peak_flops = 6e9}).run_flops == 7e9);
  configs::RunConfig other = config;
  other.precision.compute = "bf16";
  CHECK(kept_rates(other, "a").peak_flops == 0.0);
  CHECK(kept_rates(other, "a").run_flops == 0.0);
}

TEST_CASE("machine rates: a bounded number of works is kept, the newest", "[run][rates]") {
  const EmptyCache cache;
  const configs::RunConfig config;
  for (int work = 0; work < 40; ++work) {
    keep_rates(config, {.run_flops = 1e9 + work, .run_work = std::to_string(work)});
  }
  CHECK(kept_rates(config, "8").run_flops == 1e9 + 8);
  CHECK(kept_rates(config, "7").run_work == "39");
}

TEST_CASE("machine rates: a home that does not exist is not made", "[run][rates]") {
  const test::TempDirectory directory;
  const test::EnvironmentVariable home("HOME", (directory / "nobody").string());
  const configs::RunConfig config;
  keep_rates(config, {.peak_flops = 5e9});
  CHECK_FALSE(std::filesystem::exists(directory / "nobody"));
  std::filesystem::create_directory(directory / "nobody");
  keep_rates(config, {.peak_flops = 5e9});
  CHECK(std::filesystem::exists(directory / "nobody/.cache/actortrain/rates.json"));
}

TEST_CASE("machine rates: a file of anything is a file of nothing", "[run][rates]") {
  const EmptyCache cache;
  const auto file = cache.home / "cache/actortrain/rates.json";
  const configs::RunConfig config;
  (void)keep_rates(config, {.peak_flops = 5e9});
  const std::string good = test::read_bytes(file);
  const std::string begin = good.substr(0, good.find(':') + 1);
  for (const std::string& text :
       {std::string("{"), std::string("[1]"), begin + "7}", begin + "{\"peak_flops\": \"high\"}}",
        begin + "{\"runs\": 7}}", begin + "{\"runs\": [7, {\"work\": 7}]}}",
        begin + "{\"runs\": [{\"work\": \"a\", \"flops\": \"high\"}]}}"}) {
    CAPTURE(text);
    test::write_bytes(file, text);
    CHECK(kept_rates(config, "a").peak_flops == 0.0);
    CHECK(kept_rates(config, "a").run_flops == 0.0);
  }
  CHECK(keep_rates(config, {.peak_flops = 4e9}).peak_flops == 4e9);
  CHECK(kept_rates(config, "a").peak_flops == 4e9);
}

TEST_CASE("machine rates: a rate of an earlier version is of an unknown run", "[run][rates]") {
  const EmptyCache cache;
  const auto file = cache.home / "cache/actortrain/rates.json";
  const configs::RunConfig config;
  (void)keep_rates(config, {.peak_flops = 5e9});
  const std::string good = test::read_bytes(file);
  test::write_bytes(
      file, good.substr(0, good.find(':') + 1) + "{\"peak_flops\": 5e9, \"run_flops\": 2e9}}");
  CHECK(kept_rates(config, "a").run_flops == 2e9);
  CHECK(kept_rates(config, "a").run_work.empty());
}

TEST_CASE("machine rates: are of a device, or of the CPU of a node", "[run][rates]") {
  configs::RunConfig config;
  config.parallel.ranks = 8;
  config.parallel.nodes = 2;
  config.runtime.device = "cpu";
  CHECK(rate_count(config) == 2.0);
  config.runtime.device = "cuda";
  CHECK(rate_count(config) == 8.0);
  config.parallel.transport = "inproc";
  CHECK(rate_count(config) == 2.0);
}

}  // namespace train::run
